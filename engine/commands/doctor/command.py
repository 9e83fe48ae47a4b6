"""The command `kbqa doctor`: run checks and print their findings."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from kbqa.engine.commands.doctor.coverage import Coverage, measure_coverage
from kbqa.engine.commands.options import weights_options
from kbqa.kb.commands.options import GraphChoice, graph_options, json_option
from kbqa.kb.commands.text import print_json, print_result
from kbqa.kb.health.findings import Finding, from_error, ok, warning
from kbqa.sparql.errors import GraphError, InputError, KbqaError


@click.command()
@graph_options
@weights_options
@click.option(
    "--questions",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Also measure how much of this question set the graph has; repeatable.",
)
@json_option
def doctor(
    graph: GraphChoice,
    base: str | None,
    adapter: Path | None,
    files: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Check the graph, the models and the machine, and suggest fixes.

    The exit code is 1 if there is a problem; warnings do not count. For question sets, in our form
    or the official files of WebQSP and ComplexWebQuestions, a table shows how many of their topic
    entities, relations and gold answers the graph has.
    """
    from kbqa.engine.commands.doctor.machine import check_machine
    from kbqa.engine.commands.doctor.models import check_models, model_memory_bytes

    if graph.store is not None and graph.endpoints:
        raise InputError("choose either --store or --endpoint")
    findings = list(_check_graph(graph))
    measured: dict[Finding, Coverage] = {}
    try:
        measured = dict(_measure(graph, files)) if files else {}
        findings += measured
    except GraphError as error:
        findings.append(from_error("coverage", error))
    findings += check_models(base, adapter)
    findings += check_machine(graph.store, model_memory_bytes(base, adapter))
    if as_json:
        rows = [
            asdict(finding)
            | ({"coverage": asdict(measured[finding])} if finding in measured else {})
            for finding in findings
        ]
        print_json(rows, indent=1)
    else:
        print_result("\n".join([*_lines(findings), *_table(measured.values()), _sum(findings)]))
    if any(finding.status == "problem" for finding in findings):
        raise SystemExit(1)


def _check_graph(graph: GraphChoice) -> Iterator[Finding]:
    if graph.endpoints:
        from kbqa.kb.health.endpoint_health import check_endpoints

        yield from check_endpoints(graph.endpoints, graph.timeout_s)
        return
    from kbqa.kb.demo_graph import demo_store_directory
    from kbqa.kb.health.store_health import check_store

    try:
        store = demo_store_directory() if graph.store is None else graph.store
    except (KbqaError, OSError) as error:
        advice = "Set KBQA_CACHE to a writable folder, or choose a graph with --store."
        yield Finding("store", "problem", f"the demo graph cannot be built: {error}", advice)
        return
    yield from check_store(store, graph.timeout_s)


def _measure(graph: GraphChoice, files: Iterable[Path]) -> Iterator[tuple[Finding, Coverage]]:
    with closing(graph.open()) as opened:
        for path in files:
            coverage = measure_coverage(opened, path, graph.timeout_s)
            yield _coverage_finding(coverage), coverage


def _coverage_finding(coverage: Coverage) -> Finding:
    share = coverage.covered
    finding = f"{coverage.questions}: {share.present:,} of {share.n:,} questions are covered"
    if coverage.is_complete:
        return ok("coverage", finding)
    return warning(
        "coverage",
        finding,
        "Questions with missing parts may get no answer. Load a more complete dump.",
    )


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        yield f"{finding.status:<7}  {finding.check:<{width}}  {finding.finding}"
        if finding.advice:
            yield f"{'':<{width + 9}}  → {finding.advice}"


def _table(coverages: Collection[Coverage]) -> Iterator[str]:
    if not coverages:
        return
    heads = ("questions", "n", "covered", "topic entities", "relations", "answers", "unreadable")
    rows: list[tuple[str, ...]] = [heads]
    for coverage in coverages:
        shares = (coverage.covered, coverage.topics, coverage.relations, coverage.answers)
        cells = [f"{share.present:,}/{share.n:,}" for share in shares]
        name = Path(coverage.questions).name
        rows.append((name, f"{coverage.n:,}", *cells, f"{coverage.unreadable:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield ""
    for name, *cells in rows:
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)]
        yield "  ".join([f"{name:<{widths[0]}}", *padded])
    for coverage in coverages:
        for kind, missing in (
            ("relations", coverage.missing_relations),
            ("topic entities", coverage.missing_topics),
        ):
            if missing:
                listed = ", ".join(f"{item} ({count:,})" for item, count in missing)
                yield f"missing {kind} of {Path(coverage.questions).name}: {listed}"
    yield ""


def _sum(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.status for finding in findings)
    parts = [
        f"{counts[status]} {status}{'' if counts[status] == 1 else 's'}"
        for status in ("problem", "warning")
        if counts[status]
    ]
    return ", ".join(parts) or "no problems found"
