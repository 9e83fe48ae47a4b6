"""Measure the name index as it grows: size, memory, time to build, time of each kind of look-up.

    python -m tools.bench.names [--names 100000] [--names 1000000] [--names 10000000] [--seed 1]
    python -m tools.bench.names --index STORE/names.sqlite

Indexes of made-up names (`made_names`) are built and asked, each in a separate process. The others
are compared with the first: after each figure comes its ratio to the first index's. With --index
an existing index is asked, and nothing is built.

Queries use names drawn from the index: *lookup* of the name as written; *match_spans* of a question
of 12 words that holds it; *near* of the name with one typing error or two (a letter left out, put
in, wrong, or swapped with the next); *search* of its beginning, a word of it, or the whole name
mistyped. *Found* is the share of mistyped names that are among ten results. Cold means that nothing
of the file is in memory: neither SQLite's pages nor the system's.
"""

import os
import sqlite3
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from random import Random
from string import ascii_lowercase
from tempfile import TemporaryDirectory

import click

from kbqa.kb.names.build import NameIndexBuilder
from kbqa.kb.names.index import NameIndex, NameMatch, allowed_errors
from kbqa.kb.names.keys import normalise
from tools.bench.made_names import made_names
from tools.bench.measured_run import machine

_SIZES = (100_000, 1_000_000, 10_000_000)
_QUESTION = "so tell me what is the name that {} and others had once".split()  # noqa: SIM905
_QUESTION_WORDS = 12
_LETTERS = range(4, 61)
_COLD = 100
_MB = 1e6

Figures = Mapping[str, float]


@click.command()
@click.option("--names", "sizes", multiple=True, type=click.IntRange(min=1000), help="Names.")
@click.option("--index", type=click.Path(exists=True, path_type=Path), help="Ask this index.")
@click.option("--queries", default=2000, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=1, show_default=True, help="Another seed, other names.")
@click.option(
    "--folder",
    type=click.Path(exists=True, path_type=Path, file_okay=False),
    help="Build in this folder; 300 bytes a name are taken.  [default: one for temporary files]",
)
def main(
    sizes: Sequence[int], index: Path | None, queries: int, seed: int, folder: Path | None
) -> None:
    """Measure the name index."""
    print(f"{machine()}; {time.strftime('%Y-%m-%d')}; {queries} queries of each kind, seed {seed}")
    if index is not None:
        _print_table([_alone(ask, index, queries, seed)])
        return
    measured: list[Figures] = []
    for size in sizes or _SIZES:
        with TemporaryDirectory(dir=folder) as directory:
            path = Path(directory) / "names.sqlite"
            built = _alone(build, path, size, seed)
            measured.append({**built, **_alone(ask, path, queries, seed)})
    _print_table(measured)


def build(path: Path, names: int, seed: int) -> Figures:
    """Build an index of made-up names; making them up does not count as time."""
    builder = NameIndexBuilder(path)
    seconds = 0.0
    for frame in made_names(names, seed):
        started = time.perf_counter()
        builder.add(frame)
        seconds += time.perf_counter() - started
    started = time.perf_counter()
    kept = builder.finish()
    seconds += time.perf_counter() - started
    return {
        "names and aliases": kept,
        "building, s": seconds,
        "building, peak MB": _peak_mb(),
        "bytes a name": path.stat().st_size / kept,
    }


def ask(path: Path, queries: int, seed: int) -> Figures:
    """Ask an index: each kind of query cold, and then warm."""
    random = Random(seed)
    drawn = _draw(path, random, queries)
    once = [(key, text) for key in drawn if (text := mistype(key, 1, random))]
    twice = [(key, text) for key in drawn if (text := mistype(key, 2, random))]
    kinds: dict[str, tuple[Callable[[NameIndex, str], object], list[str]]] = {
        "lookup": (NameIndex.lookup, drawn),
        "match_spans": (_match_spans, drawn),
        "near, 1 error": (NameIndex.near, [text for _, text in once]),
        "near, 2 errors": (NameIndex.near, [text for _, text in twice]),
        "search": (NameIndex.search, [_part(key, random) for key in drawn]),
    }
    figures: dict[str, float] = {"file, MB": path.stat().st_size / _MB}
    for kind, (run, texts) in kinds.items():
        figures[f"{kind}, cold, median ms"] = statistics.median(
            _cold_ms(path, run, text) for text in texts[:_COLD]
        )
    with closing(NameIndex.open(path)) as index:
        for kind, (run, texts) in kinds.items():
            for text in texts:
                run(index, text)
            times = sorted(_ms(run, index, text) for text in texts)
            figures[f"{kind}, median ms"] = statistics.median(times)
            figures[f"{kind}, p99 ms"] = times[int(0.99 * (len(times) - 1))]
            figures[f"{kind}, worst ms"] = times[-1]
        for errors, texts_of in (("1 error", once), ("2 errors", twice)):
            found = [key in _keys(index.near(text)) for key, text in texts_of]
            figures[f"near, {errors}, found"] = statistics.mean(found)
    return {**figures, "asking, peak MB": _peak_mb()}


def mistype(key: str, errors: int, random: Random) -> str | None:
    """Make typing errors in a key's letters and spaces; None if it may not hold that many."""
    text = key
    for _ in range(errors):
        places = [at for at, letter in enumerate(text[:-1]) if not letter.isdigit()]
        if not places:
            return None
        at = random.choice(places)
        before, letter, after = text[:at], text[at], text[at + 1 :]
        other = random.choice(ascii_lowercase)
        text = random.choice(
            (
                before + after,
                before + other + letter + after,
                before + other + after,
                before + after[0] + letter + after[1:],
            )
        )
    typed = normalise(text)
    return text if typed != key and allowed_errors(typed) >= errors else None


def _draw(path: Path, random: Random, count: int) -> list[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        (last,) = connection.execute("SELECT max(id) FROM key").fetchone()
        ids = random.sample(range(1, last + 1), min(last, 2 * count))
        read = (
            connection.execute("SELECT key FROM key WHERE id = ?", (key_id,)).fetchone()[0]
            for key_id in ids
        )
        fit = [key for key in read if len(key) in _LETTERS]
    return fit[:count]


def _match_spans(index: NameIndex, name: str) -> object:
    at = _QUESTION.index("{}")
    words = [*_QUESTION[:at], *name.split(), *_QUESTION[at + 1 :]]
    return index.match_spans(words[:_QUESTION_WORDS])


def _part(key: str, random: Random) -> str:
    beginning = key[: max(3, 2 * len(key) // 3)]
    return random.choice((beginning, random.choice(key.split()), mistype(key, 1, random) or key))


def _keys(matches: Sequence[NameMatch]) -> set[str]:
    return {normalise(match.matched) for match in matches}


def _ms(run: Callable[[NameIndex, str], object], index: NameIndex, text: str) -> float:
    started = time.perf_counter()
    run(index, text)
    return 1000 * (time.perf_counter() - started)


def _cold_ms(path: Path, run: Callable[[NameIndex, str], object], text: str) -> float:
    file = os.open(path, os.O_RDONLY)
    try:
        # Pages that are still to be written are not dropped.
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
    with closing(NameIndex.open(path)) as index:
        return _ms(run, index, text)


def _alone(
    measure: Callable[[Path, int, int], Figures], path: Path, count: int, seed: int
) -> Figures:
    # In a separate process, so that its peak memory is that of the work.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, path, count, seed).result()


def _peak_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / _MB
    raise RuntimeError("the system does not report the peak memory")


def _print_table(columns: Sequence[Figures]) -> None:
    for figure in columns[0]:
        cells = [f"{column[figure]:14,.{_decimals(column[figure])}f}" for column in columns]
        ratios = ["", *(f"  ×{column[figure] / columns[0][figure]:5.1f}" for column in columns[1:])]
        both = "".join(cell + ratio for cell, ratio in zip(cells, ratios, strict=True))
        print(f"{figure:32}{both}")


def _decimals(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 20 else 3


if __name__ == "__main__":
    main()
