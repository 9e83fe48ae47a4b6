"""The commands `kbqa load-freebase` and `kbqa entities`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbqa.kb.commands.options import (
    TEXT,
    GraphChoice,
    graph_options,
    is_terminal,
    json_option,
    print_json,
    print_note,
    print_result,
)
from kbqa.kb.layout import LoadSummary, OutputSummary
from kbqa.kb.loading.dump import dump_size_bytes
from kbqa.kb.loading.rules import PROFILES, FilterRules, profile, read_rules
from kbqa.kb.names import NameMatch

if TYPE_CHECKING:
    from tqdm import tqdm

    from kbqa.kb.loading.job import Forecast, LoadProgress, LoadStage


_STAGES: "Mapping[LoadStage, str]" = {
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
    help="Write the store to this folder.",
)
@click.option(
    "--emit-shards",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the filtered triples to this folder as gzipped N-Triples instead of loading them.",
)
@click.option(
    "--profile",
    "profile_name",
    type=click.Choice(PROFILES),
    default=PROFILES[0],
    help="Triples to keep: qa keeps what question answering needs, full keeps all.",
)
@click.option(
    "--rules",
    "rules_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="TOML file of rules to use instead of a profile; --show prints one to start from.",
)
@click.option(
    "--language",
    "languages",
    multiple=True,
    metavar="TAG",
    help="Keep texts in this language instead of those in the profile or rules; repeatable.",
)
@click.option("--show", is_flag=True, help="Print the rules and a forecast without loading.")
@click.option("--strict", is_flag=True, help="Stop at the first defective line.")
@click.option(
    "--overwrite", is_flag=True, help="Replace a finished store, or discard an unfinished load."
)
@click.option(
    "--shard-triples",
    type=click.IntRange(min=1),
    metavar="N",
    help="Triples between checkpoints.  [default: depends on the dump size]",
)
@click.option(
    "--loaders",
    type=click.IntRange(min=1),
    metavar="N",
    help="Shards loaded at the same time; each takes memory.  [default: one per core, at most 8]",
)
@click.option(
    "--no-compact",
    is_flag=True,
    help="Do not compact the store: it is ready sooner, but larger and slower to query.",
)
@click.option("--no-disk-check", is_flag=True, help="Start even if the disk seems too small.")
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
    """Load Freebase dumps into a store: triples, names, schema and statistics.

    DUMP is an N-Triples file: plain, gzip, bzip2, xz or Zstandard; `-` is standard input. To resume
    an interrupted load, run the same command again. Lines that are not triples are written to
    rejects.tsv in the store.
    """
    rules = _rules(profile_name, rules_file, languages)
    if show:
        _show(dumps, rules, store or emit_shards or Path())
        return
    directory = emit_shards or store
    if directory is None:
        raise click.UsageError("give a folder for the store: --store DIR.")
    from kbqa.kb.loading.job import LoadSettings
    from kbqa.kb.loading.load import emit_shards as emit
    from kbqa.kb.loading.load import load_freebase as load

    settings = LoadSettings(strict, shard_triples, loaders, not no_disk_check, not no_compact)
    with _progress(dumps, shows_progress) as progress:
        summary = (load if emit_shards is None else emit)(
            dumps,
            directory,
            rules=rules,
            overwrite=overwrite,
            settings=settings,
            progress=progress,
        )
    if as_json:
        print_json({"directory": str(directory), **asdict(summary)})
    else:
        print_result("\n".join(_summary_lines(summary, directory)))


@click.command()
@click.argument("name", type=TEXT)
@click.option("--limit", type=click.IntRange(min=1), default=10, help="Entities to list.")
@graph_options
@json_option
def entities(name: str, limit: int, graph: GraphChoice, as_json: bool) -> None:
    """List entities with this NAME or a similar one, best match first.

    An endpoint has no name index: with --endpoint, write NAME as it is written in the graph.
    """
    with closing(graph.open()) as opened:
        with closing(opened.names(graph.timeout_s)) as names:
            matches = names.search(name, limit)
        types = {match.mid: opened.types(match.mid) for match in matches}
    if as_json:
        print_json([{**asdict(match), "types": list(types[match.mid])} for match in matches])
    elif matches:
        print_result("\n".join(_entity_line(match, types[match.mid]) for match in matches))
    else:
        print_note(f"no entity in the graph has a name like {name!r}")
        if graph.endpoints:
            print_note(
                "An endpoint finds names only as they are written in the graph. "
                "To search with typing errors, load a store."
            )


def _rules(name: str, file: Path | None, languages: Sequence[str]) -> FilterRules:
    rules = profile(name) if file is None else read_rules(file)
    if not languages:
        return rules
    try:
        return replace(rules, languages=tuple(languages))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--language") from error


def _show(dumps: Sequence[str], rules: FilterRules, directory: Path) -> None:
    from kbqa.kb.loading.job import forecast

    expected = forecast(dumps, directory, rules)
    print_result(f"{rules.to_toml()}\n# {_forecast_line(expected)}")


def _forecast_line(expected: "Forecast | None") -> str:
    if expected is None:
        return "no forecast: standard input can be read only once"
    return (
        f"about {expected.triples:,} triples from {expected.lines:,} lines: "
        f"{expected.store_bytes / 1e9:,.1f} GB on disk, {expected.peak_bytes / 1e9:,.1f} GB while "
        f"loading, {expected.free_bytes / 1e9:,.1f} GB free"
    )


@contextmanager
def _progress(dumps: Sequence[str], is_shown: bool | None) -> "Iterator[LoadProgress | None]":
    if is_shown is None:
        is_shown = is_terminal(sys.stderr)
    if not is_shown:
        yield None
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
        """Print the forecast, or what is already loaded, above the bar."""
        self._is_resumed = triples_loaded > 0
        if self._is_resumed:
            self._bar.write(f"resuming with {triples_loaded:,} triples loaded", file=sys.stderr)
        else:
            self._bar.write(_forecast_line(expected), file=sys.stderr)

    def advance(self, stage: "LoadStage", bytes_read: int, triples_loaded: int) -> None:
        """Move the bar."""
        if self._is_resumed:
            # Bytes read before the interruption must not count for the estimated time.
            self._bar.initial = self._bar.n = bytes_read
            self._is_resumed = False
        self._bar.set_description(_STAGES[stage], refresh=stage != "reading")
        self._bar.set_postfix_str(f"{triples_loaded / 1e6:,.1f} M triples loaded", refresh=False)
        self._bar.update(max(bytes_read - self._bar.n, 0))


def _summary_lines(summary: OutputSummary, directory: Path) -> Iterator[str]:
    yield f"{directory}: {summary.kept:,} triples from {summary.read:,} lines"
    for verb, reasons in (
        ("filtered", summary.filtered),
        ("rejected", summary.rejected),
        ("repaired", summary.mended),
    ):
        for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            yield f"  {verb} {count:,}: {reason}"
    if summary.rejected:
        yield f"  the rejected lines are in {directory / 'rejects.tsv'}"
    if isinstance(summary, LoadSummary):
        yield (
            f"  {summary.entities:,} entities, {summary.names:,} names and aliases, "
            f"{summary.properties:,} properties, {summary.hubs:,} hubs"
        )
    yield f"  {summary.seconds:.1f} s, {summary.size_bytes / 1e6:,.1f} MB on disk"


def _entity_line(match: NameMatch, types: Sequence[str]) -> str:
    name = f"{match.name} (as {match.matched!r})" if match.matched != match.name else match.name
    shown = ", ".join(types[:3]) + (", …" if len(types) > 3 else "")
    return f"{match.mid:<12} {name}  [{shown}]  {match.popularity:,} triples"
