"""Read question sets, in our form or in that of the official files, and draw samples of them."""

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbqa.engine.official_questions import read_question_rows, scored_parses
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError


@dataclass(frozen=True, slots=True)
class Question:
    """A question with what its set says about it.

    Attributes:
        id: Unique in its set.
        text: The question.
        topics: Its gold entities, which only evaluation with gold entities uses.
        golds: Gold answer sets, of which any is right: WebQSP gives one a parse. Empty where the
            question has none, and is not scored.
        tier: The tier of evidence in the slice, where the set names one.
        type: How ComplexWebQuestions made it: its compositionality type.
        sparql: Its gold query; of a question with several parses, the first that counts.
    """

    id: str
    text: str
    topics: tuple[Entity, ...]
    golds: tuple[frozenset[str], ...]
    tier: str | None = None
    type: str | None = None
    sparql: str | None = None


def asked_questions(argument: str) -> Iterator[str]:
    """Yield the question of a command line; where it is ``-``, those of standard input, by line.

    Raises:
        InputError: The question is empty.
    """
    if argument == "-":
        for line in sys.stdin.buffer:
            if text := line.decode("utf-8", "replace").strip():
                yield text
    elif argument.strip():
        # Bytes that were no text in the user's locale come as lone surrogates.
        yield argument.encode("utf-8", "replace").decode("utf-8")
    else:
        raise InputError("the question is empty")


def read_questions(path: Path) -> list[Question]:
    """Read a question set.

    Raises:
        InputError: The file is missing, unreadable or empty, or a record is not a question or has
            the id of another; the message names the line.
    """
    questions: dict[str, Question] = {}
    for number, row in read_question_rows(path):
        question = _question(row, path, number)
        if question.id in questions:
            raise InputError(f"{path}, line {number}: there is a question {question.id!r} above")
        questions[question.id] = question
    if not questions:
        raise InputError(f"{path} holds no question")
    return list(questions.values())


def sample_questions(questions: Sequence[Question], size: int, seed: int) -> list[Question]:
    """Draw questions, in their order; the same for the same set, size and seed.

    Where there are no more than `size`, they are all drawn.
    """
    ids = sorted(question.id for question in questions)
    drawn = set(random.Random(seed).sample(ids, min(size, len(ids))))
    return [question for question in questions if question.id in drawn]


def topic_entities(row: Mapping[str, Any]) -> tuple[Entity, ...]:
    """Collect a record's topic entities that have a mid.

    Raises:
        KeyError, TypeError, AttributeError: They are not records of entities.
    """
    return tuple(
        Entity(entity.get("name"), entity["mid"])
        for entity in row.get("topic_entities") or ()
        if entity.get("mid")
    )


def _question(row: Mapping[str, Any], path: Path, number: int) -> Question:
    try:
        text = row["question"]
        if not isinstance(text, str):
            raise TypeError("the question is a text")
        return Question(
            id=str(row.get("id", number)),
            text=text,
            topics=topic_entities(row),
            golds=_golds(row),
            tier=_text(row, "evidence"),
            type=_text(row, "compositionality_type"),
            sparql=_text(row, "sparql"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}, line {number}: not a question record ({error!r}). "
            'Expected {"id", "question", "topic_entities", "answers"}.'
        ) from None


def _text(row: Mapping[str, Any], field: str) -> str | None:
    """Take a text that a record may have; None where it is missing or empty."""
    text = row.get(field)
    if not isinstance(text, str | None):
        raise TypeError(f"its {field} is a text")
    return text or None


def _golds(row: Mapping[str, Any]) -> tuple[frozenset[str], ...]:
    """Collect the gold sets: the answers, or for WebQSP those of each parse that counts."""
    if "parses" in row:
        return tuple(
            frozenset(answer["AnswerArgument"] for answer in parse["Answers"])
            for parse in scored_parses(row)
        )
    answers = frozenset(a["arg"] for a in row.get("answers") or () if a.get("arg"))
    return (answers,) if answers else ()
