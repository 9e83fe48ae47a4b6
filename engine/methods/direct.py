"""Answer without the graph: a language model is asked once, and what it names is looked up.

The floors under all methods that walk: `io` asks for the answers at once, `cot` for reasoning
first. An answer has the origin ``named`` if an entity of the graph has its name, else ``text``.

Source: the baselines IO and CoT of Think-on-Graph and KnowPath.
"""

from dataclasses import asdict, dataclass
from typing import Annotated

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import DEFAULT_MAX_TOKENS
from kbqa.engine.deciding.direct import answer_directly
from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.deciding.session import SEED, Found, Session
from kbqa.engine.methods.settings import check_counts
from kbqa.engine.resources import Resources


@dataclass(frozen=True, slots=True)
class DirectSettings:
    """How a question is asked without the graph."""

    max_tokens: Annotated[int, "The most tokens of the reply."] = DEFAULT_MAX_TOKENS

    def __post_init__(self) -> None:
        check_counts(self, "max_tokens")


def make_direct(
    resources: Resources, settings: DirectSettings, name: str, *, reason: bool
) -> WalkingMethod:
    """Make `io` or `cot` ready to answer.

    Raises:
        InputError: There is no general model, or it is not to decide.
        GraphError: The graph's schema cannot be read.
    """
    resources.require_language_model(f"the method {name}")

    def answer_in(session: Session) -> Answer:
        limit = settings.max_tokens
        said = answer_directly(session, "answer", reason=reason, max_tokens=limit)
        return session.finish(Found((), "direct", said, "direct"))

    return WalkingMethod(name, resources.walkers(SEED), asdict(settings), answer_in)
