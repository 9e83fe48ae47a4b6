"""Measure entity linking: is a topic entity of the question among the first that are found?

    python tools/score_linking.py --store slice webqsp.test-half.jsonl.gz cwq.test-half.jsonl.gz
    python tools/score_linking.py --store slice --rows 2000 simplequestions.valid.jsonl.gz

Linking gets the text of the question alone. A question counts as linked right where any of its
topic entities is found (of a CWQ row without them, any entity of its query). SimpleQuestions rows
count where the graph has a name for the subject, and of these the first `--rows`.

The baseline takes every run of words that is a name: the longest first, without counting function
words, and of those equally long the best known entity first, as the name index orders them.
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
from shares import share_with_interval

from kbqa.engine.embedder import Embedder
from kbqa.engine.json_lines import read_rows
from kbqa.engine.linker import LinkedEntity, Linker
from kbqa.engine.linking_model import SHIPPED_MODEL, LinkingModel
from kbqa.engine.question_mentions import FUNCTION_WORDS, tokenise
from kbqa.kb.entity_search import Names, open_names
from kbqa.kb.graph import Graph
from kbqa.kb.names import standing
from kbqa.kb.select_graph import open_graph
from kbqa.sparql.errors import InputError
from kbqa.training.linking_examples import LinkingExample, linking_example

_KEPT = 5

Link = Callable[[str], Sequence[LinkedEntity]]


def link_by_popularity(question: str, names: Names) -> list[LinkedEntity]:
    """Link as a baseline: the longest exact name first, of its bearers the best known."""
    words = [token.text for token in tokenise(question)]
    found = []
    for span in names.match_spans(words):
        mention = words[span.start : span.end]
        telling = sum(word.lower() not in FUNCTION_WORDS for word in mention)
        found += [(telling, match, " ".join(mention)) for match in span.matches if telling]
    best: dict[str, LinkedEntity] = {}
    for _, match, mentioned in sorted(
        found, key=lambda one: (-one[0], -standing(one[1].popularity, one[1].is_alias))
    ):
        best.setdefault(match.mid, LinkedEntity(match.mid, match.name, mentioned, 0.0))
    return list(best.values())


class Outcome(NamedTuple):
    """What linking found for one question: the topic's place among the first, and the time."""

    place: int | None
    milliseconds: float


def measure(link: Link, examples: Sequence[LinkingExample]) -> Iterator[Outcome]:
    """Link each question, and find the first topic among the first few entities."""
    for example in examples:
        begun = time.perf_counter()
        linked = link(example.question)[:_KEPT]
        milliseconds = (time.perf_counter() - begun) * 1000
        places = (place for place, e in enumerate(linked, 1) if e.mid in example.topics)
        yield Outcome(next(places, None), milliseconds)


def read_examples(path: Path, graph: Graph, rows: int | None) -> list[LinkingExample]:
    """Read the questions of a file that have a topic; of SimpleQuestions those that name it."""
    source = path.name.split(".jsonl")[0]
    rows_that_count = (
        row for _, row in read_rows(path) if "subject" not in row or graph.labels([row["subject"]])
    )
    examples = (linking_example(row, source) for row in rows_that_count)
    found = list(islice((example for example in examples if example is not None), rows))
    if not found:
        raise InputError(f"no question of {path} has a topic entity that the graph names")
    return found


@click.command(help=__doc__)
@click.argument(
    "files", type=click.Path(path_type=Path, exists=True, dir_okay=False), nargs=-1, required=True
)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option("--rows", type=click.IntRange(1), help="Take so many questions of a file at most.")
@click.option(
    "--model",
    "model_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=SHIPPED_MODEL,
    help="Linking model instead of the shipped one.",
)
@click.option("--embedder", "embeds", is_flag=True, help="Let all-MiniLM-L6-v2 help to rank.")
@click.option(
    "--misses",
    type=click.File("w", encoding="utf-8", lazy=False),
    metavar="OUT.jsonl",
    help="Where to list the questions whose first entity is none of the topics.",
)
def main(
    files: Sequence[Path],
    store: Path,
    rows: int | None,
    model_file: Path,
    embeds: bool,
    misses: TextIO | None,
) -> None:
    """Measure the linker and the baseline on each file and print a table."""
    click.echo("| questions | linker | n | recall@1 | recall@5 | median ms | p95 ms |")
    click.echo("|---|---|---|---|---|---|---|")
    with closing(open_graph(store)) as graph, closing(open_names(graph)) as names:
        embedder = Embedder.load() if embeds else None
        linker = Linker(graph, names, LinkingModel.load(model_file), embedder)
        for file in files:
            examples = read_examples(file, graph, rows)
            name = file.name.split(".jsonl")[0]
            baseline = measure(lambda text: link_by_popularity(text, names), examples)
            click.echo(_line(name, "longest name, best known", list(baseline)))
            outcomes = list(measure(lambda text: linker.link(text, _KEPT), examples))
            click.echo(_line(name, "kbqa, embedder" if embeds else "kbqa", outcomes))
            for example, outcome in zip(examples, outcomes, strict=True):
                if misses is not None and outcome.place != 1:
                    _write_miss(misses, example, outcome, linker, graph)
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


def _write_miss(
    file: TextIO, example: LinkingExample, outcome: Outcome, linker: Linker, graph: Graph
) -> None:
    labels = graph.labels(example.topics)
    record = {
        "questions": example.source,
        "question": example.question,
        "topics": {mid: labels.get(mid) for mid in sorted(example.topics)},
        "place": outcome.place,
        "candidates": [entity.to_dict() for entity in linker.link(example.question, _KEPT)],
    }
    file.write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
