"""Read question sets for entity linking: questions, and the entities that they are about."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbqa.engine.json_lines import read_rows
from kbqa.engine.questions import topic_entities
from kbqa.sparql.errors import KbqaError
from kbqa.sparql.mentions import query_mentions


@dataclass(frozen=True, slots=True)
class LinkingExample:
    """A question with the entities that it is about.

    Attributes:
        source: Its question set.
        question: The question.
        topics: Mids of its topic entities, one at least.
        relations: Relations of its query; empty where there is none.
    """

    source: str
    question: str
    topics: frozenset[str]
    relations: tuple[str, ...]


def read_linking_examples(path: Path) -> Iterator[LinkingExample]:
    """Read a question set, without rows that have no topic or are marked `test_parent`.

    Raises:
        InputError: The file is missing, or holds a line that is no JSON object.
    """
    source = path.name.split(".jsonl")[0]
    for _, row in read_rows(path):
        if not row.get("test_parent") and (example := linking_example(row, source)) is not None:
            yield example


def linking_example(row: Mapping[str, Any], source: str) -> LinkingExample | None:
    """Read a row of WebQSP, CWQ or SimpleQuestions; None where it tells no topic.

    CWQ's records name no topic: there it is any entity of the query.
    """
    if "subject" in row:
        return LinkingExample(
            source, row["question"], frozenset({row["subject"]}), (row["relation"],)
        )
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
