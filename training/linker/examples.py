"""Read question sets for entity linking: questions and their topic entities."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbqa.engine.questions.official import read_question_rows
from kbqa.engine.questions.question_sets import topic_entities
from kbqa.sparql.errors import KbqaError
from kbqa.sparql.queries.mentions import query_mentions


@dataclass(frozen=True, slots=True)
class LinkingExample:
    """A question with its topic entities.

    Attributes:
        source: Its question set.
        question: The question.
        topics: Mids of its topic entities, at least one.
        relations: Relations of its query; empty if it has none.
    """

    source: str
    question: str
    topics: frozenset[str]
    relations: tuple[str, ...]


def read_linking_examples(path: Path) -> Iterator[LinkingExample]:
    """Read a question set, without rows that have no topic or that are marked `test_parent`.

    Raises:
        InputError: The file is missing, or a line of it is not a JSON object.
    """
    source = path.name.split(".jsonl")[0]
    for _, row in read_question_rows(path):
        if not row.get("test_parent") and (example := linking_example(row, source)) is not None:
            yield example


def linking_example(row: Mapping[str, Any], source: str) -> LinkingExample | None:
    """Read a row of WebQSP, CWQ or SimpleQuestions; None if it has no topic.

    Rows of CWQ name no topic, so any entity of the query counts as one.
    """
    topics = {entity.mid for entity in topic_entities(row)}
    relations: tuple[str, ...] = ()
    parses = row.get("parses")
    if sparql := row.get("sparql") or (parses and parses[0]["Sparql"]):
        with suppress(KbqaError):
            mentioned = query_mentions(sparql)
            topics = topics or set(mentioned.entities)
            relations = tuple(sorted(mentioned.relations))
    mids = frozenset(topic for topic in topics if topic is not None)
    return LinkingExample(source, row["question"], mids, relations) if mids else None
