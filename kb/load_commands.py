"""The commands `kbqa load-freebase` and `kbqa entities`."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbqa.kb.dump import dump_size_bytes
from kbqa.kb.layout import LineCounts, LoadSummary
from kbqa.kb.names import NameMatch
from kbqa.kb.options import GraphChoice, graph_options, json_option
from kbqa.kb.rules import PROFILES, Rules, profile, read_rules

if TYPE_CHECKING:
    from tqdm import tqdm

    from kbqa.kb.load_forecast import Forecast
    from kbqa.kb.load_job import Progress
    from kbqa.kb.shard_pipeline import Stage

_STAGES: "Mapping[Stage, str]" = {
    "reading": "reading",
    "loading": "loading the last triples",
    "compacting": "compacting the store",
    "indexing": "writing names, schema and statistics",
}


@click.command()
@click.argument("dumps", nargs=-1, required=True, metavar="DUMP...")
@click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="KBQA_STORE",
    show_envvar=True,
    metavar="DIR",
    help="Folder that the store is written to.",
)
@click.option(
    "--emit-shards",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the filtered triples there as gzipped N-Triples, for another store, and load none.",
)
@click.option(
    "--profile",
    "profile_name",
    type=click.Choice(PROFILES),
    default=PROFILES[0],
    show_default=True,
    help="What is left out: qa keeps what question answering needs, full keeps everything.",
)
@click.option(
    "--rules",
    "rules_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="What is left out, in TOML, in place of a profile; --show prints one to begin with.",
)
@click.option(
    "--language",
    "languages",
    multiple=True,
    metavar="TAG",
    help="Keep texts in this language, in place of those of the profile or rules; repeatable.",
)
@click.option("--show", is_flag=True, help="Print the rules and a forecast, and load nothing.")
@click.option("--strict", is_flag=True, help="Stop at the first line that is defective.")
@click.option("--overwrite", is_flag=True, help="Replace a finished store, or start anew.")
@click.option(
    "--shard-triples",
    type=click.IntRange(min=1),
    metavar="N",
    help="Triples between checkpoints.  [default: by the size of the dump]",
)
@click.option(
    "--loaders",
    type=click.IntRange(min=1),
    metavar="N",
    help="Shards loaded at the same time; each takes memory.  [default: by the machine's cores]",
)
@click.option(
    "--no-compact",
    is_flag=True,
    help="Leave the store as the loaders wrote it: sooner ready, slower to query, larger.",
)
@click.option("--no-disk-check", is_flag=True, help="Begin though the disk seems too small.")
@click.option(
    "--progress/--no-progress",
    "shows_progress",
    default=None,
    help="Show a progress bar on stderr.  [default: on a terminal]",
)
@json_option
def load_freebase(
    dumps: Sequence[str],
    store: Path | None,
    emit_shards: Path | None,
    profile_name: str,
    rules_file: Path | None,
    languages: Sequence[str],
    show: bool,
    strict: bool,
    overwrite: bool,
    shard_triples: int | None,
    loaders: int | None,
    no_compact: bool,
    no_disk_check: bool,
    shows_progress: bool | None,
    as_json: bool,
) -> None:
    """Load Freebase dumps into a store: triples, names, schema, statistics.

    DUMP is N-Triples: plain, gzip, bzip2, xz or Zstandard; `-` is standard input. A load that was
    stopped, however it was, goes on when the same command is run again. Lines that are no triples
    are set aside in the store's rejects.tsv.
    """
    rules = _rules(profile_name, rules_file, languages)
    if show:
        _show(dumps, rules, store or emit_shards or Path())
        return
    directory = emit_shards or store
    if directory is None:
        raise click.UsageError("name a folder for the store: --store DIR.")
    from kbqa.kb.emit_shards import emit_shards as emit
    from kbqa.kb.load import load_freebase as load
    from kbqa.kb.load_job import LoadSettings

    settings = LoadSettings(strict, shard_triples, loaders, not no_disk_check, not no_compact)
    with _progress(dumps, shows_progress) as progress:
        counts = (load if emit_shards is None else emit)(
            dumps,
            directory,
            rules=rules,
            overwrite=overwrite,
            settings=settings,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps({"directory": str(directory), **asdict(counts)}))
    else:
        click.echo("\n".join(_summary_lines(counts, directory)))


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


def _rules(name: str, file: Path | None, languages: Sequence[str]) -> Rules:
    rules = profile(name) if file is None else read_rules(file)
    if not languages:
        return rules
    try:
        return replace(rules, languages=tuple(languages))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--language") from error


def _show(dumps: Sequence[str], rules: Rules, directory: Path) -> None:
    from kbqa.kb.load_forecast import forecast

    expected = forecast(dumps, directory, rules)
    click.echo(rules.to_toml(), nl=False)
    click.echo(f"\n# {_forecast_line(expected)}")


def _forecast_line(expected: "Forecast | None") -> str:
    if expected is None:
        return "no forecast: standard input cannot be read twice"
    return (
        f"about {expected.triples:,} triples of {expected.lines:,} lines: "
        f"{expected.store_bytes / 1e9:,.1f} GB of disk, {expected.peak_bytes / 1e9:,.1f} GB while "
        f"loading; {expected.free_bytes / 1e9:,.1f} GB are free"
    )


@contextmanager
def _progress(dumps: Sequence[str], is_shown: bool | None) -> "Iterator[Progress]":
    if is_shown is None:
        is_shown = sys.stderr.isatty()
    if not is_shown:
        from kbqa.kb.load_job import SilentProgress

        yield SilentProgress()
        return
    from tqdm import tqdm

    sizes = [dump_size_bytes(dump) for dump in dumps]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    with tqdm(total=total, unit="B", unit_scale=True, file=sys.stderr) as bar:
        yield _BarProgress(bar)


class _BarProgress:
    """A progress bar over the bytes of the dumps, with the triples loaded so far."""

    def __init__(self, bar: "tqdm[None]") -> None:
        self._bar = bar
        self._is_resumed = False

    def begin(self, expected: "Forecast | None", triples_loaded: int) -> None:
        """Say what is to be expected, above the bar."""
        self._is_resumed = triples_loaded > 0
        if self._is_resumed:
            self._bar.write(f"going on with {triples_loaded:,} triples loaded", file=sys.stderr)
        else:
            self._bar.write(_forecast_line(expected), file=sys.stderr)

    def advance(self, stage: "Stage", bytes_read: int, triples_loaded: int) -> None:
        """Move the bar."""
        if self._is_resumed:
            # What was read before is not read at today's rate: it is no part of the ETA.
            self._bar.initial = self._bar.n = bytes_read
            self._is_resumed = False
        self._bar.set_description(_STAGES[stage], refresh=stage != "reading")
        self._bar.set_postfix_str(f"{triples_loaded / 1e6:,.1f} M triples loaded", refresh=False)
        self._bar.update(max(bytes_read - self._bar.n, 0))


def _summary_lines(counts: LineCounts, directory: Path) -> Iterator[str]:
    yield f"{directory}: {counts.kept:,} triples of {counts.read:,} lines read"
    for verb, reasons in (
        ("filtered", counts.filtered),
        ("rejected", counts.rejected),
        ("mended", counts.mended),
    ):
        for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            yield f"  {verb} {count:,}: {reason}"
    if counts.rejected:
        yield f"  the rejected lines are in {directory / 'rejects.tsv'}"
    if isinstance(counts, LoadSummary):
        yield (
            f"  {counts.entities:,} entities, {counts.names:,} names and aliases, "
            f"{counts.properties:,} properties, {counts.hubs:,} hubs"
        )
    yield f"  {counts.seconds:.1f} s, {counts.size_bytes / 1e6:,.1f} MB on disk"


def _entity_line(match: NameMatch, types: Sequence[str]) -> str:
    name = f"{match.name} (as {match.matched!r})" if match.matched != match.name else match.name
    shown = ", ".join(types[:3]) + (", …" if len(types) > 3 else "")
    return f"{match.mid:<12} {name}  [{shown}]  {match.popularity:,} triples"
