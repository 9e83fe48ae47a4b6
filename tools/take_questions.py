"""Take some questions out of a set, as a question set of its own.

    python tools/take_questions.py webqsp.test-half.jsonl.gz tools/samples/webqsp.test-half.txt

Prints the rows whose ids stand in the second file, one a line. With --draw 300 it prints instead
the ids of so many questions of the independent and annotated tiers that have a published path,
drawn by a seed: so the files in tools/samples were made.
"""

import json
import random
from pathlib import Path

import click

from kbqa.engine.json_lines import read_rows
from kbqa.sparql.errors import InputError


@click.command(help=__doc__)
@click.argument("questions", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument(
    "ids_file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option("--draw", type=click.IntRange(1), metavar="N", help="Draw ids instead.")
@click.option("--seed", default=42, show_default=True)
def main(questions: Path, ids_file: Path | None, draw: int | None, seed: int) -> None:
    """Print rows, or ids."""
    rows = [row for _, row in read_rows(questions)]
    if draw is not None:
        pool = sorted(
            str(row["id"])
            for row in rows
            if row.get("evidence") in ("independent", "annotated") and row.get("crp_routerkgqa")
        )
        click.echo("\n".join(sorted(random.Random(seed).sample(pool, min(draw, len(pool))))))
        return
    if ids_file is None:
        raise click.UsageError("give a file of ids, or --draw N")
    wanted = set(ids_file.read_text(encoding="utf-8").split())
    taken = [row for row in rows if str(row["id"]) in wanted]
    if len(taken) < len(wanted):
        raise InputError(f"{questions} lacks {len(wanted) - len(taken)} of the ids in {ids_file}")
    for row in taken:
        click.echo(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
