"""Read what a language model replies to KnowPath: paths from memory, and its judgement.

Both the form that our prompts ask for and the form of the paper are understood.

Source: KnowPath, appendix F, for the forms.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kbqa.engine.deciding.reading import (
    clip_unread,
    field_of,
    names_within,
    read_names,
    read_record,
    read_yes,
)

MAX_HINTS = 3
"""Paths from memory that count; a prompt of the paper has one."""

MAX_HINT_LETTERS = 500
"""Letters of a path from memory that are shown."""

_ARROW = re.compile(r"\s*(?:-+>|→|⟶)\s*")
_RESPONSE = re.compile(r"\b(?:responses?|answers?)[\"'”]?\s*(?:is|are)?\s*:\s*(.+)", re.I | re.S)
_ANSWERABLE = re.compile(r"\banswerable[\"'”]?\s*:?\s*\W?(?:true|yes)\b", re.I)
_ANSWER_IS = re.compile(r"\banswers?\b.*?(?:\b(?:is|are|was|were)\b|:)\s*(.+)", re.I | re.S)


class Thought(NamedTuple):
    """What the model knows of a question from memory.

    Attributes:
        hint: Paths, as it wrote them.
        names: Its answer.
        unread: What could not be understood.
    """

    hint: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """Whether the model can answer a question, and what.

    Attributes:
        names: Its answers; none if it cannot answer.
        unread: What could not be understood.
    """

    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def read_thought(reply: str, question: str) -> Thought:
    """Read paths and an answer from memory.

    >>> read_thought('{"path": ["Kenya -> capital -> Nairobi"], "answers": ["Nairobi"]}', "?")
    Thought(hint=('Kenya -> capital -> Nairobi',), names=('Nairobi',), unread=())
    >>> read_thought('{reasoning_path : ["Kenya→capital→Nairobi"], "response": "based on the '
    ...     'knowledge, the answer to the question what is it is Nairobi" }', "what is it?")
    Thought(hint=('Kenya -> capital -> Nairobi',), names=('Nairobi',), unread=())
    """
    record = read_record(reply)
    paths = _texts(field_of(record, "path", "paths", "reasoning_path", "reasoning path"))
    if not paths:
        paths = re.split(r'[\n"“”\[\]{}]', reply)
    hint = [" -> ".join(parts) for path in paths if len(parts := _ARROW.split(_line(path))) > 2]
    names = _names(record, reply, question, ())
    unread = [path[MAX_HINT_LETTERS:] for path in hint[:MAX_HINTS]] + hint[MAX_HINTS:]
    if not names:
        unread.append(reply)
    return Thought(
        tuple(path[:MAX_HINT_LETTERS] for path in hint[:MAX_HINTS]),
        tuple(names),
        clip_unread(list(filter(None, unread))),
    )


def read_verdict(reply: str, question: str, known: Sequence[str]) -> Verdict:
    """Read whether the model can answer, and its answers.

    Only what says that it can answer, and names an answer, counts as an answer.

    >>> read_verdict('{"Answerable": True, "Response": "the answer to the question what is the '
    ...     'capital is Nairobi"}', "what is the capital?", ["Kenya", "Nairobi"])
    Verdict(names=('Nairobi',), unread=())
    >>> read_verdict('{"Answerable": false, "Response": "", "Answers": []}', "who?", [])
    Verdict(names=(), unread=())

    Args:
        reply: What the model wrote.
        question: In one line.
        known: Names that the prompt showed.
    """
    record = read_record(reply)
    verdict = field_of(record, "answerable", "sufficient")
    if verdict is None:
        is_answerable = _ANSWERABLE.search(reply) is not None
        if not is_answerable:
            is_read = re.search(r"\banswerable\b\W*(?:false|no)\b", reply, re.I) is not None
            return Verdict((), () if is_read else clip_unread([reply or "(empty)"]))
    elif not read_yes(verdict):
        return Verdict()
    names = _names(record, reply, question, known)
    return Verdict(tuple(names), () if names else clip_unread([reply]))


def _names(
    record: Mapping[str, Any] | None, reply: str, question: str, known: Sequence[str]
) -> list[str]:
    """Read the answers of a reply: from its list, or else from its sentence."""
    names = _listed_names(_texts(field_of(record, "answers", "answer")), question, known)
    if names:
        return names
    response = " ".join(_texts(field_of(record, "response", "responses")))
    if record is None and (match := _RESPONSE.search(reply)):
        response = match[1].strip("\"'{}[] \n")
    return _names_of_sentence(response, question, known)


def _listed_names(texts: Sequence[str], question: str, known: Sequence[str]) -> list[str]:
    """Read names that stand each for itself: commas inside unknown ones do not part them."""
    found: dict[str, None] = {}
    for text in texts:
        read, unread = read_names(_line(text), known)
        if unread:
            read = _names_of_sentence(text, question, known)
        elif len(read) > 1:
            read = [name for name in read if name in known] or [_line(text)]
        found.update(dict.fromkeys(read))
    return list(found)


def _names_of_sentence(text: str, question: str, known: Sequence[str]) -> list[str]:
    """Read the answers that a sentence gives; names in the question itself are none."""
    asked = re.escape(question.rstrip("?. "))
    text = re.sub(rf"{asked}\??", " ", _line(text), flags=re.I) if asked else _line(text)
    match = _ANSWER_IS.search(text)
    said = match[1] if match else text
    within = names_within(said, known)
    if within and not match:
        within = [each for each in within if not names_within(question, [each])] or within
    return within or read_names(said.rstrip(". "), known)[0]


def _texts(value: object) -> list[str]:
    """Return the texts of a field that may be a list or one text."""
    if value is None:
        return []
    if isinstance(value, (list, tuple, set)):
        return [" ".join(map(str, v)) if isinstance(v, list) else str(v) for v in value]
    return [str(value)]


def _line(text: str) -> str:
    return " ".join(text.split())
