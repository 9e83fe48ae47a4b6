"""Score the CRPs made from gold SPARQL: do they find the official answers once compiled and run?

    python -m tools.convert.gold_crps --store DIR --questions webqsp.test-half.jsonl.gz \
        --questions cwq.test-half.jsonl.gz --failures failures.jsonl

A question's query is converted, compiled and run on the store, as `kbqa eval` runs a candidate. For
a WebQSP question every parse that counts is run, and the best score counts. A question whose query
is refused, or fails, scores 0.

For the 499 + 1,407 questions of the annotated tier, the slice needs its witness literals: load
both files. RouterKGQA's own CRPs and compiler, measured the same way on the independent and
annotated tiers: F1 0.994 on WebQSP, 0.977 on CWQ.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import click
from tqdm import tqdm

from kbqa.engine.answer import MAX_ANSWERS
from kbqa.engine.evaluation.breakdowns import rows_by_tier, score_tiers
from kbqa.engine.evaluation.scores import Scores, normalise_answer, score_best
from kbqa.engine.files import read_rows
from kbqa.engine.questions.question_sets import Question, read_questions, scored_parses
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.errors import CrpConversionError, GraphError, InputError
from kbqa.sparql.forms import render_crp
from kbqa.sparql.terms import term_text
from tools.options import FILE, STORE


class Attempt(NamedTuple):
    """The outcome of one gold query, against the gold set that its answers fit best."""

    scores: Scores
    problem: str | None  # why there are no answers: the reason of a refusal, or the error
    missing: list[str]
    extra: list[str]
    sparql: str  # the gold query
    crp: str | None  # what it was converted to; None if it was refused
    compiled: str | None  # what that was compiled to; None if that failed


class Result(NamedTuple):
    """The best of a question's queries."""

    tier: str | None
    scores: Scores
    problem: str | None


def gold_queries(row: Mapping[str, Any]) -> list[str]:
    """List the queries that a question record holds: the parses that count, or the only query."""
    if "parses" in row:
        return [parse["Sparql"] for parse in scored_parses(row)]
    return [row["sparql"]]


@click.command(help=__doc__)
@STORE
@click.option(
    "--questions",
    "files",
    type=FILE,
    multiple=True,
    required=True,
    help="Question set, JSON Lines, gzipped or not; may be repeated.",
)
@click.option(
    "--failures",
    type=click.File("w", encoding="utf-8", lazy=False),
    metavar="OUT.jsonl",
    help="Where to list each question with F1 < 1.",
)
@click.option("--timeout", "timeout_s", type=float, default=DEFAULT_TIMEOUT_S, show_default=True)
def main(store: Path, files: Sequence[Path], failures: TextIO | None, timeout_s: float) -> None:
    """Run the measurement and print a table of it."""
    click.echo("| set | tier | n | F1 | exact match | refused or failed |")
    click.echo("|---|---|---|---|---|---|")
    with closing(open_graph(store)) as graph:
        for file in files:
            name = file.name.removesuffix(".gz").removesuffix(".jsonl")
            rows: list[Result] = []
            for question, attempts in _attempts(file, graph, timeout_s):
                best = max(attempts, key=lambda attempt: attempt.scores.f1)
                rows.append(Result(question.tier, best.scores, best.problem))
                if failures is not None and best.scores.f1 < 1:
                    record = {"set": name, "id": question.id, "question": question.text}
                    told = {**record, "tier": question.tier, "attempts": [*map(_told, attempts)]}
                    failures.write(json.dumps(told, ensure_ascii=False) + "\n")
            for tier, means in score_tiers(rows).items():
                f1, exact = means["f1"], means["exact_match"]
                cells = [name, tier, str(f1.n), f"{f1:.4f}", f"{exact:.4f}", _problems(rows, tier)]
                click.echo(f"| {' | '.join(cells)} |")


def _attempts(
    file: Path, graph: Graph, timeout_s: float
) -> Iterator[tuple[Question, list[Attempt]]]:
    """Run the queries of each question that is scored."""
    questions, rows = read_questions(file), [row for _, row in read_rows(file)]
    asked = list(zip(questions, rows, strict=True))
    for question, row in tqdm(asked, unit="question", disable=None):
        if golds := question.golds:
            queries = gold_queries(row)
            yield question, [_attempt(sparql, golds, graph, timeout_s) for sparql in queries]


def _attempt(
    sparql: str, golds: Sequence[frozenset[str]], graph: Graph, timeout_s: float
) -> Attempt:
    crp = compiled = problem = None
    predicted: list[str] = []
    try:
        crp = crp_from_sparql(sparql)
        compiled = compile_crp(crp)
        table = graph.select(compiled, timeout_s=timeout_s, limit=MAX_ANSWERS)
        predicted = [term_text(row[0]) for row in table.rows if row[0] is not None]
        scores = score_best(predicted, golds)
    except (InputError, GraphError) as error:
        problem = error.reason if isinstance(error, CrpConversionError) else type(error).__name__
        scores = Scores(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    gold = max(golds, key=lambda gold: score_best(predicted, [gold]).f1)
    found, wanted = (set(map(normalise_answer, each)) for each in (predicted, gold))
    missing, extra = sorted(wanted - found), sorted(found - wanted)
    return Attempt(scores, problem, missing, extra, sparql, crp and render_crp(crp), compiled)


def _told(attempt: Attempt) -> dict[str, object]:
    fields = attempt._asdict()
    return {"f1": fields.pop("scores").f1, **fields}


def _problems(rows: Sequence[Result], tier: str) -> str:
    """Count the reasons why questions of a tier have no answers."""
    reasons = Counter(row.problem for row in rows_by_tier(rows)[tier] if row.problem is not None)
    return ", ".join(f"{reason} {count}" for reason, count in reasons.most_common()) or "none"


if __name__ == "__main__":
    main()
