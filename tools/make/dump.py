"""Make a synthetic dump with the shape of Freebase, of any size.

    python -m tools.make.dump --lines 50000000 --output dump.nt.gz [--defects 0.01 --truth TRUTH]

It is shaped like the dump of 2015: three topics for two mediators, some 22 lines each, 2,000 types,
13,000 properties in both directions, the same repeated statements, hubs, names in thirty languages,
lines grouped by subject. A line has 135 bytes, and a twelfth of that compressed. The same number of
lines and the same seed give the same bytes, with any number of processes. `generated/` makes the
content block by block; this module compresses the blocks and puts them in order.
"""

import gzip
import json
import sys
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import click
import numpy as np
from tqdm import tqdm

from tools.make.generated.lines import Block
from tools.make.generated.node_blocks import NODES_A_BLOCK, NodeBlocks
from tools.make.generated.plan import Plan
from tools.make.generated.schema import Schema
from tools.make.generated.schema_blocks import SchemaBlocks
from tools.make.generated.values import make_values
from tools.options import NEW_FILE

_STDOUT = "-"
_AHEAD = 2

_LINES_PER_NODE = 21.6
_LINES_PER_PROPERTY = 10.0

_dump: "Dump"
_is_compressed: bool


class Job(NamedTuple):
    """A block to make: the properties, a section of lists, or nodes, by number."""

    of: Literal["properties", "listings", "nodes"]
    number: int


class Dump:
    """A dump of Freebase's shape."""

    def __init__(self, lines: int, seed: int, defect_rate: float) -> None:
        self._seed, self._defect_rate = seed, defect_rate
        schema, values = Schema(lines, seed), make_values(seed)
        of_nodes = max(lines - _LINES_PER_PROPERTY * len(schema.properties), lines / 2)
        nodes = int(of_nodes / _LINES_PER_NODE) + 1
        self._plan = Plan(nodes, len(schema.topics), len(schema.mediators), seed)
        self._schema_blocks = SchemaBlocks(schema, self._plan, values)
        self._node_blocks = NodeBlocks(schema, self._plan, values)
        self._sections = self._schema_blocks.sections()

    def jobs(self) -> Iterator[Job]:
        """Yield the blocks, in order."""
        yield Job("properties", 0)
        yield from (Job("listings", number) for number in range(len(self._sections)))
        for number in range(-(-self._plan.node_count // NODES_A_BLOCK)):
            yield Job("nodes", number)

    def block(self, job: Job, limit: int | None) -> Block:
        """Make a block of at most `limit` lines."""
        random = np.random.default_rng([self._seed, ord(job.of[0]), job.number])
        if job.of == "properties":
            lines = self._schema_blocks.property_lines()
        elif job.of == "listings":
            lines = self._schema_blocks.listing_lines(self._sections[job.number])
        else:
            lines = self._node_blocks.lines(job.number, random)
        seed = f"{self._seed} {job.of} {job.number}"
        return lines.block(random, self._defect_rate, seed, limit)


class _Made(NamedTuple):
    content: bytes
    lines: int
    plain_bytes: int
    defects: Counter[str]


@click.command()
@click.option("--lines", required=True, type=click.IntRange(min=1), help="Number of lines.")
@click.option("--seed", default=1, show_default=True, help="Another seed makes another dump.")
@click.option(
    "--defects",
    "defect_rate",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 0.5),
    help="Share of lines with a defect.",
)
@click.option(
    "--output",
    default=_STDOUT,
    show_default=True,
    metavar="FILE",
    help="Compressed if the name ends in .gz; - is standard output.",
)
@click.option(
    "--truth",
    type=NEW_FILE,
    help="Write the numbers of lines, bytes and defects by kind to this file, as JSON.",
)
@click.option("--processes", default=2, show_default=True, type=click.IntRange(min=1))
def main(
    lines: int, seed: int, defect_rate: float, output: str, truth: Path | None, processes: int
) -> None:
    """Make a synthetic dump with the shape of Freebase."""
    counts: Counter[str] = Counter()
    made = plain_bytes = 0
    with ExitStack() as stack:
        file: BinaryIO = sys.stdout.buffer
        if output != _STDOUT:
            file = stack.enter_context(Path(output).open("wb"))
        bar = stack.enter_context(tqdm(total=lines, unit="line", unit_scale=True, disable=None))
        settings = (lines, seed, defect_rate, output.endswith(".gz"))
        for block in _blocks(settings, processes):
            file.write(block.content)
            made += block.lines
            plain_bytes += block.plain_bytes
            counts += block.defects
            bar.update(block.lines)
    if truth is not None:
        figures = {"lines": made, "bytes": plain_bytes, "seed": seed}
        told = {**figures, "defects": dict(sorted(counts.items()))}
        truth.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _blocks(settings: tuple[int, int, float, bool], processes: int) -> Iterator[_Made]:
    """Make blocks in order until there are enough lines; cut the last block to fit."""
    wanted, seed, defect_rate, _ = settings
    jobs = Dump(wanted, seed, defect_rate).jobs()
    running: deque[tuple[Job, Future[_Made]]] = deque()
    with ProcessPoolExecutor(processes, initializer=_prepare, initargs=settings) as pool:
        while wanted:
            while len(running) < processes + _AHEAD and (job := next(jobs, None)) is not None:
                running.append((job, pool.submit(_make, job)))
            if not running:
                raise RuntimeError(f"the dump ended {wanted} lines early")
            job, future = running.popleft()
            block = future.result()
            if block.lines > wanted:
                for _, unneeded in running:
                    unneeded.cancel()
                block = pool.submit(_make, job, wanted).result()
            wanted -= block.lines
            yield block
        for _, unneeded in running:
            unneeded.cancel()


def _prepare(lines: int, seed: int, defect_rate: float, is_compressed: bool) -> None:
    global _dump, _is_compressed
    _dump = Dump(lines, seed, defect_rate)
    _is_compressed = is_compressed


def _make(job: Job, limit: int | None = None) -> _Made:
    block = _dump.block(job, limit)
    content = gzip.compress(block.text, 6, mtime=0) if _is_compressed else block.text
    return _Made(content, block.lines, len(block.text), block.defects)


if __name__ == "__main__":
    main()
