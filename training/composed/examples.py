"""Add composed questions to a training set."""

import random
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from kbqa.engine.questions.conversion import convert_queries
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Crp
from kbqa.training.composed.questions import Base, Composed, Composer
from kbqa.training.data.split_hygiene import ScoredSets, parent_id, read_scored_sets
from kbqa.training.data.targets import TargetForm, row_query, write_target
from kbqa.training.data.training_set import (
    COMPOSED_SOURCE,
    Example,
    ExampleSet,
    kept_rows,
    source_name,
)


def add_composed(
    gathered: ExampleSet,
    paths: Sequence[Path],
    graph: Graph,
    *,
    count: int,
    seed: int,
    form: TargetForm,
    scored: Sequence[Path],
) -> None:
    """Compose questions on a graph, half of them from those of question sets.

    Args:
        gathered: Gets the examples.
        paths: The question sets; rows without SPARQL are not used.
        graph: Has the facts and the schema.
        count: How many to add.
        seed: Decides which.
        form: The text form of the targets.
        scored: Test sets, whose questions and facts are left out.

    Raises:
        InputError: A file is missing or unreadable.
        GraphError: The graph does not answer.
    """
    scored_sets = read_scored_sets(scored)
    composer = Composer(graph, scored_sets.facts, seed)
    bases = [base for path in paths for base in _bases(path, scored_sets)]
    random.Random(seed).shuffle(bases)
    made = islice(_sayable(chain.from_iterable(map(composer.made_from, bases)), form), count // 2)
    examples = [*made]
    examples += islice(_sayable(composer.direct(), form), count - len(examples))
    for number, (composed, target) in enumerate(examples):
        row_id = f"{COMPOSED_SOURCE}-{number}"
        if reason := scored_sets.reason_against({"question": composed.question}):
            gathered.skip(COMPOSED_SOURCE, row_id, reason)
        else:
            gathered.add(Example(row_id, composed.question, target, COMPOSED_SOURCE, composed.base))


def _bases(path: Path, scored_sets: ScoredSets) -> Iterator[Base]:
    """Read the questions of a set that have a query, without counting those left out again."""
    kept = list(kept_rows(path, source_name(path), scored_sets, ExampleSet()))
    queries = [row_query(one.row) for one in kept]
    converted = convert_queries(filter(None, queries))
    for one, query in zip(kept, queries, strict=True):
        crp = converted.get(query)
        if isinstance(crp, Crp):
            yield Base(parent_id(one.row) or one.id, one.question, crp)


def _sayable(composed: Iterator[Composed], form: TargetForm) -> Iterator[tuple[Composed, str]]:
    for one in composed:
        target = write_target(one.crp, form)
        if isinstance(target, str):
            yield one, target
