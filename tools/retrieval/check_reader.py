"""Check runs of a perfect reader: it is right where, and only where, an answer was retrieved.

    python -m tools.methods.perfect_chooser --questions webqsp.jsonl --store slice --port 8940 &
    kbqa eval --questions webqsp.jsonl --store slice --gold-entities --method path-pooling \
        --llm http://127.0.0.1:8940/v1 --output run.jsonl
    python -m tools.retrieval.check_reader run.jsonl

Of each run: how many questions have a gold answer among the ends of the triples that were read, how
many were answered with one, and which differ. They may where names are shared: the reader names
what it knows, and another node of that name is in better triples.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kbqa.engine.files import read_rows


@click.command(help=__doc__)
@click.argument(
    "runs",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    nargs=-1,
    required=True,
    metavar="RUN.jsonl…",
)
def main(runs: tuple[Path, ...]) -> None:
    """Print a line for each run, and the questions that differ."""
    for path in runs:
        rows = [row for _, row in read_rows(path) if row["gold"] and row["error"] is None]
        retrieved = {str(row["id"]) for row in rows if is_retrieved(row)}
        right = {str(row["id"]) for row in rows if is_right(row)}
        click.echo(
            f"{path.name}: {len(rows)} questions, {len(retrieved)} with an answer among the "
            f"triples, {len(right)} answered"
        )
        for id_ in sorted(retrieved ^ right):
            click.echo(f"  {id_}: {'not answered' if id_ in retrieved else 'not retrieved'}")


def is_retrieved(row: Mapping[str, Any]) -> bool:
    """Return whether a gold answer is an end of a triple that was read."""
    triples = row["trace"]["triples"]
    return _has_gold(row, {each[end] for each in triples for end in ("subject", "object")})


def is_right(row: Mapping[str, Any]) -> bool:
    """Return whether an answer is a gold one."""
    return _has_gold(row, {each.get("mid", each.get("value")) for each in row["answers"]})


def _has_gold(row: Mapping[str, Any], found: set[str]) -> bool:
    return any(found & set(golds) for golds in row["gold"])


if __name__ == "__main__":
    main()
