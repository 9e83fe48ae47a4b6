"""Add to a path what it passes over: an entity or a value that the question names.

A written path may miss a condition. Of *films with Adam Sandler that feature the song Hallo Hallo*
it then lists all his films. So where the question names an entity of which a path says nothing, or
a number, a date or a code, the graph is asked how nodes of the path are related to it. Each such
relation is a condition, and the path with it is one more candidate.

Source: Yih et al. 2015, STAGG, §3.2.3, which adds constraints to the nodes of a chain like this.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from kbqa.engine.exploring.frontiers import Frontiers, RelationPath, relation_path
from kbqa.engine.method import Asked
from kbqa.engine.methods.router.search.starts import unnamed_entities, unnamed_values
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.kb.schema.telling import is_telling
from kbqa.sparql.compiler.values import equal_literals, is_date, is_number, values_block
from kbqa.sparql.crp import Compare, Constraint, Crp, Entity, Hop, IsEntity, Test, TextEquals
from kbqa.sparql.terms import LiteralTerm, Term

_Target: TypeAlias = Entity | LiteralTerm

_Ways: TypeAlias = Mapping[str, Sequence[tuple[Hop, ...]]]
"""Nodes, each with the ways that lead from it to one target."""

_MAX_EDGES = 1000
"""A target with more edges is looked for among those of the path's nodes instead."""

_MAX_NODES = 50
"""The most nodes whose edges are then looked up."""

_EACH = 2
"""The most conditions that one target adds to a path."""


class Narrower:
    """Adds conditions to the paths of one question.

    Args:
        graph: The graph.
        schema: Of that graph.
        frontiers: Of that graph, for the question.
    """

    def __init__(self, graph: Graph, schema: GraphSchema, frontiers: Frontiers) -> None:
        self._graph, self._schema, self._frontiers = graph, schema, frontiers
        self._ways: dict[_Target, _Ways | None] = {}

    def find(self, asked: Asked, crp: Crp) -> Iterator[Crp]:
        """Yield a path with one more condition, for each that narrows it.

        Args:
            asked: The question.
            crp: A grounded path that lists or counts; others have none.

        Raises:
            GraphError: The graph does not answer.
        """
        path = relation_path(crp)
        if path is None or crp.form == "ask":
            return
        targets: list[_Target] = [*unnamed_entities(asked, crp), *unnamed_values(asked, crp)]
        for target in targets:
            for place, way in islice(self._conditions(path, target), _EACH):
                condition = Constraint(place, way, _test(target))
                yield replace(crp, constraints=(*crp.constraints, condition))

    def _conditions(
        self, path: RelationPath, target: _Target
    ) -> Iterator[tuple[int, tuple[Hop, ...]]]:
        """Yield where a path has ways to a target, and which, from the answer backwards."""
        for place in range(len(path.hops), 0, -1):
            nodes = self._frontiers.nodes(RelationPath(path.topic, path.hops[:place]))
            for way in self._narrowing(nodes, target):
                yield place, way

    def _narrowing(self, nodes: Sequence[str], target: _Target) -> list[tuple[Hop, ...]]:
        """List ways to a target that some of the nodes have, and others do not, shortest first.

        Of ways that the same nodes have, the first counts.
        """
        with_way: dict[tuple[Hop, ...], set[str]] = defaultdict(set)
        ways = self._ways_to(target, nodes)
        for node in nodes:
            for way in ways.get(node, ()):
                with_way[way].add(node)
        first: dict[frozenset[str], tuple[Hop, ...]] = {}
        for way, having in sorted(with_way.items(), key=lambda item: (len(item[0]), str(item[0]))):
            if len(having) < len(nodes):
                first.setdefault(frozenset(having), way)
        return list(first.values())

    def _ways_to(self, target: _Target, nodes: Sequence[str]) -> _Ways:
        if target not in self._ways:
            self._ways[target] = self._all_ways(target)
        ways = self._ways[target]
        if ways is not None:
            return ways
        edges = self._graph.edges(nodes[:_MAX_NODES], "out", _MAX_EDGES)
        terms = _terms(target)
        return {
            node: [(Hop(each),) for each, ends in of_node.items() if not terms.isdisjoint(ends)]
            for node, of_node in edges.items()
        }

    def _all_ways(self, target: _Target) -> _Ways | None:
        """Follow the edges of a target back, over mediators too; None if it has too many."""
        if isinstance(target, Entity):
            assert target.mid is not None
            entering = self._hops_to([target.mid])
        else:
            entering = self._hops_to_value(target)
        if entering is None:
            return None
        ways: dict[str, list[tuple[Hop, ...]]] = defaultdict(list)
        mediators: dict[str, Hop] = {}
        for node, hop, _ in entering:
            ways[node].append((hop,))
            if self._schema.leads_to_mediator(Hop(hop.relation, not hop.inverse)):
                mediators[node] = hop
        for node, hop, mediator in self._hops_to(list(mediators)[:_MAX_NODES]) or ():
            if node not in _terms(target):
                ways[node].append((hop, mediators[mediator]))
        return ways

    def _hops_to(self, mids: Sequence[str]) -> list[tuple[str, Hop, str]] | None:
        """List neighbours of entities with the hop back; None if none of them has few enough."""
        leaving, entering = (self._graph.edges(mids, each, _MAX_EDGES) for each in ("out", "in"))
        if not entering:
            return None
        return [
            (end, Hop(relation, is_inverse), mid)
            for found, is_inverse in ((leaving, True), (entering, False))
            for mid, edges in found.items()
            for relation, ends in edges.items()
            for end in ends
            if isinstance(end, str)
        ]

    def _hops_to_value(self, value: LiteralTerm) -> list[tuple[str, Hop, str]] | None:
        """List the entities with a value, and their relations to it; None if there are too many."""
        block = values_block("?value", _literals(value))
        query = f"SELECT ?node ?relation {{ {block} ?node ?relation ?value }}"
        found = self._graph.select(query, limit=_MAX_EDGES)
        if found.truncated:
            return None
        edges = [(str(node), str(relation)) for node, relation in found.rows]
        return [(node, Hop(each), value.text) for node, each in edges if is_telling(each)]


def _terms(target: _Target) -> set[Term]:
    """Return all terms of the graph that a target may be."""
    if isinstance(target, LiteralTerm):
        return set(_literals(target))
    return {target.mid} if target.mid is not None else set()


def _literals(value: LiteralTerm) -> tuple[LiteralTerm, ...]:
    if _is_number_or_date(value):
        return equal_literals(value)
    return (value, replace(value, language="en"))


def _test(target: _Target) -> Test:
    if isinstance(target, Entity):
        return IsEntity(target)
    return Compare("=", target) if _is_number_or_date(target) else TextEquals(target.text)


def _is_number_or_date(value: LiteralTerm) -> bool:
    return is_date(value) or is_number(value)
