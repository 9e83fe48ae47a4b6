"""Measure extraction: are a question's gold answers among the nodes around its topics?

    python -m tools.retrieval.coverage --store slice --questions cwq.jsonl \
        --caps "" --caps frontier=100 --caps frontier=100,triples=3000 [--linked]

Prints a row for each --caps, which changes some of the default caps. Only questions of the tiers
independent and annotated count, if the set has tiers. The topics are the gold entities, or with
--linked those that the methods start from.

*Coverage* is the share of a question's gold answers that are nodes of its subgraph (for WebQSP, of
the parse with the most), and *any* the share of questions with at least one of them: ceilings of
whatever reads the subgraph. Means have 95 % bootstrap intervals. Sizes and times are the median and
the 95th percentile. CPU time depends less on what else the machine does. Linking is not in the
times. *Cut* is the share of questions of which something was left out.
"""

import json
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple, TextIO

import click
from tqdm import tqdm

from kbqa.engine.answer import term_text
from kbqa.engine.evaluation.scores import bootstrap_mean, score
from kbqa.engine.linking.linker import Linker, starting_topics
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.retrieval.subgraphs import Caps, Cut, extract
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import open_names
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.errors import InputError
from tools.bench.measured_run import machine

_TIERS = ("independent", "annotated")


class Extracted(NamedTuple):
    """The subgraph of a question.

    Attributes:
        id: The question's.
        tier: The tier of its evidence, if the set has tiers.
        coverage: The share of its gold answers that are nodes.
        triples: How many the subgraph has.
        nodes: How many it has.
        ms: Time of extraction.
        cpu_ms: Time that the processor worked for it.
        cut: What was left out.
    """

    id: str
    tier: str | None
    coverage: float
    triples: int
    nodes: int
    ms: float
    cpu_ms: float
    cut: Cut


def read_caps(text: str) -> Caps:
    """Change the default caps by a text such as ``frontier=100,triples=3000``.

    Raises:
        InputError: It has another form, or no cap has the name.
    """
    caps = Caps()
    for change in filter(None, text.split(",")):
        name, _, number = change.partition("=")
        if name not in asdict(caps) or not number.isdigit():
            names = ", ".join(asdict(caps))
            raise InputError(f"--caps {change}: write name=number; the names are {names}")
        caps = replace(caps, **{name: int(number)})
    return caps


def measure(
    question: Question, topics: Sequence[str], graph: Graph, schema: GraphSchema, caps: Caps
) -> Extracted:
    """Extract the subgraph of a question, and look for its answers."""
    started, cpu_started = time.perf_counter(), time.process_time()
    found = extract(graph, schema, topics, caps)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    texts = [term_text(node) for node in found.nodes]
    return Extracted(
        id=question.id,
        tier=question.tier,
        coverage=max(score(texts, gold).recall for gold in question.golds),
        triples=len(found.heads),
        nodes=len(found.nodes),
        ms=1000 * seconds,
        cpu_ms=1000 * cpu_s,
        cut=found.cut,
    )


@click.command(help=__doc__)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option(
    "--questions",
    "question_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    metavar="FILE",
)
@click.option("--caps", "changes", multiple=True, default=[""], metavar="NAME=NUMBER,…")
@click.option("--linked", is_flag=True, help="Link the topics instead of taking the gold ones.")
@click.option("--output", type=click.File("w", encoding="utf-8"), metavar="OUT.jsonl")
def main(
    store: Path, question_file: Path, changes: Sequence[str], linked: bool, output: TextIO | None
) -> None:
    """Print the table."""
    curve = [read_caps(each) for each in changes]
    asked = [each for each in read_questions(question_file) if each.tier in (None, *_TIERS)]
    questions = [each for each in asked if each.golds]
    if not questions:
        raise InputError(f"{question_file} has no question with gold answers and evidence")
    with closing(open_graph(store)) as graph:
        topics = {each.id: _gold_topics(each) for each in questions}
        if linked:
            topics = _linked_topics(questions, graph)
        schema = GraphSchema(graph)
        extract(graph, schema, topics[questions[0].id])  # imports what is not imported yet
        click.echo(
            f"{machine()}\n\n| caps | n | coverage | {' | '.join(_TIERS)} | any | triples | nodes "
            f"| ms | CPU ms | cut |\n{'|---' * 11}|"
        )
        for caps in curve:
            rows = [
                measure(each, topics[each.id], graph, schema, caps)
                for each in tqdm(questions, unit="question", disable=None)
            ]
            click.echo(_row(caps, rows))
            if output is not None:
                for row in rows:
                    record = row._asdict() | {"caps": asdict(caps), "cut": asdict(row.cut)}
                    output.write(json.dumps(record) + "\n")


def _gold_topics(question: Question) -> list[str]:
    return [topic.mid for topic in question.topics if topic.mid is not None]


def _linked_topics(questions: Sequence[Question], graph: Graph) -> dict[str, list[str]]:
    with closing(open_names(graph)) as names:
        linker = Linker(graph, names)
        found = {each.id: starting_topics((), linker.link(each.text)) for each in questions}
    return {id_: [topic.mid for topic in topics if topic.mid] for id_, topics in found.items()}


def _row(caps: Caps, rows: Sequence[Extracted]) -> str:
    tiers = [[row.coverage for row in rows if row.tier == tier] for tier in _TIERS]
    spreads: list[list[int] | list[float]] = [
        [row.triples for row in rows],
        [row.nodes for row in rows],
        [row.ms for row in rows],
        [row.cpu_ms for row in rows],
    ]
    cells = [
        ", ".join(f"{name} {value}" for name, value in asdict(caps).items()),
        str(len(rows)),
        str(bootstrap_mean([row.coverage for row in rows])),
        *(f"{bootstrap_mean(each)} ({len(each)})" if each else "–" for each in tiers),
        str(bootstrap_mean([float(row.coverage > 0) for row in rows])),
        *map(_spread, spreads),
        f"{sum(row.cut != Cut() for row in rows) / len(rows):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _spread(values: Sequence[float]) -> str:
    """Write the median and the 95th percentile."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.0f}, {ordered[round(0.95 * (len(ordered) - 1))]:.0f}"


if __name__ == "__main__":
    main()
