"""Answer without the graph: a language model is asked once, and its names are looked up.

`io` asks for the answers at once, `cot` for reasoning first. Methods that walk fall back on them.
An answer has the origin ``named`` if an entity of the graph has its name, else ``text``.

Source: the baselines IO and CoT of Think-on-Graph and KnowPath; the words are ours.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Unpack

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import DEFAULT_MAX_TOKENS, Message, ReplySampling
from kbqa.engine.deciding.reading import clip_unread, plain_lines, read_names
from kbqa.engine.deciding.session import Session
from kbqa.engine.methods import MethodMaker, check_counts, walking_method

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
    session: Session, kind: str = "fallback", *, reason: bool, **sampling: Unpack[ReplySampling]
) -> tuple[str, ...] | None:
    """Ask the language model for names of the answers, with the call that is kept for them.

    Returns None if no language model decides here, or no call is left.
    """
    prompt = direct_prompt(session.question, reason=reason)
    reply = session.ask(kind, prompt, is_last=True, **sampling)
    if reply is None:
        return None
    text = _answers_of(reply, reason=reason)
    # A comma may be part of a name, as in "Washington, D.C.".
    known = [line for line in plain_lines(text) if "," in line and session.has_name(line)]
    names, unread = read_names(text, known)
    if not (names or unread):
        unread = clip_unread([reply.strip()])
    session.not_understood(unread)
    return tuple(names)


def direct_prompt(question: str, *, reason: bool) -> tuple[Message, ...]:
    """Ask a question, whose words have single blanks."""
    system = _REASONED if reason else _AT_ONCE
    return Message("system", system), Message("user", f"Question: {question}")


def _answers_of(reply: str, *, reason: bool) -> str:
    """Find the answers in a reply: after the last "Answer:", up to a blank line.

    Without such a line, they are the whole reply, or after reasoning its last line.
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


def _floor(name: str, *, reason: bool) -> MethodMaker:
    """Return the maker of `io` or `cot`."""

    def answer(session: Session, settings: DirectSettings) -> Answer:
        limit = settings.max_tokens
        said = answer_directly(session, "answer", reason=reason, max_tokens=limit)
        return session.finish((), "direct", said, stage="direct")

    return walking_method(
        name, DirectSettings, {}, answer, needs_model=lambda _: f"the method {name}"
    )


IO = _floor("io", reason=False)
COT = _floor("cot", reason=True)
