"""Read rendered prompts: their question, lines such as ``Topic entity: …``, options and paths."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kbqa.sparql.crp import Hop

_FIELD = re.compile(r"^([A-Z][A-Za-z ]{2,40}):[ ]?(.*)$", re.MULTILINE)
_OPTION = re.compile(r"^(\d+)\. (.*)$")
_HOP = re.compile(r" (->|<-) (\S+) (?:->|<-) ")
_RELATION = re.compile(r"(?:(->|<-) )?([a-z0-9_]+(?:\.[a-z0-9_]+)+)")
TRIPLE = re.compile(r"(?:- )?\((.*?), ([a-z0-9_]+(?:\.[A-Za-z0-9_]+)+), (.*)\)")
"""A triple as prompts write it: subject, relation and object."""

_MOST = re.compile(r"\bat most (\d+)\b|, (\d+) at most,")


class WrittenPath(NamedTuple):
    """A path as prompts write it, from left to right: the names of its nodes, and the hops."""

    nodes: tuple[str, ...]
    hops: tuple[Hop, ...]

    @property
    def turned(self) -> "WrittenPath":
        """The same from right to left."""
        hops = tuple(Hop(hop.relation, not hop.inverse) for hop in reversed(self.hops))
        return WrittenPath(self.nodes[::-1], hops)


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt: all messages, one after the other."""

    text: str

    @cached_property
    def question(self) -> str:
        """The question, which is the last one of the prompt."""
        return self.field("Question")

    def field(self, name: str) -> str:
        """Return what follows a name on its last line; empty if no line begins with it."""
        found = [text for key, text in _FIELD.findall(self.text) if key == name]
        return found[-1].strip() if found else ""

    def lines(self, name: str) -> list[str]:
        """Return the lines below a heading, without their numbers, up to a line that has none."""
        _, _, rest = self.text.rpartition(f"\n{name}:\n")
        return [_OPTION.sub(r"\2", line) for line in rest.splitlines() if line.strip()]

    def says(self, words: str) -> bool:
        """Return whether the prompt has these words."""
        return words in self.text

    @property
    def most(self) -> int:
        """How many options may be chosen."""
        match = _MOST.search(self.text)
        return int(match[1] or match[2]) if match else 1


def read_relation(text: str) -> Hop:
    """Read a relation with its arrow, or without one if it is followed forwards.

    >>> read_relation("<- a.b"), read_relation("a.b")
    (Hop(relation='a.b', inverse=True), Hop(relation='a.b', inverse=False))
    """
    arrow, _, relation = text.rpartition(" ")
    return Hop(relation, arrow == "<-")


def read_relations(text: str) -> tuple[Hop, ...]:
    """Read all relations that a text names, in order.

    >>> [hop.relation for hop in read_relations("First -> a.b, then <- c.d.")]
    ['a.b', 'c.d']
    """
    return tuple(Hop(relation, arrow == "<-") for arrow, relation in _RELATION.findall(text))


def read_path(text: str) -> WrittenPath:
    """Read a path.

    >>> read_path("Kenya -> a.b -> Nairobi <- c.d <- Eve").nodes
    ('Kenya', 'Nairobi', 'Eve')
    """
    parts = _HOP.split(text)
    hops = (Hop(r, arrow == "<-") for arrow, r in zip(parts[1::3], parts[2::3], strict=True))
    return WrittenPath(tuple(parts[0::3]), tuple(hops))


def numbers_of(chosen: Sequence[int], options: Sequence[str]) -> list[str]:
    """Write chosen options: by number, as several may have one name; by name if that is a number.

    >>> numbers_of([1, 0], ["Paris", "Paris"]), numbers_of([0], ["1"])
    (['2', '1'], ['1'])
    """
    written = [str(at + 1) for at in chosen]
    return [options[at] if n in options else n for at, n in zip(chosen, written, strict=True)]
