"""Measure entity linking: is a topic entity of the question among the first that are found?

    python -m tools.score.linking --store slice webqsp.test-half.jsonl.gz cwq.test-half.jsonl.gz
    python -m tools.score.linking --store slice --rows 2000 simplequestions.valid.jsonl.gz

Linking gets only the text of the question. A question is right if any of its topic entities is
found (for a CWQ row without them, any entity of its query). SimpleQuestions rows count only if the
graph has a name for the subject; the first `--rows` of them are used.

The baseline ranks every run of words that is a name: longest first, not counting function words,
then by how well known the entity is, as in the name index.
"""

import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TextIO

import click

from kbqa.engine.linking.linker import LinkedEntity, Linker
from kbqa.engine.linking.mentions import FUNCTION_WORDS, SHIPPED_MODEL, LinkingModel, tokenise
from kbqa.engine.questions.question_sets import read_question_rows
from kbqa.kb.graph import Graph
from kbqa.kb.names import Names, standing
from kbqa.kb.open import open_graph
from kbqa.sparql.errors import InputError
from tools.fit.linker import LinkingExample, linking_example
from tools.options import FILE, STORE
from tools.score.shared import share_with_interval

_KEPT = 5

Link = Callable[[str], Sequence[LinkedEntity]]


def link_by_popularity(question: str, names: Names) -> list[LinkedEntity]:
    """Link as a baseline: the longest exact name first, then the best known entity."""
    words = [token.text for token in tokenise(question)]
    found = []
    for span in names.match_spans(words):
        mention = words[span.start : span.end]
        content_words = sum(word.lower() not in FUNCTION_WORDS for word in mention)
        if content_words:
            found += [(content_words, match, " ".join(mention)) for match in span.matches]
    best: dict[str, LinkedEntity] = {}
    for _, match, mentioned in sorted(
        found, key=lambda one: (-one[0], -standing(one[1].popularity, one[1].is_alias))
    ):
        best.setdefault(match.mid, LinkedEntity(match.mid, match.name, mentioned, 0.0))
    return list(best.values())


class Outcome(NamedTuple):
    """The rank of the topic among the first entities, if it is there, and the time."""

    place: int | None
    milliseconds: float


def measure(link: Link, examples: Sequence[LinkingExample]) -> Iterator[Outcome]:
    """Link each question, and find the rank of its first topic."""
    for example in examples:
        begun = time.perf_counter()
        linked = link(example.question)[:_KEPT]
        milliseconds = (time.perf_counter() - begun) * 1000
        places = (place for place, e in enumerate(linked, 1) if e.mid in example.topics)
        yield Outcome(next(places, None), milliseconds)


def read_examples(path: Path, graph: Graph, rows: int | None) -> list[LinkingExample]:
    """Read the questions of a file that have a topic with a name in the graph."""
    source = path.name.split(".jsonl")[0]
    rows_that_count = (
        row
        for _, row in read_question_rows(path)
        if "subject" not in row or graph.labels([row["subject"]])
    )
    examples = (linking_example(row, source) for row in rows_that_count)
    found = list(islice((example for example in examples if example is not None), rows))
    if not found:
        raise InputError(f"no question of {path} has a topic entity with a name in the graph")
    return found


@click.command(help=__doc__)
@click.argument("files", type=FILE, nargs=-1, required=True)
@STORE
@click.option("--rows", type=click.IntRange(1), help="Maximum number of questions of a file.")
@click.option(
    "--model",
    "model_file",
    type=FILE,
    default=SHIPPED_MODEL,
    help="Linking model instead of the shipped one.",
)
@click.option(
    "--misses",
    type=click.File("w", encoding="utf-8", lazy=False),
    metavar="OUT.jsonl",
    help="Where to list the questions whose first entity is not a topic.",
)
def main(
    files: Sequence[Path],
    store: Path,
    rows: int | None,
    model_file: Path,
    misses: TextIO | None,
) -> None:
    """Measure the linker and the baseline on each file and print a table."""
    click.echo("| questions | linker | n | recall@1 | recall@5 | median ms | p95 ms |")
    click.echo("|---|---|---|---|---|---|---|")
    with closing(open_graph(store)) as graph, closing(graph.names()) as names:
        linker = Linker(graph, names, LinkingModel.load(model_file))
        for file in files:
            examples = read_examples(file, graph, rows)
            name = file.name.split(".jsonl")[0]
            baseline = measure(lambda text: link_by_popularity(text, names), examples)
            click.echo(_line(name, "longest name, best known", list(baseline)))
            outcomes = list(measure(lambda text: linker.link(text, _KEPT), examples))
            click.echo(_line(name, "kbqa", outcomes))
            for example, outcome in zip(examples, outcomes, strict=True):
                if misses is not None and outcome.place != 1:
                    labels = graph.labels(example.topics)
                    topics = {mid: labels.get(mid) for mid in sorted(example.topics)}
                    found = [each.to_dict() for each in linker.link(example.question, _KEPT)]
                    miss = {"questions": name, "question": example.question, "topics": topics}
                    miss |= {"place": outcome.place, "candidates": found}
                    misses.write(json.dumps(miss, ensure_ascii=False) + "\n")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    click.echo(f"\nPeak memory: {peak_mb:.0f} MB")


def _line(questions: str, linker: str, outcomes: Sequence[Outcome]) -> str:
    n = len(outcomes)
    at_1, at_5 = (
        share_with_interval(sum(o.place is not None and o.place <= k for o in outcomes), n)
        for k in (1, _KEPT)
    )
    times = sorted(outcome.milliseconds for outcome in outcomes)
    return (
        f"| {questions} | {linker} | {n} | {at_1} | {at_5} "
        f"| {statistics.median(times):.1f} | {times[int(0.95 * n)]:.1f} |"
    )


if __name__ == "__main__":
    main()
