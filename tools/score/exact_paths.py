"""Score written paths against the gold ones, without a graph: which are the same?

    python -m tools.score.exact_paths --questions grailqa.dev-half.jsonl.gz before.jsonl after.jsonl

BEAMS are files of `kbqa crp generate`. Gold paths are made from each question's SPARQL as
`kbqa train-crp` makes its targets, and written ones are brought into the same form, so what a
question never says counts for neither. The table has the share of questions, with 95 % bootstrap
intervals, whose first path is exactly the gold one, and any of whose paths is: by GrailQA's level
of generalization, and by function. Functions of fewer than ten questions are pooled. A question
whose gold path cannot be said counts as wrong.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from kbqa.engine.evaluation.scores import bootstrap_mean
from kbqa.engine.evaluation.tables import MarkdownTable, markdown_table
from kbqa.engine.files import read_rows
from kbqa.engine.questions.official import Unconverted
from kbqa.engine.writing.generate import read_beams
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.forms import read_crp
from kbqa.training.data.targets import row_targets, write_target
from tools.crp_match import match_crps

_SMALL = 10


class Gold(NamedTuple):
    """A question's gold path, None if it cannot be said, and the groups that it belongs to."""

    crp: Crp | None
    groups: tuple[str, ...]


def read_golds(path: Path) -> dict[str, Gold]:
    """Read the gold path of every question of a file, by its id."""
    rows = [row for _, row in read_rows(path)]
    counts = Counter(_function(row) for row in rows)
    golds = {}
    for row, target in zip(rows, row_targets(rows, "extended"), strict=True):
        function = _function(row)
        if counts[function] < _SMALL:
            function = "function: other"
        level = f"level: {row.get('level', 'unknown')}"
        crp = None if isinstance(target, Unconverted) else _read(target)
        golds[str(row["id"])] = Gold(crp, ("all", level, function))
    return golds


def is_exact(text: str, gold: Crp | None) -> bool:
    """Return whether a written path is the gold one."""
    if gold is None:
        return False
    try:
        target = write_target(read_crp(text).crp, "extended")
    except CrpSyntaxError:
        return False
    said = None if isinstance(target, Unconverted) else _read(target)
    return said is not None and match_crps(said, gold).exact


def _function(row: Mapping[str, Any]) -> str:
    return f"function: {row.get('function', 'unknown')}"


def _read(text: str) -> Crp | None:
    """Read a path with its names in lower case: questions are, and their topics' names may be."""
    try:
        crp = read_crp(text).crp
    except CrpSyntaxError:
        return None
    return crp.with_entities(lambda entity: Entity(str(entity).lower()))


@click.command(help=__doc__)
@click.argument(
    "files",
    metavar="BEAMS…",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    nargs=-1,
    required=True,
)
@click.option(
    "--questions", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=True
)
def main(files: Sequence[Path], questions: Path) -> None:
    """Print the table."""
    golds = read_golds(questions)
    rows = []
    for file in files:
        exact = {
            id_: [is_exact(each.text, golds[id_].crp) for each in candidates]
            for id_, candidates in read_beams(file).items()
        }
        for group in sorted({group for id_ in exact for group in golds[id_].groups}):
            ids = [id_ for id_ in exact if group in golds[id_].groups]
            first = bootstrap_mean([float(any(exact[id_][:1])) for id_ in ids])
            of_n = bootstrap_mean([float(any(exact[id_])) for id_ in ids])
            rows.append((file.stem, group, str(len(ids)), str(first), str(of_n)))
    header = ("beams", "questions", "n", "first path", "any path")
    click.echo(markdown_table(MarkdownTable(header, tuple(rows))))
    unsaid = sum(gold.crp is None for gold in golds.values())
    click.echo(f"\n{unsaid} of {len(golds)} gold paths cannot be said.")


if __name__ == "__main__":
    main()
