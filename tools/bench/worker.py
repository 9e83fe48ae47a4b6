"""Measure what stopping a query costs: in this process, in the worker, by the oxigraph server.

    python -m tools.bench.worker STORE [--entities 400] [--seed 1]

A query in this process cannot be stopped. The worker (`kbqa.kb.worker`) is what kbqa uses.
The server has its own time limit and is asked over HTTP, as any endpoint is. Each query runs once
to warm up and then three times, and the median counts. In the end a query that sorts all triples
runs into the limit.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random

import click
import pyoxigraph

from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.graph import Graph
from kbqa.kb.layout import StoreLayout, read_manifest
from kbqa.kb.rows import term_from_oxigraph
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.errors import QueryTimeout
from kbqa.sparql.templates import TYPE
from kbqa.sparql.terms import iri
from tools.bench.measured_run import cpu_seconds, machine, memory_bytes, process_tree
from tools.bench.query import draw_entities, median_ms
from tools.graph_servers import oxigraph_server

_LIMIT_S = 1
_WATCHED_S = 60.0
_SAMPLE_S = 0.5
_SORT_ALL = "SELECT ?s WHERE { ?s ?p ?o } ORDER BY ?o LIMIT 1"

Ask = Callable[[str], object]


@click.command()
@click.argument("store", type=click.Path(exists=True, path_type=Path))
@click.option("--entities", "count", default=400, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=1, show_default=True, help="Another seed, other entities.")
def main(store: Path, count: int, seed: int) -> None:
    """Measure the worker beside the oxigraph server."""
    kept = read_manifest(store).summary.kept
    print(f"{machine()}; {time.strftime('%Y-%m-%d')}")
    print(f"{store.name}: {kept:,} triples; {count} entities drawn with seed {seed}; warm, ms")
    location = StoreLayout(store).graph
    here = pyoxigraph.Store.read_only(str(location))
    with closing(OxigraphStore.open(store)) as graph:
        others = _children()
        templates = _templates(graph, draw_entities(here, Random(seed), count), Random(seed))
        with oxigraph_server(location, timeout_s=_LIMIT_S) as url:
            server = SparqlEndpoint(url)
            # The worker starts with its first query.
            (server_pid,) = _children() - others
            ways = {
                "in process": partial(_answer_here, here),
                "worker": partial(_answer, graph),
                "oxigraph server": partial(_answer, server),
            }
            _print_times(templates, ways)
            (worker_pid,) = _children() - others - {server_pid}
            for name, pid in (("worker", worker_pid), ("oxigraph server", server_pid)):
                print(f"memory of the {name}: {memory_bytes(pid) / 1e6:.0f} MB")
            print(f"\nORDER BY over all triples, with a limit of {_LIMIT_S} s")
            some = templates["ASK, 1 hop"][0]
            print(f"worker: {_stop(graph, some)}")
            before_s = cpu_seconds(server_pid)
            print(f"oxigraph server: {_stop(server, some)}; {_watch(server_pid, before_s)}")


def _templates(
    graph: OxigraphStore, entities: Sequence[str], random: Random
) -> Mapping[str, list[str]]:
    """Write queries that have answers, by the name of their form."""
    ask, two_hops, rows = [], [], []
    for start in entities:
        if types := graph.types(start):
            rows.append(
                f"SELECT ?x ?r ?y WHERE {{ ?x {iri(TYPE)} {iri(random.choice(types))} . "
                "?x ?r ?y } LIMIT 1000"
            )
        first = random.choice(graph.relations(start, "out"))
        end = random.choice(graph.neighbours(start, first, "out"))
        if isinstance(end, str) and (relations := graph.relations(end, "out")):
            ask.append(f"ASK {{ {iri(start)} {iri(first)} {iri(end)} }}")
            two_hops.append(
                f"SELECT DISTINCT ?x WHERE {{ {iri(start)} {iri(first)} ?m . "
                f"?m {iri(random.choice(relations))} ?x }} LIMIT 10"
            )
    return {
        "ASK, 1 hop": ask,
        "SELECT, 2 hops, at most 10 rows": two_hops,
        "SELECT, at most 1,000 rows of 3 terms": rows,
    }


def _print_times(templates: Mapping[str, list[str]], ways: Mapping[str, Ask]) -> None:
    head = "".join(f"{f'{name} p50 / p95':>28}" for name in ways)
    print(f"\n{'':38}{'n':>5}{head}")
    for name, texts in templates.items():
        line = f"{name:38}{len(texts):5}"
        for answer in ways.values():
            runs = [partial(answer, text) for text in texts]
            for run in runs:
                run()
            taken = sorted(median_ms(runs))
            middle, late = (taken[int(share * (len(taken) - 1))] for share in (0.5, 0.95))
            line += f"{f'{middle:.2f} / {late:.2f}':>28}"
        print(line)


def _answer_here(store: pyoxigraph.Store, text: str) -> object:
    result = store.query(text)
    if isinstance(result, pyoxigraph.QueryBoolean):
        return bool(result)
    assert isinstance(result, pyoxigraph.QuerySolutions)
    return [
        [None if node is None else term_from_oxigraph(node) for node in solution]
        for solution in result
    ]


def _answer(graph: Graph, text: str) -> object:
    return graph.ask(text) if text.startswith("ASK") else graph.select(text)


def _children() -> set[int]:
    return set(process_tree(os.getpid())[1:])


def _stop(graph: Graph, following: str) -> str:
    """Run into the limit, then ask another query; return how long both took."""
    started = time.monotonic()
    try:
        graph.select(_SORT_ALL, timeout_s=_LIMIT_S)
        end = "answered"
    except QueryTimeout:
        end = "QueryTimeout"
    stopped = time.monotonic()
    graph.ask(following)
    answered = time.monotonic()
    return f"{end} after {stopped - started:.2f} s, next answer {answered - stopped:.2f} s later"


def _watch(pid: int, before_s: float) -> str:
    """Wait until a process is idle, a minute at most; describe the CPU time that it took."""
    started = time.monotonic()
    worked_s = cpu_seconds(pid)
    while time.monotonic() - started < _WATCHED_S:
        time.sleep(_SAMPLE_S)
        last_s, worked_s = worked_s, cpu_seconds(pid)
        if worked_s - last_s < _SAMPLE_S / 10:
            return f"at rest after {worked_s - before_s:.1f} s of CPU"
    return f"still working after {worked_s - before_s:.0f} s of CPU, a minute later"


if __name__ == "__main__":
    main()
