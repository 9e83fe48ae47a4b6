"""Check that the traces of runs add up: calls, tokens, and every triple that was walked.

    python -m tools.methods.check_traces RUN.jsonl… [--store DIR]

For runs in which a general model decided, without --call-budget. A question's calls must be those
that the method's own rule gives from the trace:

- `bpc`: one for each open walk, and one for the answer. A walk is open after a hop that was chosen
  for it, and no more stay than there are beams. With one topic at most 59.
- `knowpath`: with one topic 4 if the first round answers, and at most 22.
- `trace`: two for each hop of a trajectory that it does not share with an earlier one, and one more
  after its first hop; what its end took; and the summaries and the advice that later ones use.
- `tog`: one for each decision on relations or entities, one check a hop and at most one answer.
  With one topic at most 32.
- `pog`: one for each decision on relations or entities, at most four more a hop, and two besides.

They must also be the decisions of the trace and the calls of the row, and the tokens of the steps
must sum up to the row's. With --store each triple of the walks and of the evidence is looked up in
the graph. Prints a table, then what does not add up; exits with 1 if anything does not.

Source: Bounded Path Context, appendix A; KnowPath §2; TRACE §3.6, algorithm 1; Think-on-Graph and
Plan-on-Graph as released.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import click

from kbqa.engine.files import manifest_path, read_rows
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.terms import iri, is_mid, quote
from tools.options import FILE

Row = Mapping[str, Any]
Settings = Mapping[str, Any]
Problems = Iterator[str]
_SHOWN = 10


@click.command(help=__doc__)
@click.argument("runs", nargs=-1, required=True, type=FILE)
@click.option("--store", type=click.Path(path_type=Path, exists=True), metavar="DIR")
def main(runs: Sequence[Path], store: Path | None) -> None:
    """Print a table and what does not add up."""
    click.echo("| run | method | questions | calls a question | most | input tokens a call |")
    click.echo("|---|---|---|---|---|---|")
    wrong: list[str] = []
    triples: set[tuple[str, str, str]] = set()
    for path in runs:
        settings = method_settings(path)
        rows = [row for _, row in read_rows(path) if row["error"] is None]
        for row in rows:
            problems = [*sums(row), *RULES[settings["name"]](row, settings)]
            wrong += [f"{path.stem} {row['id']}: {problem}" for problem in problems]
            triples.update(walked(row))
        calls = [row["usage"]["general"]["calls"] for row in rows]
        tokens = sum(row["usage"]["general"]["input_tokens"] for row in rows)
        each = tokens / max(sum(calls), 1)
        mean = sum(calls) / max(len(rows), 1)
        cells = (path.stem, settings["name"], len(rows), f"{mean:.2f}", max(calls, default=0))
        click.echo(f"| {' | '.join(map(str, cells))} | {each:.0f} |")
    click.echo(f"\nCalls or tokens that do not add up: {len(wrong)}")
    if store is not None:
        with closing(open_graph(store)) as graph:
            missing = sorted(triple for triple in triples if not holds(graph, triple))
        click.echo(f"Distinct triples walked: {len(triples)}; not in the graph: {len(missing)}")
        wrong += [f"not in the graph: {' '.join(triple)}" for triple in missing]
    for line in wrong[:_SHOWN]:
        click.echo(line, err=True)
    sys.exit(1 if wrong else 0)


def method_settings(run: Path) -> Settings:
    """Read the name and the settings of a run's method."""
    manifest = json.loads(manifest_path(run).read_text(encoding="utf-8"))
    settings: Settings = manifest["method"]
    if settings["name"] not in RULES:
        raise click.ClickException(f"{run}: no rule for the calls of {settings['name']}")
    if settings.get("chooser") != "llm" or manifest.get("call_budget") is not None:
        raise click.ClickException(f"{run}: the rules are for --chooser llm without --call-budget")
    return settings


def sums(row: Row) -> Problems:
    """Say where a row's calls and tokens are not those of its steps."""
    usage, trace = row["usage"]["general"], row["trace"]
    asked = [step for step in trace["steps"] if "input_tokens" in step]
    if not usage["calls"] == trace["decisions"] == len(asked):
        yield f"{usage['calls']} calls, {trace['decisions']} decisions, {len(asked)} steps"
    for kind in ("input_tokens", "output_tokens"):
        total = sum(step[kind] for step in asked)
        if total != usage[kind]:
            yield f"{usage[kind]} {kind}, {total} in its steps"


def bpc(row: Row, settings: Settings) -> Problems:
    """Check a row of Bounded Path Context; its controls only answer once."""
    steps = row["trace"]["steps"]
    kinds = Counter(step["kind"] for step in steps)
    if kinds["answer"] != 1:
        yield f"{kinds['answer']} answers"
    if settings["control"] != "none":
        return
    if set(kinds) - {"relations", "answer"}:
        yield f"steps of other kinds: {sorted(kinds)}"
    by_hop = [[step for step in steps if step["hop"] == 1 + at] for at in range(settings["depth"])]
    for hop, (before, here) in enumerate(pairwise(by_hop), 2):
        chosen = Counter(
            f"{step['at']} {option if option.startswith(('->', '<-')) else f'-> {option}'} "
            for step in before
            for option in step.get("chosen", ())
        )
        ways = Counter(
            next(filter(step["at"].startswith, chosen), "no chosen relation") for step in here
        )
        for way, count in ways.items():
            if count > settings["width"] * chosen[way]:
                yield f"{count} open walks at hop {hop} by {way}"
        if len(here) > settings["beams"]:
            yield f"{len(here)} open walks at hop {hop}"
    widest = [min(settings["beams"], settings["width"] ** (2 * at)) for at in range(len(by_hop))]
    yield from _over(len(steps), len(by_hop[0]), 1 + sum(widest))


def knowpath(row: Row, settings: Settings) -> Problems:
    """Check a row of KnowPath without ablations."""
    steps, depth = row["trace"]["steps"], settings["depth"]
    kinds = Counter(step["kind"] for step in steps)
    rounds = max(step["hop"] for step in steps)
    firsts = sum(1 for step in steps if step["hop"] == 1 and step["kind"] == "relations")
    if kinds["paths"] != 1 or kinds["check"] > rounds or rounds > depth:
        yield f"{dict(kinds)} in {rounds} rounds"
    if firsts != 1:
        return
    if rounds == 1 and row["stage"] == "explored" and len(steps) != 4:
        yield f"{len(steps)} calls, and the first round answered"
    later = 1 if settings["calls"] == "subgraph" else settings["entities"]
    yield from _over(len(steps), firsts, 1 + 2 + (depth - 1) * (later + 1) + depth)


def trace(row: Row, settings: Settings) -> Problems:
    """Check a row of TRACE: its calls are those of its trajectories."""
    kinds = Counter(step["kind"] for step in row["trace"]["steps"])
    told = row["trace"]["trajectories"]
    expected: Counter[str] = Counter()
    earlier: list[list[Any]] = []
    due = 0
    for ended in told:
        path = [ended["topic"], *ended["hops"]]
        # It left an earlier one by a relation that was ranked there: its own hops come after that.
        start = max((_shared(path, other) for other in earlier), default=0)
        earlier.append(path)
        end, why = len(ended["hops"]), ended["ended"]
        asked = range(start, end + (why in ("none proposed", "unreadable", "none kept")))
        ranked = end - start + (why == "none kept")
        expected["relations"] += len(asked)
        expected["rank"] += ranked
        if settings["context"] == "narrative":
            expected["narrate"] += sum(1 for hops in asked if hops > 0)
        if settings["priors"]:
            if settings["eager_priors"] or (ranked and due):
                learnt = 1 if settings["eager_priors"] else due
                expected += Counter(summarise=learnt, generalise=1)
                due = 0
            due += 1
    # A topic from which no hop was kept is no trajectory: it asked once, or ranked besides.
    idle = row["trace"]["rollouts"] - len(told)
    slack = Counter(relations=idle, rank=idle)
    for kind in sorted({*kinds, *expected}):
        if not expected[kind] <= kinds[kind] <= expected[kind] + slack[kind]:
            yield f"{kinds[kind]} {kind}, {expected[kind]} by its trajectories"


def tog(row: Row, settings: Settings) -> Problems:
    """Check a row of Think-on-Graph."""
    width, depth = settings["width"], settings["depth"]
    yield from _hop_by_hop(row, {"check": 1}, besides=1)
    by_hop = _decided(row)
    for hop in range(1, depth + 1):
        relations, entities = by_hop[hop, "relations"], by_hop[hop, "entities"]
        if entities > width * relations or (hop > 1 and relations > width):
            yield f"{relations} relation and {entities} entity decisions at hop {hop}"
    most = (1 + width + 1) + (depth - 1) * (width + width * width + 1) + 1
    yield from _over(by_hop.total(), by_hop[1, "relations"], most)


def pog(row: Row, _: Settings) -> Problems:
    """Check a row of Plan-on-Graph."""
    return _hop_by_hop(row, {"remember": 1, "check": 1, "reflect": 2}, besides=2)


def _over(calls: int, topics: int, most: int) -> Problems:
    """Say if a question with one topic has too many calls."""
    if topics == 1 and calls > most:
        yield f"{calls} calls with one topic, more than {most}"


def _hop_by_hop(row: Row, limits: Mapping[str, int], besides: int) -> Problems:
    """Check what is asked besides decisions: so often a hop, and so often before and after all."""
    counts = _decided(row)
    for (hop, kind), count in counts.items():
        if hop and kind not in ("relations", "entities") and count > limits.get(kind, 0):
            yield f"{count} of {kind} at hop {hop}"
    outside = sum(count for (hop, _), count in counts.items() if not hop)
    if outside > besides:
        yield f"{outside} calls outside the hops"


def _decided(row: Row) -> Counter[tuple[int, str]]:
    steps = row["trace"]["steps"]
    return Counter((step["hop"], step["kind"]) for step in steps if not step.get("no_decision"))


def _shared(path: Sequence[Any], other: Sequence[Any]) -> int:
    pairs = zip(path, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def walked(row: Row) -> Iterator[tuple[str, str, str]]:
    """Yield the triples of a row's walks and of its evidence."""
    for walk in [*row["trace"]["walks"], *row["trace"]["dead_ends"]]:
        for subject, relation, value, _ in walk["steps"]:
            yield subject, relation, value
    for triple in row["evidence"]:
        yield triple["subject"], triple["relation"], triple["object"]


def holds(graph: Graph, triple: tuple[str, str, str]) -> bool:
    """Return whether a triple is in the graph; a literal counts by its text."""
    subject, relation, value = triple
    if is_mid(value) and graph.ask(f"ASK {{ {iri(subject)} {iri(relation)} {iri(value)} }}"):
        return True
    where = f"{iri(subject)} {iri(relation)} ?value FILTER(STR(?value) = {quote(value)})"
    return graph.ask(f"ASK {{ {where} }}")


RULES: Mapping[str, Callable[[Row, Settings], Problems]] = {
    rule.__name__: rule for rule in (bpc, knowpath, trace, tog, pog)
}

if __name__ == "__main__":
    main()
