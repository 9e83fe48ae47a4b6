"""Measure how much of a query's meaning SPARQL → CRP → SPARQL keeps, on real engines.

    python -m tools.convert.fidelity --queries queries-half.jsonl.gz --graph graph.nt.gz

Each query is converted, compiled and run on every engine over the same small graph; its answers
must be exactly the recorded ones, which Virtuoso 7 gave for the original query. The tables count
the queries for which they are, by question set and by engine. RouterKGQA's figures are those of its
own converter and compiler on Virtuoso, for the 5,685 queries of WebQSP and CWQ.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from kbqa.engine.files import read_rows
from kbqa.kb.graph import Graph
from kbqa.kb.layout import StoreLayout
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.open import open_graph
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.errors import CrpConversionError, GraphError, InputError
from kbqa.sparql.terms import LiteralTerm
from tools.graph_servers import MissingServer, oxigraph_server, virtuoso_server
from tools.options import FILE, NEW_FILE
from tools.score.shared import share_with_interval

ENGINES = ("embedded", "oxigraph", "virtuoso")
ROUTERKGQA = {
    "all": 91.7,
    "webqsp_train": 97.8,
    "webqsp_test": 98.5,
    "cwq_dev": 87.1,
    "cwq_test": 87.3,
}
_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Outcome:
    """The outcome of one query."""

    row: Mapping[str, Any]  # the query as the file has it
    compiled: str | None = None  # after conversion to a CRP and back; None if it was refused
    refused: str | None = None  # why no CRP can express it, as a short stable name
    answers: dict[str, frozenset[str] | str] = field(default_factory=dict)  # an error as text

    def is_exact(self, engine: str) -> bool:
        """Return whether an engine gave exactly the recorded answers."""
        return self.answers.get(engine) == frozenset(self.row["gold"])


@click.command()
@click.option("--queries", type=FILE, required=True)
@click.option("--graph", "dump", type=FILE, required=True)
@click.option("--engine", "engines", type=click.Choice(ENGINES), multiple=True, default=ENGINES)
@click.option("--limit", type=int, help="Only as many queries, spread over the file.")
@click.option("--failures", type=NEW_FILE, help="List what is not exact here.")
def main(
    queries: Path, dump: Path, engines: Sequence[str], limit: int | None, failures: Path | None
) -> None:
    """Convert, compile and run the queries, and print the tables."""
    rows = [row for _, row in read_rows(queries)]
    with ExitStack() as stack:
        try:
            graphs = stack.enter_context(open_engines(engines, dump))
        except MissingServer as error:
            raise click.ClickException(str(error)) from error
        outcomes = [
            measure(row, graphs)
            for row in tqdm(spread(rows, limit), disable=not sys.stderr.isatty(), unit="query")
        ]
    print_report(outcomes, list(graphs))
    if failures is not None:
        write_failures(failures, outcomes, list(graphs))


@contextmanager
def open_engines(engines: Iterable[str], dump: Path) -> Iterator[dict[str, Graph]]:
    """Load the graph and open it on each engine; the servers stop when the context ends."""
    wanted = dict.fromkeys(engines)
    with ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "store"
        load_freebase([dump], store)
        graphs: dict[str, Graph] = {}
        for engine in wanted:
            if engine == "embedded":
                graph = open_graph(store)
            elif engine == "oxigraph":
                url = stack.enter_context(oxigraph_server(StoreLayout(store).graph))
                graph = open_graph(endpoint=url)
            else:
                graph = open_graph(endpoint=stack.enter_context(virtuoso_server([dump])))
            stack.callback(graph.close)
            graphs[engine] = graph
        yield graphs


def spread(rows: Sequence[Mapping[str, Any]], limit: int | None) -> Sequence[Mapping[str, Any]]:
    """Take as many rows, at even distances."""
    if limit is None or limit >= len(rows):
        return rows
    return [rows[number * len(rows) // limit] for number in range(limit)]


def measure(row: Mapping[str, Any], graphs: dict[str, Graph]) -> Outcome:
    """Convert and compile one query, and run it on every engine."""
    outcome = Outcome(row)
    try:
        outcome.compiled = compile_crp(crp_from_sparql(row["sparql"]))
    except CrpConversionError as error:
        outcome.refused = error.reason
        return outcome
    except InputError as error:
        outcome.refused = f"{type(error).__name__}: {error}"
        return outcome
    for engine, graph in graphs.items():
        outcome.answers[engine] = answers_of(graph, outcome.compiled)
    return outcome


def answers_of(graph: Graph, query: str) -> frozenset[str] | str:
    """Run a compiled query; return its answers, mids and literals' texts, or what went wrong."""
    try:
        table = graph.select(query, timeout_s=_TIMEOUT_S)
    except (GraphError, InputError) as error:
        return f"{type(error).__name__}: {error}"
    terms = (term for row in table.rows for term in row if term is not None)
    return frozenset(term.text if isinstance(term, LiteralTerm) else term for term in terms)


def print_report(outcomes: Sequence[Outcome], engines: Sequence[str]) -> None:
    """Print the tables: by question set, refused by reason, by engine."""
    engine = engines[0]
    print(f"\nexactly the recorded answers, on the {engine} engine, with 95 % intervals\n")
    head = f"{'question set':32} {'n':>6} {'exact':>6} {'share':>24} {'refused':>8} {'wrong':>6}"
    print(head + "  RouterKGQA")
    sets = sorted({outcome.row["set"] for outcome in outcomes})
    for name in ("all", *sets):
        chosen = [outcome for outcome in outcomes if name in ("all", outcome.row["set"])]
        is_published = name in ROUTERKGQA and set(sets) <= set(ROUTERKGQA)
        exact = sum(outcome.is_exact(engine) for outcome in chosen)
        refusals = sum(outcome.refused is not None for outcome in chosen)
        cells = f"{len(chosen):6} {exact:6} {share_with_interval(exact, len(chosen)):>24}"
        cells += f" {refusals:8} {len(chosen) - exact - refusals:6}  "
        print(f"{name:32} {cells}" + (f"{ROUTERKGQA[name]:.1f} %" if is_published else ""))
    if refused := Counter(outcome.refused for outcome in outcomes if outcome.refused):
        print("\nrefused, by reason")
        for reason, count in refused.most_common():
            print(f"{count:7}  {reason}")
    wrong = [o for o in outcomes if not o.refused and not all(map(o.is_exact, engines))]
    for outcome in wrong:
        where = ", ".join(name for name in engines if not outcome.is_exact(name))
        print(f"wrong on {where}: {outcome.row['id']}")
    print(
        f"\ncompiled queries on which an engine gives the same set as {engine}, and as recorded\n"
    )
    print(f"{'engine':10} {'n':>6}  {'as ' + engine:>29}  {'as recorded':>29}  errors")
    compiled = [outcome for outcome in outcomes if outcome.compiled is not None]
    for name in engines if compiled else ():
        alike = sum(o.answers[name] == o.answers[engine] for o in compiled)
        exact = sum(o.is_exact(name) for o in compiled)
        errors = sum(isinstance(o.answers[name], str) for o in compiled)
        cells = "  ".join(
            f"{hits:6} {share_with_interval(hits, len(compiled)):>22}" for hits in (alike, exact)
        )
        print(f"{name:10} {len(compiled):6}  {cells}  {errors:6}")


def write_failures(path: Path, outcomes: Sequence[Outcome], engines: Sequence[str]) -> None:
    """Write a line for each query that was refused, or not exact on some engine."""
    with path.open("w", encoding="utf-8") as file:
        for outcome in outcomes:
            if all(outcome.is_exact(engine) for engine in engines):
                continue
            record = {key: outcome.row[key] for key in ("set", "id", "question", "sparql", "gold")}
            record |= {"refused": outcome.refused, "compiled": outcome.compiled}
            record["answers"] = {
                engine: found if isinstance(found, str) else sorted(found)
                for engine, found in outcome.answers.items()
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
