"""Read question sets, in our form or that of the official files, and draw samples from them."""

import json
import random
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbqa.engine.questions.official import read_question_rows, scored_parses
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import is_mid

_TOPICS, _ANSWERS = '"topic_entities": [{"mid", "name"}]', '"answers": [{"arg", "name"}]'
_FORM = f'{{"id", "question", {_TOPICS}, {_ANSWERS}, "sparql"}}'
_NUMBER_OR_DATE = re.compile(
    r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
    r"|-?\d{4}-\d\d(?:-\d\d(?:T[\d:.]+)?)?(?:Z|[+-]\d\d:\d\d)?"
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold data.

    Attributes:
        id: Unique in its set.
        text: The question.
        topics: Its gold entities; only evaluation with gold entities uses them.
        golds: Alternative sets of gold answers, sorted; WebQSP has one for each parse and may list
            an answer twice. Empty if the question has none; it is not scored then.
        tier: The tier of evidence in the slice, if the set has tiers.
        type: The compositionality type, in ComplexWebQuestions.
        sparql: Its gold query; for several parses, that of the first that counts.
        gold_names: The names of each of `golds`, sorted: of an entity its name, or its mid if the
            set does not name it; of a literal its text. Empty if no entity is named.
    """

    id: str
    text: str
    topics: tuple[Entity, ...]
    golds: tuple[Collection[str], ...]
    tier: str | None = None
    type: str | None = None
    sparql: str | None = None
    gold_names: tuple[Collection[str], ...] = ()


def asked_questions(argument: str) -> Iterator[str]:
    """Yield the question of a command line, or for ``-`` the lines of standard input.

    Raises:
        InputError: The question is empty.
    """
    if argument == "-":
        for line in sys.stdin.buffer:
            if text := line.decode("utf-8", "replace").strip():
                yield text
    elif argument.strip():
        yield _typed(argument)
    else:
        raise InputError("the question is empty")


def read_questions(path: Path) -> list[Question]:
    """Read a question set.

    Raises:
        InputError: The file is missing, unreadable or empty, or a record is not a question or has
            the id of an earlier one; the message gives the line.
    """
    questions: dict[str, Question] = {}
    for number, row in read_question_rows(path):
        question = _question(row, path, number)
        if question.id in questions:
            raise InputError(
                f"{path}, line {number}: an earlier question also has the id {question.id!r}"
            )
        questions[question.id] = question
    if not questions:
        raise InputError(f"{path} has no questions")
    return list(questions.values())


def sample_questions(questions: Sequence[Question], size: int, seed: int) -> list[Question]:
    """Draw questions and keep their order; the same for the same set, size and seed.

    A set of at most `size` questions is drawn whole.
    """
    ids = sorted(question.id for question in questions)
    drawn = set(random.Random(seed).sample(ids, min(size, len(ids))))
    return [question for question in questions if question.id in drawn]


def topic_entities(row: Mapping[str, Any]) -> tuple[Entity, ...]:
    """Return a record's topic entities that have a mid.

    Raises:
        TypeError: One is neither a mid nor a record with a mid.
    """
    found = (_topic(entity) for entity in _list(row, "topic_entities"))
    return tuple(entity for entity in found if entity is not None)


def gold_answers(row: Mapping[str, Any]) -> list[str]:
    """Return a record's gold answers: mids and texts of literals.

    Raises:
        TypeError: One is in none of the accepted forms.
    """
    return [text for answer in _list(row, "answers") if (text := _answer(answer))]


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


def record_problem(error: KeyError | TypeError | AttributeError) -> str:
    """Describe why a record is not a question, from the error that reading it raised."""
    problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return f"not a question record: {problem}. Expected {_FORM}"


def _typed(argument: str) -> str:
    """Return an argument as it was typed.

    In a locale without UTF-8, its bytes arrive as surrogates.
    """
    try:
        return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # Other surrogates, which no terminal sends.
        return argument.encode("utf-8", "replace").decode("utf-8")


def _question(row: Mapping[str, Any], path: Path, number: int) -> Question:
    try:
        text, id_ = row["question"], row.get("id")
        if not isinstance(text, str):
            raise TypeError('"question" is not a text')
        if isinstance(id_, bool) or not isinstance(id_, str | int | None):
            raise TypeError('"id" is neither a text nor a number')
        return Question(
            id=str(number if id_ is None else id_),
            text=text,
            topics=topic_entities(row),
            golds=_golds(row),
            tier=_text(row, "evidence"),
            type=_text(row, "compositionality_type"),
            sparql=_text(row, "sparql"),
            gold_names=_gold_names(row),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}, line {number}: {record_problem(error)}") from None


def _text(row: Mapping[str, Any], field: str) -> str | None:
    """Return an optional text of a record; None if it is missing or empty."""
    text = row.get(field)
    if not isinstance(text, str | None):
        raise TypeError(f'"{field}" is not a text')
    return text or None


def _list(row: Mapping[str, Any], field: str) -> list[Any]:
    found = row.get(field)
    if not isinstance(found, list | None):
        raise TypeError(f'"{field}" is not a list')
    return found or []


def _golds(row: Mapping[str, Any]) -> tuple[Collection[str], ...]:
    """Return the gold sets: the answers, or for WebQSP those of each parse that counts."""
    if "parses" in row:
        return tuple(tuple(sorted(parse_answers(parse))) for parse in scored_parses(row))
    answers = tuple(sorted(set(gold_answers(row))))
    return (answers,) if answers else ()


def _gold_names(row: Mapping[str, Any]) -> tuple[Collection[str], ...]:
    """Return the names of the gold sets; none if no entity has one."""
    if "parses" in row:
        sets = [
            [(each["AnswerArgument"], each.get("EntityName")) for each in parse["Answers"]]
            for parse in scored_parses(row)
        ]
    else:
        answers = [(_answer(each), each) for each in _list(row, "answers")]
        named = [
            (t, each.get("name") if isinstance(each, Mapping) else None) for t, each in answers
        ]
        sets = [[(text, name) for text, name in named if text]] if any(t for t, _ in named) else []
    entities = [name for one in sets for text, name in one if is_mid(text)]
    if entities and not any(entities):
        return ()
    return tuple(tuple(sorted({str(name or text) for text, name in one})) for one in sets)


def _topic(entity: object) -> Entity | None:
    """Read a topic entity: a mid, or a record that may lack one."""
    if isinstance(entity, str) and is_mid(entity):
        return Entity(mid=entity)
    if not isinstance(entity, Mapping):
        raise TypeError(f'the topic entity {entity!r} is neither a mid nor {{"mid", "name"}}')
    mid, name = entity.get("mid"), entity.get("name")
    if not isinstance(mid, str | None) or not isinstance(name, str | None):
        raise TypeError(f'the "mid" or "name" of the topic entity {entity!r} is not a text')
    return Entity(name, mid) if mid else None


def _answer(answer: object) -> str | None:
    """Read a gold answer: a mid, a number, a date, or a record with a mid or a literal's text."""
    value = answer
    if isinstance(answer, Mapping):
        if "arg" not in answer:
            raise TypeError(f'the answer {answer!r} has no "arg"')
        value = answer["arg"]
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
