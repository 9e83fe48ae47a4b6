"""Read question sets as questions with their gold queries and topics."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.engine.questions.conversion import Unconverted, convert_queries
from kbqa.sparql.crp import Entity
from kbqa.sparql.forms import render_crp
from kbqa.training.data.gold_topics import gold_topics
from kbqa.training.data.split_hygiene import parent_id, read_scored_sets
from kbqa.training.data.training_set import (
    Example,
    ExampleKey,
    ExampleSet,
    data_file,
    kept_rows,
    source_name,
)


class Queries(NamedTuple):
    """Questions with gold queries.

    Attributes:
        gathered: The questions; the target of each is its query as a CRP by mids, in kbqa's form.
        topics: Its topic entities.
    """

    gathered: ExampleSet
    topics: dict[ExampleKey, tuple[Entity, ...]]


def read_queries(paths: Sequence[Path], scored: Sequence[Path]) -> Queries:
    """Read question sets with SPARQL: ours, or official files.

    Args:
        paths: The question sets.
        scored: Test sets. Their questions are left out, and so are questions that one of theirs
            was made from, or that were made from one of theirs.

    Raises:
        InputError: A file is missing or unreadable.
    """
    scored_sets = read_scored_sets(scored)
    gathered = ExampleSet(scored=[data_file(path) for path in scored])
    topics: dict[ExampleKey, tuple[Entity, ...]] = {}
    for path in paths:
        source = source_name(path)
        kept = list(kept_rows(path, source, scored_sets, gathered))
        converted = convert_queries(query for one in kept if (query := _query(one.row)))
        for one in kept:
            crp = converted.get(_query(one.row), Unconverted("no SPARQL"))
            if isinstance(crp, Unconverted):
                gathered.skip(source, one.id, crp.reason)
                continue
            parent = parent_id(one.row) or ""
            gathered.add(Example(one.id, one.question, render_crp(crp), source, parent))
            topics[source, one.id] = gold_topics(one.row, crp)
        gathered.files.append(data_file(path))
    return Queries(gathered, topics)


def _query(row: Mapping[str, Any]) -> str:
    return query if isinstance(query := row.get("sparql"), str) else ""
