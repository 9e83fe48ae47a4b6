"""Fuzz the loader: dumps with damaged lines, packed in any way and then damaged again."""

import bz2
import gzip
import itertools
import lzma
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import zstandard

from kbqa.kb.loading.dump import DumpReader
from kbqa.kb.loading.filter_block import BlockFilter
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.open import open_graph
from kbqa.sparql.terms import LiteralTerm
from tools.fuzz.mutation import mutated_bytes, mutated_text
from tools.fuzz.seeds import dump_lines
from tools.fuzz.trying import Try, Wrong, reported

_PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".nt": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
_LOADED = 0.05
"""The share of dumps that are loaded into a store, which takes a hundred times as long."""


@contextmanager
def dumps(folder: Path) -> Iterator[Try]:
    """Dumps: read and filtered, and some loaded."""
    lines, numbers = dump_lines(), itertools.count()

    def try_one(random: Random) -> None:
        content = _content(random, lines)
        suffix = random.choice(list(_PACKED))
        packed = _PACKED[suffix](content)
        if random.random() < 0.3:
            packed = mutated_bytes(random, packed)
        dump = folder / f"dump{suffix}"
        dump.write_bytes(packed)
        rules = profile(random.choice(("qa", "full")))
        with reported(packed):
            strict = random.random() < 0.1
            _filter(dump, BlockFilter(rules, strict=strict), random.choice((50, 500, 5000)))
        if random.random() < _LOADED:
            with reported(packed):
                store = folder / f"store-{next(numbers)}"
                summary = load_freebase([dump], store, rules=rules)
                with closing(open_graph(store)) as graph:
                    [[count]] = graph.select("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }").rows
                held = int(count.text if isinstance(count, LiteralTerm) else 0)
                if not 0 < held <= summary.kept:
                    raise Wrong(f"{held} triples of {summary.kept} are in the store")

    yield try_one


def _content(random: Random, lines: list[str]) -> bytes:
    """Draw lines, some of them damaged."""
    drawn = random.sample(lines, random.randint(1, len(lines)))
    for at in range(len(drawn)):
        if random.random() < 0.15:
            drawn[at] = mutated_text(random, drawn)
    return "".join(drawn).encode("utf-8", random.choice(("surrogatepass", "replace")))


def _filter(dump: Path, block_filter: BlockFilter, block_bytes: int) -> None:
    """Filter a dump; each of its lines must be kept, left out or rejected."""
    with closing(DumpReader(str(dump))) as reader:
        for block in reader.blocks(block_bytes=block_bytes):
            filtered = block_filter(block)
            counts = filtered.counts
            left_out = sum(counts.filtered.values()) + sum(counts.rejected.values())
            if counts.read != counts.kept + left_out:
                raise Wrong(f"{counts.read} lines are {counts.kept} kept and {left_out} left out")
            if filtered.content.count(b"\n") != counts.kept:
                raise Wrong(f"{counts.kept} lines are counted, not {filtered.content!r:.500}")
