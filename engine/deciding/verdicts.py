"""Read a language model's judgement: whether what was found is enough, and then the answer."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from kbqa.engine.deciding.reading import clip_unread, field_of, read_names, read_record, read_yes

_YES = re.compile(r"^\W*(?:yes|true)\b[\s}\])*_\"'.,:;!-]*", re.IGNORECASE)
_NO = re.compile(r"\W*(?:no|false|not)\b", re.IGNORECASE)
_BRACED = re.compile(r"\{([^{}\n]{1,300})\}")


class Verdict(NamedTuple):
    """Whether it is enough, the names of the answers, and what could not be understood."""

    is_enough: bool
    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def read_verdict(reply: str, known: Sequence[str]) -> Verdict:
    r"""Read a judgement in words, with braces, or as a record.

    A record has the fields Sufficient and Answer, by themselves or in a field A.

    >>> read_verdict("Yes\nParis\nNice", ["Paris"])
    Verdict(is_enough=True, names=('Paris', 'Nice'), unread=())
    >>> read_verdict("{Yes}. It is {Paris}, the capital.", ["Paris"])
    Verdict(is_enough=True, names=('Paris',), unread=())
    >>> read_verdict('{"A": {"Sufficient": "No", "Answer": null}, "R": "too little"}', [])
    Verdict(is_enough=False, names=(), unread=())

    Args:
        reply: What the model wrote.
        known: Names that the prompt showed.
    """
    record = read_record(reply)
    nested = field_of(record, "a")
    if isinstance(nested, dict):
        record = {str(key): value for key, value in nested.items()}
    judged = field_of(record, "sufficient", "enough", "answerable")
    if judged is not None:
        answer = field_of(record, "answer", "answers", "response")
        is_enough, text = read_yes(judged), _lines_of(answer)
        is_clear = is_enough or judged is False or _NO.match(str(judged)) is not None
    else:
        is_enough, text = read_yes(reply), _YES.sub("", reply)
        text = "\n".join(_BRACED.findall(text)) or text
        is_clear = is_enough or _NO.match(reply) is not None
    if not is_enough:
        return Verdict(False, unread=() if is_clear else clip_unread([reply.strip() or "(empty)"]))
    names, unread = read_names(text, known)
    if not (names or unread):
        unread = clip_unread([text.strip() or "(no answer)"])
    return Verdict(True, tuple(names), unread)


def _lines_of(answer: object) -> str:
    if isinstance(answer, list | tuple | set):
        return "\n".join(map(str, answer))
    return "" if answer is None else str(answer)
