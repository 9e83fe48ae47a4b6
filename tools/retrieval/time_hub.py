"""Measure what a hub costs extraction, as a topic and as a neighbour of one.

    python -m tools.retrieval.time_hub DIR [--edges 1000000]

Makes a graph in the new folder DIR. So many edges enter the hub by twenty relations, the first of
which has half of them, the next a quarter, and so on; as many leave it by twenty others. Prints the
median of 21 extractions, and of their CPU time.
"""

import statistics
import time
from contextlib import closing
from pathlib import Path

import click

from kbqa.engine.retrieval.subgraphs import extract
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.terms import FREEBASE_NS
from tools.bench.measured_run import machine

_RELATIONS = 20
_ROUNDS = 21


@click.command(help=__doc__)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--edges", type=click.IntRange(1), default=1_000_000, show_default=True)
def main(directory: Path, edges: int) -> None:
    """Make the graph, and print a table."""
    directory.mkdir(parents=True)
    dump = directory / "hub.nt"
    _write_dump(dump, edges)
    load_freebase([dump], directory / "store", rules=profile("full"))
    click.echo(f"{machine()}\n\n| topic | triples | relations cut | ms | CPU ms |\n{'|---' * 5}|")
    with closing(open_graph(directory / "store")) as graph:
        schema = GraphSchema(graph)
        for topic in ("m.hub", "m.near"):
            found = extract(graph, schema, [topic])
            seconds, cpu_s = [], []
            for _ in range(_ROUNDS):
                started, cpu_started = time.perf_counter(), time.process_time()
                extract(graph, schema, [topic])
                seconds.append(time.perf_counter() - started)
                cpu_s.append(time.process_time() - cpu_started)
            click.echo(
                f"| {topic} | {len(found.heads)} | {found.cut.relations} "
                f"| {1000 * statistics.median(seconds):.1f} "
                f"| {1000 * statistics.median(cpu_s):.1f} |"
            )


def _write_dump(path: Path, edges: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(_line("m.near", "made.hub.near", "m.hub"))
        for number in range(1, edges + 1):
            # The lowest bit that is set: the first in half of the numbers, the next in a quarter.
            lowest = min((number & -number).bit_length(), _RELATIONS)
            file.write(_line(f"m.n{number:x}", f"made.hub.in{lowest}", "m.hub"))
            file.write(_line("m.hub", f"made.hub.out{lowest}", f"m.n{number:x}"))


def _line(*triple: str) -> str:
    return "\t".join([*(f"<{FREEBASE_NS}{each}>" for each in triple), ".\n"])


if __name__ == "__main__":
    main()
