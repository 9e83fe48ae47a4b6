"""Measure what a question costs on an endpoint: requests and seconds, beside the embedded store.

    python -m tools.bench.endpoints STORE --questions FILE --beams FILE [--dump DUMP]...
        [--count 30] [--rounds 3]

The graphs are the store, an oxigraph server over it, and, if its dumps are given, a Virtuoso with
the same triples; or the servers that `--endpoint NAME URL` names, which run already. Questions are
asked in several ways: `suggesting` finds the relations that the small model is shown, `decoding`
has it write paths without them, constrained by the graph, `linking` finds the entities of a
question, `answering` runs the paths of `--beams`, and the others are methods that walk the graph,
by chance. Each question is asked on all graphs in turn, so that a busy machine slows all alike, and
once before, for what is only made once, such as its vector. Figures are per question, of its
fastest round; the ratio is of the sums.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest.mock import patch

import click

from kbqa.engine.engine import Engine
from kbqa.engine.linking.linker import Linker
from kbqa.engine.methods import Resources, make_method
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.retrieval.retriever import RelationSuggester
from kbqa.engine.writing.generate import (
    DEFAULT_ADAPTER,
    DEFAULT_BEAMS,
    Backend,
    Candidate,
    ModelChoice,
    Request,
    load_prompt_format,
    read_beams,
)
from kbqa.kb.graph import Graph
from kbqa.kb.layout import StoreLayout
from kbqa.kb.open import open_graph
from kbqa.kb.protocol import QuerySender
from tools.bench.measured_run import machine
from tools.graph_servers import oxigraph_server, virtuoso_server
from tools.options import FILE, FOLDER

WAYS = ("suggesting", "decoding", "linking", "answering", "bpc", "knowpath", "tog", "pog")
_STORE = "store"

Ask = Callable[[Question], object]
Beams = Mapping[str, Sequence[Candidate]]


class Cost(NamedTuple):
    """What one question took."""

    seconds: float  # in all
    requests: int  # to the endpoint
    waited_s: float  # from the first byte of a request to its decoded answer, all together


@click.command(help=__doc__)
@click.argument("store", type=FOLDER)
@click.option("--questions", type=FILE, required=True)
@click.option("--beams", type=FILE, required=True)
@click.option("--dump", "dumps", type=FILE, multiple=True)
@click.option("--endpoint", "endpoints", nargs=2, multiple=True, metavar="NAME URL")
@click.option("--backend", default="openvino", show_default=True, help="Runs the small model.")
@click.option("--way", "ways", multiple=True, default=WAYS)
@click.option("--count", default=30, show_default=True, type=click.IntRange(min=1))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=1, show_default=True)
def main(
    store: Path,
    questions: Path,
    beams: Path,
    dumps: Sequence[Path],
    endpoints: Sequence[tuple[str, str]],
    backend: Backend,
    ways: Sequence[str],
    count: int,
    rounds: int,
    seed: int,
) -> None:
    """Print the table."""
    with ExitStack() as servers:
        urls = dict(endpoints)
        if not urls:
            urls["oxigraph"] = servers.enter_context(oxigraph_server(StoreLayout(store).graph))
            if dumps:
                urls["Virtuoso"] = servers.enter_context(virtuoso_server(dumps))
        written = read_beams(beams)
        drawn = [each for each in read_questions(questions) if each.topics and each.id in written]
        drawn = Random(seed).sample(drawn, min(count, len(drawn)))
        click.echo(
            f"{machine()}; {len(drawn)} questions, {rounds} rounds\n\n"
            "| asked by | graph | requests | ms in requests | ms in all | against the store |\n"
            "|---|---|---|---|---|---|"
        )
        graphs = {_STORE: servers.enter_context(closing(open_graph(store)))}
        for name, url in urls.items():
            graphs[name] = servers.enter_context(closing(open_graph(endpoint=url)))
        for way in ways:
            asks = {name: _way(way, graph, written, backend) for name, graph in graphs.items()}
            _print_rows(way, _costs(asks, drawn, rounds))


def _way(way: str, graph: Graph, written: Beams, backend: Backend) -> Ask:
    if way == "suggesting":
        suggester = RelationSuggester(graph, load_prompt_format(DEFAULT_ADAPTER).relations)
        return lambda question: suggester.suggest(question.text, question.topics)
    if way == "decoding":
        model = ModelChoice(None, None, DEFAULT_BEAMS, "graph", backend).load(graph)
        return lambda question: model.generate([Request(question.text, question.topics)])
    resources = Resources(graph, chooser="random")
    if way == "linking":
        return lambda question: Linker(graph, resources.names).link(question.text)
    if way != "answering":
        engine = Engine.over(resources, make_method(resources, way, {}))
        return lambda question: engine.ask(question.text, question.topics)
    engine = Engine.over(resources, make_method(resources, "kbqa", {"judge": "confidence"}))
    return lambda question: engine.answer(
        replace(engine.prepare(question.text, question.topics), candidates=written[question.id])
    )


def _costs(
    asks: Mapping[str, Ask], questions: Sequence[Question], rounds: int
) -> dict[str, list[Cost]]:
    """Ask each question on all graphs, once for all that is only made once, then in rounds."""
    costs: dict[str, list[Cost]] = {name: [] for name in asks}
    with _counted_requests() as sent:
        for question in questions:
            for ask in asks.values():
                ask(question)
            best: dict[str, Cost] = {}
            for _ in range(rounds):
                for name, ask in asks.items():
                    sent.clear()
                    begun = time.perf_counter()
                    ask(question)
                    cost = Cost(time.perf_counter() - begun, len(sent), sum(sent))
                    best[name] = min(cost, best.get(name, cost))
            for name in asks:
                costs[name].append(best[name])
    return costs


@contextmanager
def _counted_requests() -> Iterator[list[float]]:
    """Keep the seconds of each request."""
    sent: list[float] = []
    post = QuerySender.post

    def counted(sender: QuerySender, query: str, timeout_s: float) -> object:
        begun = time.perf_counter()
        try:
            return post(sender, query, timeout_s)
        finally:
            sent.append(time.perf_counter() - begun)

    with patch.object(QuerySender, "post", counted):
        yield sent


def _print_rows(way: str, costs: Mapping[str, Sequence[Cost]]) -> None:
    base = sum(cost.seconds for cost in costs[_STORE])
    for name, each in costs.items():
        seconds = sum(cost.seconds for cost in each)
        requests = sum(cost.requests for cost in each) / len(each)
        waited_ms = 1000 * sum(cost.waited_s for cost in each) / len(each)
        ms = 1000 * seconds / len(each)
        figures = f"{requests:.1f} | {waited_ms:.1f} | {ms:.1f} | {seconds / base:.2f}"
        click.echo(f"| {way} | {name} | {figures} |")


if __name__ == "__main__":
    main()
