"""Answer without the graph: a language model is asked once, and what it names is looked up.

The floors under all methods that walk: `io` asks for the answers at once, `cot` for reasoning
first. An answer has the origin ``named`` if an entity of the graph has its name, else ``text``.

Source: the baselines IO and CoT of Think-on-Graph and KnowPath.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import DEFAULT_MAX_TOKENS
from kbqa.engine.deciding.direct import answer_directly
from kbqa.engine.deciding.session import SEED, Found, Walkers
from kbqa.engine.method import Asked
from kbqa.engine.setup import Resources
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.errors import InputError


@dataclass(frozen=True, slots=True)
class DirectSettings:
    """How a question is asked without the graph."""

    max_tokens: Annotated[int, "The most tokens of the reply."] = DEFAULT_MAX_TOKENS

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InputError(f"max_tokens is {self.max_tokens}; it must be at least 1")


def make_direct(
    resources: Resources, settings: DirectSettings, name: str, *, reason: bool
) -> "Direct":
    """Make `io` or `cot` ready to answer.

    Raises:
        InputError: There is no general model, or it is not to decide.
        GraphError: The graph's schema cannot be read.
    """
    if resources.chat is None:
        raise InputError(f"{name} needs a general model: add --llm URL or --llm-model NAME")
    if resources.chooser != "llm":
        raise InputError(
            f"{name} asks a general model for the answers, so it cannot work with "
            f"--chooser {resources.chooser}. Leave --chooser out."
        )
    walkers = resources.walkers(SEED)
    return Direct(name, walkers, settings, reason=reason)


class Direct:
    """Answers with what a language model knows."""

    def __init__(
        self, name: str, walkers: Walkers, settings: DirectSettings, *, reason: bool
    ) -> None:
        self.name = name
        self._walkers, self._settings, self._reason = walkers, settings, reason

    def settings(self) -> Mapping[str, object]:
        """Return what decides the answers, for manifests."""
        return {**asdict(self._settings), **self._walkers.settings()}

    def write(self, asked: Sequence[Asked]) -> list[list[Candidate]]:
        """Write nothing: no small model is used."""
        return [[] for _ in asked]

    def answer(self, asked: Asked) -> Answer:
        """Answer a question with one call."""
        session = self._walkers.begin(asked)
        limit = self._settings.max_tokens
        said = answer_directly(session, "answer", reason=self._reason, max_tokens=limit)
        return session.finish(Found((), "direct", said, "direct"))
