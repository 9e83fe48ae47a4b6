"""Read the gold of a question's record: what its right answer is.

A record has one of four kinds of gold, or none and is then not scored:

- ``answers``, a set of entities and literals; WebQSP has a set for each parse;
- ``boolean``, the answer to a yes/no question;
- ``count``, the answer to "how many?". Official sets give the number as their answer, and mark such
  questions by their query, logical form or ``function``;
- ``unanswerable``, if the right thing is not to answer.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

from kbqa.engine.questions.official import scored_parses
from kbqa.sparql.terms import is_mid

GoldKind: TypeAlias = Literal["answers", "boolean", "count", "unanswerable"]

GoldSets: TypeAlias = tuple[Collection[str], ...]
"""Alternative sets of gold answers, or of their names; each is sorted."""

_NUMBER_OR_DATE = re.compile(
    r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
    r"|-?\d{4}-\d\d(?:-\d\d(?:T[\d:.]+)?)?(?:Z|[+-]\d\d:\d\d)?"
)
_COUNTS = re.compile(
    r"[^{]*\bselect\s+(?:distinct\s+)?\(?\s*count\s*\(|\s*\(count\s", re.IGNORECASE
)
"""How a query, an s-expression or a formula begins that counts."""

_LIKE_GOLD = re.compile(
    r"(?:gold_)?answers?(?:_(?:entit(?:y|ies)|mids?|ids?|names?|list))?|golds?|ground_?truth"
    r"|a_entity|targets?",
    re.IGNORECASE,
)
"""Names that the gold of other question sets has, such as that of RoG."""

_OTHER_KINDS = ("boolean", "count", "unanswerable")


def gold_kind(
    golds: GoldSets, boolean: bool | None, count: int | None, unanswerable: bool
) -> GoldKind | None:
    """Return which kind of gold a question has; None if it has none."""
    if unanswerable:
        return "unanswerable"
    if boolean is not None:
        return "boolean"
    if count is not None:
        return "count"
    return "answers" if golds else None


def gold_answers(row: Mapping[str, Any]) -> list[str]:
    """Return a record's gold answers: mids and texts of literals.

    An answer that is known by its name only is left out.

    Raises:
        TypeError: One is in none of the accepted forms.
    """
    return [text for answer in _answers(row) if (text := _answer(answer))]


def parse_answers(parse: Mapping[str, Any]) -> list[str]:
    """Return the gold answers of a WebQSP parse.

    Raises:
        TypeError: They are not as in the official files.
    """
    try:
        answers = [answer["AnswerArgument"] for answer in parse["Answers"]]
    except (KeyError, TypeError):
        raise TypeError('the "Answers" of a parse are not as in the official files') from None
    if not all(isinstance(answer, str) for answer in answers):
        raise TypeError('an "AnswerArgument" is not a text')
    return answers


def gold_sets(row: Mapping[str, Any]) -> GoldSets:
    """Return the gold sets: the answers, or for WebQSP those of each parse that counts.

    Raises:
        TypeError: An answer is in none of the accepted forms.
    """
    if "parses" in row:
        return tuple(tuple(sorted(parse_answers(parse))) for parse in scored_parses(row))
    answers = tuple(sorted(set(gold_answers(row))))
    return (answers,) if answers else ()


def gold_names(row: Mapping[str, Any]) -> GoldSets:
    """Return the names of the gold sets; none if no entity has one.

    Raises:
        TypeError: An answer is in none of the accepted forms.
    """
    if "parses" in row:
        sets = [
            [(each["AnswerArgument"], each.get("EntityName")) for each in parse["Answers"]]
            for parse in scored_parses(row)
        ]
    else:
        answers = [(_answer(each), each) for each in _answers(row)]
        named = [
            (t, each.get("name") if isinstance(each, Mapping) else None) for t, each in answers
        ]
        sets = [[(text, name) for text, name in named if text]] if any(t for t, _ in named) else []
    entities = [name for one in sets for text, name in one if is_mid(text)]
    if entities and not any(entities):
        return ()
    return tuple(tuple(sorted({str(name or text) for text, name in one})) for one in sets)


def gold_boolean(row: Mapping[str, Any]) -> bool | None:
    """Return the gold answer to a yes/no question; None for other questions.

    Raises:
        TypeError: It is neither true nor false.
    """
    boolean = row.get("boolean")
    if not isinstance(boolean, bool | None):
        raise TypeError('"boolean" is neither true nor false')
    return boolean


def gold_count(row: Mapping[str, Any]) -> int | None:
    """Return the gold answer to "how many?"; None for other questions.

    Raises:
        TypeError: It is not a number of things.
    """
    count = row.get("count")
    if count is None and _is_marked_as_count(row):
        given = [str(_answer(each) or each.get("name")) for each in _answers(row)]
        return int(given[0]) if len(given) == 1 and given[0].isdecimal() else None
    if isinstance(count, bool) or not isinstance(count, int | None) or (count or 0) < 0:
        raise TypeError('"count" is not a whole number from 0 on')
    return count


def is_unanswerable(row: Mapping[str, Any]) -> bool:
    """Return whether a record says that the question cannot be answered.

    Raises:
        TypeError: It is neither true nor false, or the record has an answer nevertheless.
    """
    unanswerable = row.get("unanswerable")
    if not isinstance(unanswerable, bool | None):
        raise TypeError('"unanswerable" is neither true nor false')
    others = (_answers(row) or None, row.get("boolean"), row.get("count"))
    if unanswerable and any(other is not None for other in others):
        raise TypeError('the question is "unanswerable" and has an answer')
    return bool(unanswerable)


def names_other_kinds(row: Mapping[str, Any]) -> bool:
    """Return whether a record has a field of another kind of gold than answers, even if unset.

    The literals of such records are compared by value, those of other records by their text.
    """
    return any(field in row for field in _OTHER_KINDS)


def unread_gold(row: Mapping[str, Any]) -> str | None:
    """Return the field of a record that is not read and seems to hold its gold."""
    named = (name for name, value in row.items() if value not in (None, "", [], {}))
    return next((n for n in named if n != "answers" and _LIKE_GOLD.fullmatch(n)), None)


def _is_marked_as_count(row: Mapping[str, Any]) -> bool:
    if row.get("function") == "count":
        return True
    forms = (row.get(field) for field in ("sparql", "s_expression", "formula"))
    return any(isinstance(form, str) and _COUNTS.match(form) for form in forms)


def _answers(row: Mapping[str, Any]) -> list[Any]:
    found = row.get("answers")
    if not isinstance(found, list | None):
        raise TypeError('"answers" is not a list')
    return found or []


def _answer(answer: object) -> str | None:
    """Read a gold answer: a mid, a number, a date, or a record with a mid or a literal's text."""
    value = answer
    if isinstance(answer, Mapping):
        if "arg" not in answer and "name" not in answer:
            raise TypeError(f'the answer {answer!r} has no "arg"')
        value = answer.get("arg")
    elif isinstance(answer, str) and not is_mid(answer) and not _NUMBER_OR_DATE.fullmatch(answer):
        raise TypeError(
            f"the answer {answer!r} looks like a name, and answers are compared by id. Write "
            f'{{"arg": "m.…", "name": {json.dumps(answer, ensure_ascii=False)}}} with its mid '
            f'(kbqa entities finds it), or for a literal {{"arg": "its text"}}'
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str | None) or (value is None and answer is None):
        raise TypeError(f"the answer {answer!r} is neither a mid nor a literal")
    return value
