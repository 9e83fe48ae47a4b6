"""A synthetic dump as a list of jobs, each of which makes one block."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tools.make.generated.lines import Block, DefectMaker
from tools.make.generated.node_blocks import NODES_A_BLOCK, NodeBlocks
from tools.make.generated.plan import Plan
from tools.make.generated.schema import Schema, Vocabulary
from tools.make.generated.schema_blocks import SchemaBlocks
from tools.make.generated.values import make_values

_LINES_PER_NODE = 21.6
_LINES_PER_PROPERTY = 10.0


@dataclass(frozen=True, slots=True)
class Job:
    """A block to make: the properties, a section of lists, or nodes, by number."""

    of: Literal["properties", "listings", "nodes"]
    number: int


class Dump:
    """A dump of Freebase's shape."""

    def __init__(self, lines: int, seed: int, defect_rate: float = 0.0) -> None:
        self._seed = seed
        self._defect_rate = defect_rate
        schema = Schema(lines, seed)
        of_nodes = max(lines - _LINES_PER_PROPERTY * len(schema.properties), lines / 2)
        nodes = int(of_nodes / _LINES_PER_NODE) + 1
        self.plan = Plan(nodes, len(schema.topics), len(schema.mediators), seed)
        vocabulary = Vocabulary(schema)
        values = make_values(seed)
        self._schema_blocks = SchemaBlocks(schema, self.plan, vocabulary, values.foreign_names)
        self._node_blocks = NodeBlocks(schema, self.plan, values, vocabulary)
        self._sections = self._schema_blocks.sections()

    def jobs(self) -> list[Job]:
        """List the blocks, in order."""
        node_blocks = -(-self.plan.node_count // NODES_A_BLOCK)
        return [
            Job("properties", 0),
            *(Job("listings", number) for number in range(len(self._sections))),
            *(Job("nodes", number) for number in range(node_blocks)),
        ]

    def block(self, job: Job, limit: int | None = None) -> Block:
        """Make a block of at most `limit` lines."""
        random = np.random.default_rng([self._seed, ord(job.of[0]), job.number])
        if job.of == "properties":
            lines = self._schema_blocks.property_lines()
        elif job.of == "listings":
            lines = self._schema_blocks.listing_lines(self._sections[job.number])
        else:
            lines = self._node_blocks.lines(job.number, random)
        defects = None
        if self._defect_rate:
            defects = DefectMaker(f"{self._seed} {job.of} {job.number}")
        return lines.block(random, defects, self._defect_rate, limit)
