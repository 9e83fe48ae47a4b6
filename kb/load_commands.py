"""The commands `kbqa load-freebase` and `kbqa entities`."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from kbqa.kb.dump import dump_size_bytes
from kbqa.kb.layout import LoadSummary
from kbqa.kb.load import Progress, Stage
from kbqa.kb.load import load_freebase as load_dumps
from kbqa.kb.names import NameMatch
from kbqa.kb.options import GraphChoice, graph_options, json_option

_STAGES: Mapping[Stage, str] = {
    "reading": "reading",
    "loading": "loading the last triples",
    "indexing": "writing names and schema",
}


@click.command()
@click.argument("dumps", nargs=-1, required=True, metavar="DUMP...")
@click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    envvar="KBQA_STORE",
    show_envvar=True,
    metavar="DIR",
    help="Folder that the store is written to.",
)
@click.option("--overwrite", is_flag=True, help="Replace a finished store in that folder.")
@click.option(
    "--progress/--no-progress",
    "shows_progress",
    default=None,
    help="Show a progress bar on stderr.  [default: on a terminal]",
)
@json_option
def load_freebase(
    dumps: Sequence[str], store: Path, overwrite: bool, shows_progress: bool | None, as_json: bool
) -> None:
    """Load Freebase dumps into a store: its triples, names and schema.

    DUMP is N-Triples: plain, gzip, bzip2 or xz; `-` is standard input.
    """
    if shows_progress is None:
        shows_progress = sys.stderr.isatty()
    with _bar(dumps, shows_progress) as progress:
        summary = load_dumps(dumps, store, overwrite=overwrite, progress=progress)
    if as_json:
        click.echo(json.dumps({"store": str(store), **asdict(summary)}))
    else:
        click.echo("\n".join(_summary_lines(summary, store)))


@click.command()
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Entities to list."
)
@graph_options
@json_option
def entities(name: str, limit: int, graph: GraphChoice, as_json: bool) -> None:
    """List the entities that bear NAME, or a name much like it, best first.

    An endpoint has no name index: there NAME must be written as in the graph.
    """
    from kbqa.kb.entity_search import open_names

    opened = graph.open()
    try:
        names = open_names(opened, graph.timeout_s)
        matches = names.search(name, limit)
        names.close()
        types = {match.mid: opened.types(match.mid) for match in matches}
    finally:
        opened.close()
    if as_json:
        rows = [{**asdict(match), "types": list(types[match.mid])} for match in matches]
        click.echo(json.dumps(rows, ensure_ascii=False))
    elif matches:
        for match in matches:
            click.echo(_entity_line(match, types[match.mid]))
    else:
        click.echo(f"no entity of the graph is called anything like {name!r}", err=True)


@contextmanager
def _bar(dumps: Sequence[str], is_shown: bool) -> Iterator[Progress | None]:
    if not is_shown:
        yield None
        return
    from tqdm import tqdm

    sizes = [dump_size_bytes(dump) for dump in dumps]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    with tqdm(total=total, unit="B", unit_scale=True, file=sys.stderr) as bar:

        def advance(stage: Stage, bytes_read: int) -> None:
            bar.set_description(_STAGES[stage], refresh=stage != "reading")
            bar.update(bytes_read - bar.n)

        yield advance


def _summary_lines(summary: LoadSummary, store: Path) -> Iterator[str]:
    yield f"{store}: {summary.kept:,} triples loaded of {summary.read:,} lines read"
    for verb, counts in (("dropped", summary.dropped), ("rejected", summary.rejected)):
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            yield f"  {verb} {count:,}: {reason}"
    yield (
        f"  {summary.entities:,} entities, {summary.names:,} names and aliases "
        f"({summary.other_names:,} in other languages left out), "
        f"{summary.properties:,} properties"
    )
    yield f"  {summary.seconds:.1f} s, {summary.size_bytes / 1e6:,.1f} MB on disk"


def _entity_line(match: NameMatch, types: Sequence[str]) -> str:
    name = f"{match.name} (as {match.matched!r})" if match.matched != match.name else match.name
    shown = ", ".join(types[:3]) + (", …" if len(types) > 3 else "")
    return f"{match.mid:<12} {name}  [{shown}]  {match.popularity:,} triples"
