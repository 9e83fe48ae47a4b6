"""Choose the topic entity and main path of a query: the first walk from an entity to the answer.

A class is the topic only if no entity leads to the answer.

The walk goes through triples in either direction and over variables, depth first in the order of
the text. A union is one step of the walk if each of its alternatives leads from one node to the
other.

Source: RouterKGQA, appendix B. If there are several ways, the published CRPs take this one.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from kbqa.sparql.convert.query_tree import (
    Node,
    TriplePart,
    Union,
    Variable,
    mentioned_variables,
)
from kbqa.sparql.convert.select import SelectTree
from kbqa.sparql.crp import Hop
from kbqa.sparql.errors import CrpConversionError
from kbqa.sparql.terms import is_mid


@dataclass(frozen=True, slots=True)
class TripleStep:
    """A triple as it is walked: by which hop, and where it leads."""

    part: TriplePart
    hop: Hop
    node: Node


@dataclass(frozen=True, slots=True)
class UnionStep:
    """A union as it is walked: the walk through each of its alternatives, and where all lead."""

    part: Union
    walks: tuple["Walk", ...]
    node: Node


WalkStep: TypeAlias = TripleStep | UnionStep


@dataclass(frozen=True, slots=True)
class Walk:
    """The way from a node to another."""

    start: Node
    steps: tuple[WalkStep, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes on the way, both ends included."""
        return (self.start, *(step.node for step in self.steps))


def find_main_path(tree: SelectTree) -> Walk:
    """Choose the topic entity and the walk from it to the answer.

    Raises:
        CrpConversionError: No entity leads to the answer.
    """
    entities = dict.fromkeys(
        node
        for triple in tree.group.all_triples()
        for node in (triple.subject, triple.object)
        if isinstance(node, str)
    )
    for entity in sorted(entities, key=is_mid, reverse=True):
        if (walk := _first_walk(entity, tree.answer, tree.group.parts)) is not None:
            return walk
    if tree.group.unions:
        raise CrpConversionError("union", "no entity leads to the answer in all alternatives")
    raise CrpConversionError("no topic entity", "no entity leads to the answer")


def _first_walk(start: Node, goal: Node, parts: Sequence[TriplePart | Union]) -> Walk | None:
    walks: list[Walk] = [Walk(start, ())]
    seen: set[Node] = set()
    while walks:
        walk = walks.pop()
        node = walk.nodes[-1]
        if node == goal:
            return walk if walk.steps else None
        if node in seen:
            continue
        seen.add(node)
        steps = list(_steps_from(node, goal, parts))
        walks += [Walk(start, (*walk.steps, step)) for step in reversed(steps)]
    return None


def _steps_from(node: Node, goal: Node, parts: Sequence[TriplePart | Union]) -> Iterator[WalkStep]:
    for part in parts:
        if isinstance(part, Union):
            others = (mentioned_variables(other) for other in parts if other is not part)
            yield from _union_steps(node, part, {goal, *chain.from_iterable(others)})
        elif part.subject == node and isinstance(part.object, Variable):
            yield TripleStep(part, Hop(part.relation), part.object)
        elif part.object == node and isinstance(part.subject, Variable):
            yield TripleStep(part, Hop(part.relation, inverse=True), part.subject)


def _union_steps(node: Node, union: Union, around: Collection[Node]) -> Iterator[UnionStep]:
    """Yield the steps to each node that all alternatives lead to and that is known around them."""
    ends = dict.fromkeys(
        end
        for triple in union.alternatives[0].all_triples()
        for end in (triple.subject, triple.object)
        if isinstance(end, Variable) and end != node and end in around
    )
    for end in ends:
        walks = [_first_walk(node, end, each.parts) for each in union.alternatives]
        found = tuple(walk for walk in walks if walk is not None)
        if len(found) == len(walks):
            yield UnionStep(union, found, end)
