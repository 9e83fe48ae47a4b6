"""Copy questions of a set into another question set.

    python -m tools.fit.take_questions webqsp.test-half.jsonl.gz tools/samples/webqsp.test-half.txt
    python -m tools.fit.take_questions WebQSP.test.json > webqsp.test.jsonl

Prints the rows whose ids are in the second file, which has one id per line, or all rows if there is
no second file. Records of the official files are converted to kbqa's form. With --draw 300 it
prints the ids of 300 questions instead, drawn by a seed: from those of the independent and
annotated tiers that have a published path, or from all if the set has no tiers. The files in
tools/samples were written this way.
"""

import json
import random
from pathlib import Path

import click

from kbqa.engine.questions.question_sets import read_question_rows
from kbqa.sparql.errors import InputError
from tools.options import FILE


@click.command(help=__doc__)
@click.argument("questions", type=FILE)
@click.argument("ids_file", required=False, type=FILE)
@click.option(
    "--draw", type=click.IntRange(1), metavar="N", help="Print N ids drawn at random instead."
)
@click.option("--seed", default=42, show_default=True)
def main(questions: Path, ids_file: Path | None, draw: int | None, seed: int) -> None:
    """Print rows, or ids."""
    rows = [row for _, row in read_question_rows(questions)]
    if draw is not None:
        if any("evidence" in row for row in rows):
            rows = [row for row in rows if row.get("evidence") in ("independent", "annotated")]
            rows = [row for row in rows if row.get("crp_routerkgqa")]
        pool = sorted(str(row["id"]) for row in rows)
        click.echo("\n".join(sorted(random.Random(seed).sample(pool, min(draw, len(pool))))))
        return
    if ids_file is not None:
        wanted = set(ids_file.read_text(encoding="utf-8").split())
        rows = [row for row in rows if str(row["id"]) in wanted]
        if len(rows) < len(wanted):
            missing = len(wanted) - len(rows)
            raise InputError(f"{questions} does not have {missing} of the ids in {ids_file}")
    for row in rows:
        click.echo(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
