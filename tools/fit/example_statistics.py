"""Count what training examples contain, and how many relations of a test set they cover.

    python -m tools.fit.example_statistics --data webqsp.train.jsonl.gz --data cwq.dev.jsonl.gz \
        --demo-questions 800 --against webqsp.test-half.jsonl.gz

Reads the files as `kbqa train-crp` does, leaves out test questions and related ones as its
`--exclude` does, and prints the counts as tables in Markdown.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from kbqa.engine.questions.official import read_question_rows
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import read_crp
from kbqa.sparql.templates import query_mentions
from kbqa.training.data.targets import TargetForm
from kbqa.training.data.training_set import Example, load_examples

_CONSTRAINTS = ("entity", "numeric", "string", "superlative")


@dataclass(frozen=True, slots=True)
class ExampleStatistics:
    """Counts of training examples.

    Attributes:
        n: All examples.
        sources: Examples from each question set.
        hops: Examples by the number of hops of their main path.
        constraints: Examples with a constraint of each kind, at any depth, or a superlative.
        unconstrained: Examples with none of these.
        relations: The relations in the examples.
    """

    n: int
    sources: Mapping[str, int]
    hops: Mapping[int, int]
    constraints: Mapping[str, int]
    unconstrained: int
    relations: frozenset[str]


@dataclass(frozen=True, slots=True)
class RelationCoverage:
    """How many of a test set's relations occur in training.

    A relation counts once for each question whose gold query has it.

    Attributes:
        name: The test set's file.
        questions: Questions with a readable gold query.
        whole_questions: Questions of which every relation is known.
        occurrences: Relations, once for each question.
        known_occurrences: Known relations, once for each question.
    """

    name: str
    questions: int
    whole_questions: int
    occurrences: int
    known_occurrences: int


def describe_examples(examples: Iterable[Example]) -> ExampleStatistics:
    """Count examples by their targets."""
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
    """Write the counts as tables in Markdown."""
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
    """Return the relations of a row's gold query; none if it cannot be read."""
    try:
        if row.get("sparql"):
            return query_mentions(row["sparql"]).relations
        return frozenset(read_crp(row["crp_routerkgqa"]).crp.relations())
    except (InputError, AttributeError, KeyError, TypeError):
        return frozenset()


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", action="append", default=[], type=Path, metavar="FILE")
    parser.add_argument("--against", action="append", default=[], type=Path, metavar="TEST")
    parser.add_argument("--demo-questions", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--format", choices=get_args(TargetForm), default="routerkgqa")
    options = parser.parse_args()
    gathered = load_examples(
        options.data,
        demo_questions=options.demo_questions,
        seed=options.seed,
        form=options.format,
        scored=options.against,
    )
    statistics = describe_examples(gathered.examples)
    coverages = [cover_relations(statistics.relations, path) for path in options.against]
    print("\n".join(statistics_lines(statistics, coverages)))
    for reason, count in gathered.skipped.most_common():
        print(f"- left out {count:,}: {reason}")


if __name__ == "__main__":
    main()
