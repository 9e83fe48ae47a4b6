"""Count what a set of training examples is made of, and what of a test set's relations it holds."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbqa.engine.official_questions import read_question_rows
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import InputError
from kbqa.sparql.mentions import query_mentions
from kbqa.sparql.text import read_crp
from kbqa.training.data import Example

_CONSTRAINTS = ("entity", "numeric", "string", "superlative")


@dataclass(frozen=True, slots=True)
class ExampleStatistics:
    """What examples are made of.

    Attributes:
        n: How many they are.
        sources: How many are from each question set.
        hops: How many have a main path of so many hops.
        constraints: How many have a constraint of each kind, at any depth, or a superlative.
        unconstrained: How many have none of them.
        relations: The relations in them.
    """

    n: int
    sources: Mapping[str, int]
    hops: Mapping[int, int]
    constraints: Mapping[str, int]
    unconstrained: int
    relations: frozenset[str]


@dataclass(frozen=True, slots=True)
class RelationCoverage:
    """How much of a test set's relations can be known from training.

    A relation counts once for each question whose gold query has it.

    Attributes:
        name: The test set's file.
        questions: Its questions with a gold query that can be read.
        whole_questions: Those of which every relation is known.
        occurrences: Relations, once for each question.
        known_occurrences: Those that are known.
    """

    name: str
    questions: int
    whole_questions: int
    occurrences: int
    known_occurrences: int


def describe_examples(examples: Iterable[Example]) -> ExampleStatistics:
    """Count what examples are made of, by their targets."""
    sources: Counter[str] = Counter()
    hops: Counter[int] = Counter()
    constraints: Counter[str] = Counter()
    unconstrained = 0
    relations: set[str] = set()
    for example in examples:
        crp = read_crp(example.target).crp
        kinds = _kinds(crp)
        sources[example.source] += 1
        hops[len(crp.path)] += 1
        constraints.update(kinds)
        unconstrained += not kinds
        relations.update(crp.relations())
    n = sources.total()
    return ExampleStatistics(n, sources, hops, constraints, unconstrained, frozenset(relations))


def cover_relations(known: frozenset[str], path: Path) -> RelationCoverage:
    """Count how many of the relations in a question set's gold queries are known.

    Raises:
        InputError: The file is missing, or not a question set.
    """
    needed = [relations for _, row in read_question_rows(path) if (relations := _needed(row))]
    return RelationCoverage(
        name=path.name,
        questions=len(needed),
        whole_questions=sum(relations <= known for relations in needed),
        occurrences=sum(map(len, needed)),
        known_occurrences=sum(len(relations & known) for relations in needed),
    )


def statistics_lines(
    statistics: ExampleStatistics, coverages: Iterable[RelationCoverage] = ()
) -> Iterator[str]:
    """Write the counts as tables in Markdown, for the model card and the terminal."""
    yield "| examples | n | share |"
    yield "|---|---|---|"
    yield f"| all | {statistics.n:,} | |"
    counts = {f"from {name}": n for name, n in sorted(statistics.sources.items())}
    for hops, n in sorted(statistics.hops.items()):
        counts[f"main path of {hops} hop{'' if hops == 1 else 's'}"] = n
    for kind in _CONSTRAINTS:
        counts[f"with {kind} constraint" if kind != "superlative" else "with superlative"] = (
            statistics.constraints.get(kind, 0)
        )
    counts["with none of these"] = statistics.unconstrained
    for what, n in counts.items():
        yield f"| {what} | {n:,} | {_share(n, statistics.n)} |"
    yield ""
    yield f"{len(statistics.relations):,} distinct relations."
    tables = [
        f"| {one.name} | {one.questions:,}"
        f" | {one.known_occurrences:,} of {one.occurrences:,}"
        f" | {_share(one.known_occurrences, one.occurrences)}"
        f" | {one.whole_questions:,} | {_share(one.whole_questions, one.questions)} |"
        for one in coverages
    ]
    if tables:
        yield ""
        yield "| test set | questions | its relations known | share | questions all known | share |"
        yield "|---|---|---|---|---|---|"
        yield from tables


def _kinds(crp: Crp) -> set[str]:
    kinds: set[str] = {constraint.kind for constraint in crp.all_constraints()}
    return kinds | {"superlative"} if crp.order is not None else kinds


def _needed(row: Mapping[str, Any]) -> frozenset[str]:
    """Collect the relations of a row's gold query; none where it cannot be read."""
    try:
        if row.get("sparql"):
            return query_mentions(row["sparql"]).relations
        return frozenset(read_crp(row["crp_routerkgqa"]).crp.relations())
    except (InputError, AttributeError, KeyError, TypeError):
        return frozenset()


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"
