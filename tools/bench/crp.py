"""Measure what CRPs cost: conversion, compilation, and running them in process or over HTTP.

    python -m tools.bench.crp --queries queries-half.jsonl.gz --graph graph.nt.gz [--limit 500]

Both options may be repeated. If a question set says which questions have their answers in the
graph, only these count.

The compiled queries run on the embedded store in this process, through the store's own `select` (a
process that can be killed), over Virtuoso's HTTP endpoint through one kept-alive connection, and
through kbqa's `SparqlEndpoint`. The ways take turns, each with all queries; the first round does
not count.
"""

import http.client
import json
import statistics
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pyoxigraph
from tqdm import tqdm

from kbqa.engine.files import read_rows
from kbqa.engine.running.run import choose_start
from kbqa.kb.graph import Graph
from kbqa.kb.layout import StoreLayout
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.open import open_graph
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import CrpConversionError
from tools.convert.fidelity import spread
from tools.graph_servers import MissingServer, virtuoso_server

IN_PROCESS = "in process"
KEPT_ALIVE = "Virtuoso, kept-alive HTTP"
BAR = 5.0


@click.command()
@click.option(
    "--queries", type=click.Path(exists=True, path_type=Path), required=True, multiple=True
)
@click.option(
    "--graph", "dumps", type=click.Path(exists=True, path_type=Path), required=True, multiple=True
)
@click.option("--limit", type=int, help="Only as many queries, spread over the files.")
@click.option("--rounds", default=3, show_default=True, help="Times that each query counts.")
def main(queries: Sequence[Path], dumps: Sequence[Path], limit: int | None, rounds: int) -> None:
    """Run the measurements and print them."""
    rows = [row for file in queries for _, row in read_rows(file) if _has_evidence(row)]
    crps = _convert([row["sparql"] for row in spread(rows, limit)])
    with ExitStack() as stack:
        store = Path(stack.enter_context(TemporaryDirectory())) / "store"
        load_freebase(dumps, store)
        embedded = open_graph(store)
        stack.callback(embedded.close)
        compiled = _compile(crps, embedded)
        try:
            url = stack.enter_context(virtuoso_server(dumps))
        except MissingServer as error:
            raise click.ClickException(str(error)) from error
        endpoint = open_graph(endpoint=url)
        seconds = _run_in_turn(
            compiled,
            {
                IN_PROCESS: _in_process(StoreLayout(store).graph),
                "store.select, worker process": lambda query: len(embedded.select(query).rows),
                KEPT_ALIVE: _kept_alive(url),
                "Virtuoso, SparqlEndpoint": lambda query: len(endpoint.select(query).rows),
            },
            rounds,
        )
    _print_runs(seconds, len(compiled))


def _has_evidence(row: Mapping[str, Any]) -> bool:
    """Return whether a question's answers are in the graph; True if its set does not say."""
    return row.get("evidence") != "none" and row.get("sparql") is not None


def _convert(texts: Sequence[str]) -> list[Crp]:
    seconds, crps = [], []
    for text in texts:
        started = time.perf_counter()
        try:
            crps.append(crp_from_sparql(text))
        except CrpConversionError:
            continue
        seconds.append(time.perf_counter() - started)
    print(f"{len(texts)} queries, {len(crps)} of which have a CRP")
    _print_times("SPARQL → CRP", seconds)
    return crps


def _compile(crps: Sequence[Crp], graph: Graph) -> list[str]:
    seconds, compiled = [], []
    for crp in crps:
        started = time.perf_counter()
        compiled.append(compile_crp(crp, choose_start(graph, crp)))
        seconds.append(time.perf_counter() - started)
    _print_times("CRP → SPARQL", seconds)
    return compiled


def _in_process(graph_directory: Path) -> Callable[[str], int]:
    store = pyoxigraph.Store.read_only(str(graph_directory))

    def run(query: str) -> int:
        solutions = store.query(query)
        assert isinstance(solutions, pyoxigraph.QuerySolutions)
        return len({solution[0].value for solution in solutions})

    return run


def _kept_alive(url: str) -> Callable[[str], int]:
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/sparql-results+json",
    }

    def run(query: str) -> int:
        body = urllib.parse.urlencode({"query": query})
        connection.request("POST", f"{parts.path}?{parts.query}", body, headers)
        response = connection.getresponse()
        text = response.read()
        if response.status != http.client.OK:
            return 0  # Virtuoso's refusals are a matter of fidelity, not of speed.
        return len({row["x"]["value"] for row in json.loads(text)["results"]["bindings"]})

    return run


def _run_in_turn(
    compiled: Sequence[str], ways: dict[str, Callable[[str], int]], rounds: int
) -> dict[str, list[float]]:
    """Return each way's seconds per query, the mean of its rounds.

    A way runs all queries, then the next does: queries that follow each other on one engine find
    its memory in the processor's caches, as they would for a user.
    """
    seconds = {name: [0.0] * len(compiled) for name in ways}
    with tqdm(total=(rounds + 1) * len(ways), disable=None, unit="pass") as bar:
        for counts in [False] + [True] * rounds:
            for name, run in ways.items():
                for at, query in enumerate(compiled):
                    started = time.perf_counter()
                    run(query)
                    if counts:
                        seconds[name][at] += (time.perf_counter() - started) / rounds
                bar.update()
    return seconds


def _print_runs(seconds: dict[str, list[float]], n: int) -> None:
    print(f"\n{n} compiled queries, warm")
    for name, values in seconds.items():
        _print_times(name, values)
    print(f"\ntimes as long as {IN_PROCESS} (bar: {BAR:g})")
    base = seconds[IN_PROCESS]
    for name, values in seconds.items():
        if name != IN_PROCESS:
            per_query = statistics.median(
                value / own for value, own in zip(values, base, strict=True)
            )
            means = statistics.mean(values) / statistics.mean(base)
            medians = statistics.median(values) / statistics.median(base)
            print(
                f"  {name:30} ratio of means {means:6.1f}, of medians {medians:6.1f}, "
                f"median of the queries' own ratios {per_query:6.1f}"
            )


def _print_times(name: str, values: Sequence[float]) -> None:
    p95 = statistics.quantiles(values, n=20)[-1]
    print(
        f"  {name:30} median {1000 * statistics.median(values):8.3f} ms, "
        f"mean {1000 * statistics.mean(values):8.3f} ms, p95 {1000 * p95:8.3f} ms"
    )


if __name__ == "__main__":
    main()
