"""Answer without the graph: a language model is asked once, and what it names is looked up.

The floors under all methods that walk: `io` asks for the answers at once, `cot` for reasoning
first. An answer has the origin ``named`` if an entity of the graph has its name, else ``text``.

Source: the baselines IO and CoT of Think-on-Graph and KnowPath.

Ask a language model for the answers at once, without the graph.

Have a language model reason and then answer, without the graph.

Ask a language model for the answers without the graph: at once, or after reasoning.

The methods `io` and `cot` do only this; others fall back on it. Whatever is said here is grounded
by name, never as found in the graph (`kbqa.engine.deciding.session`, `Found.stage`).

Source: Think-on-Graph and KnowPath, whose baselines are called IO and CoT; the words are ours.
"""

import re
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import DEFAULT_MAX_TOKENS, Message
from kbqa.engine.deciding.reading import clip_unread, plain_lines, read_names
from kbqa.engine.deciding.session import SEED, Session, WalkingMethod
from kbqa.engine.methods.options import check_counts
from kbqa.engine.resources import MethodMaker, Resources

_AT_ONCE = """\
Answer the question from what you know. Reply with the answers only: their names, one a line, \
without explanations. If you are not sure, give your best guess."""

_REASONED = """\
Answer the question from what you know. First reason step by step, in a few short sentences. \
Then write a line that says "Answer:", and below it the names of the answers, one a line. \
If you are not sure, give your best guess."""

_ANSWER_LINE = re.compile(
    r"^\W*(?:(?:so|thus|hence|therefore)\b\W*)?(?:the )?(?:final )?answers?\b(?: is| are)?\W*?:",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWER_IS = re.compile(r"\banswers? (?:is|are)\b:?\s*(.+)", re.IGNORECASE)


def answer_directly(
    session: Session,
    kind: str = "fallback",
    *,
    reason: bool,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    temperature: float = 0.0,
) -> tuple[str, ...] | None:
    """Ask the language model for the answers, with the call that is kept for them.

    Args:
        session: The question.
        kind: Names the step.
        reason: Whether the model reasons step by step before it answers (CoT) or not (IO).
        max_tokens: Most tokens of the reply.
        temperature: Of the reply.

    Returns:
        What it named; None if no language model decides here, or no call is left.

    Raises:
        ModelError: The model failed.
        GraphError: The graph does not answer.
        DeadlineExceeded: The question's deadline has passed.
    """
    prompt = direct_prompt(session.question, reason=reason)
    reply = session.ask(kind, prompt, max_tokens=max_tokens, temperature=temperature, is_last=True)
    if reply is None:
        return None
    text = direct_answers(reply, reason=reason)
    # A comma may be part of a name, as in "Washington, D.C.".
    known = [line for line in plain_lines(text) if "," in line and session.has_name(line)]
    names, unread = read_names(text, known)
    if not (names or unread):
        unread = clip_unread([reply.strip()])
    session.not_understood(unread)
    return tuple(names)


def direct_prompt(question: str, *, reason: bool) -> tuple[Message, ...]:
    """Render the prompt for a question, whose words have single blanks.

    >>> direct_prompt("Who?", reason=False)[-1].content
    'Question: Who?'
    """
    system = _REASONED if reason else _AT_ONCE
    return Message("system", system), Message("user", f"Question: {question}")


def direct_answers(reply: str, *, reason: bool) -> str:
    r"""Find the part of a reply that has the answers.

    That is what follows the last "Answer:", up to a blank line. Without it: the whole reply if it
    should have no reasoning, and otherwise what the last line says that the answer is.

    >>> direct_answers("He lived in France.\n**Answer:**\nParis\nNice\n\nAsk more!", reason=True)
    'Paris\nNice'
    >>> direct_answers("France, I think. So the answer is Paris.", reason=True)
    'Paris'
    """
    if heads := list(_ANSWER_LINE.finditer(reply)):
        rest = re.sub(r"^[\s*_:]+", "", reply[heads[-1].end() :])
        return re.split(r"\n\s*\n", rest)[0].strip()
    if not reason:
        return reply
    lines = reply.strip().splitlines() or [""]
    said = _ANSWER_IS.search(lines[-1])
    return said[1].strip().rstrip(".") if said else lines[-1]


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
        return session.finish((), "direct", said, stage="direct")

    return WalkingMethod(name, resources.walkers(SEED), asdict(settings), answer_in)


IO = MethodMaker(DirectSettings, partial(make_direct, name="io", reason=False))


COT = MethodMaker(DirectSettings, partial(make_direct, name="cot", reason=True))
