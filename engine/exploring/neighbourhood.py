"""The graph around nodes, as one question sees it: counted, cached, and in an order of its own.

Relations are fetched, filtered and sorted before any method caps them, and so are the nodes that a
relation leads to: what a method is shown never depends on the order of the store.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Literal

from kbqa.kb.escaping import prompt_line
from kbqa.kb.graph import Direction, Graph, Neighbours
from kbqa.kb.names.search import name_terms
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.kb.schema.telling import is_telling
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import LiteralTerm, Term, is_well_formed, term_order

Directions = Literal["out", "both"]

MAX_TAILS = 1000
"""Nodes that one relation leads to, at most; the others are counted and hidden."""


class Neighbourhood:
    """Looks up what is around the nodes of one question, each thing once.

    Args:
        graph: The graph.
        schema: Of that graph.
        timed: Entered for each lookup that is not answered from memory, to time it.
    """

    def __init__(
        self,
        graph: Graph,
        schema: GraphSchema,
        timed: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._graph, self._schema, self._timed = graph, schema, timed
        self._hops: dict[tuple[Term, Directions], tuple[Hop, ...]] = {}
        self._tails: dict[tuple[Term, Hop], Neighbours] = {}
        self._names: dict[Term, str] = {}
        self.queries = 0
        """Lookups in the graph so far."""

    def hops(self, node: Term, directions: Directions = "both") -> tuple[Hop, ...]:
        """List the relations of a node, sorted by name, outgoing before incoming.

        Bookkeeping relations are left out. Where the graph holds both names of an edge, a relation
        and its reverse, only the outgoing one is listed.

        Raises:
            GraphError: The graph does not answer.
        """
        self.fetch_hops([node], directions)
        return self._hops.get((node, directions), ())

    def fetch_hops(self, nodes: Iterable[Term], directions: Directions = "both") -> None:
        """Look up the relations of nodes whose `hops` are wanted next, all at once.

        Raises:
            GraphError: The graph does not answer.
        """
        new = [
            node
            for node in dict.fromkeys(nodes)
            if isinstance(node, str)
            and is_well_formed(node)
            and (node, directions) not in self._hops
        ]
        if not new:
            return
        with self._timed():
            self.queries += len(new)
            leaving = self._graph.relations_of_each(new, "out")
            entering: Mapping[str, Sequence[str]] = {}
            if directions == "both":
                self.queries += len(new)
                entering = self._graph.relations_of_each(new, "in")
                # An endpoint's schema is asked for all relations together.
                self._schema.of(chain(*leaving.values(), *entering.values()))
            for node in new:
                hops = self._ordered(leaving[node], entering.get(node, ()))
                self._hops[node, directions] = hops

    def tails(self, node: Term, hop: Hop) -> Neighbours:
        """List what a relation leads to from a node: at most `MAX_TAILS` terms, the first by id.

        Raises:
            GraphError: The graph does not answer.
        """
        self.fetch_tails([(node, hop)])
        return self._tails.get((node, hop), Neighbours(()))

    def fetch_tails(self, ways: Iterable[tuple[Term, Hop]]) -> None:
        """Look up what relations lead to from nodes whose `tails` are wanted next, all at once.

        Raises:
            GraphError: The graph does not answer.
        """
        new = [
            (node, hop)
            for node, hop in dict.fromkeys(ways)
            if isinstance(node, str) and is_well_formed(node) and (node, hop) not in self._tails
        ]
        self.queries += len(new)
        directions: tuple[Direction, ...] = ("out", "in")
        for direction in directions:
            wanted = [(node, hop) for node, hop in new if hop.inverse == (direction == "in")]
            if not wanted:
                continue
            starts = [(node, hop.relation) for node, hop in wanted]
            with self._timed():
                found = self._graph.neighbours_of_each(starts, direction, MAX_TAILS + 1)
                for (node, hop), start in zip(wanted, starts, strict=True):
                    ends = found[start]
                    self._tails[node, hop] = (
                        Neighbours(tuple(sorted(ends, key=term_order)))
                        if len(ends) <= MAX_TAILS
                        else self._graph.first_neighbours(*start, direction, MAX_TAILS)
                    )

    def names(self, nodes: Iterable[Term]) -> Mapping[Term, str]:
        """Map nodes to their names, as prompts show them (`prompt_line`).

        A node without a name maps to its id, a literal to its text.

        Raises:
            GraphError: The graph does not answer.
        """
        return {node: prompt_line(name) for node, name in self.whole_names(nodes).items()}

    def whole_names(self, nodes: Iterable[Term]) -> Mapping[Term, str]:
        """Map nodes to their names as the graph has them; see `names`."""
        nodes = list(nodes)
        new = [node for node in dict.fromkeys(nodes) if node not in self._names]
        if any(isinstance(node, str) for node in new):
            with self._timed():
                self.queries += 1
                self._names.update(name_terms(self._graph, new))
        else:
            self._names.update((node, node.text) for node in new if isinstance(node, LiteralTerm))
        return {node: self._names[node] for node in nodes}

    def name(self, node: Term) -> str:
        """Return the name of a node, as prompts show it; see `names`."""
        return prompt_line(self.whole_name(node))

    def whole_name(self, node: Term) -> str:
        """Return the name of a node as the graph has it; see `names`."""
        return self._names[node] if node in self._names else self.whole_names([node])[node]

    def is_nameless(self, node: Term) -> bool:
        """Return whether a node is an entity without a name, as mediators are."""
        return isinstance(node, str) and self.whole_name(node) == node

    def leads_to_mediator(self, hop: Hop) -> bool:
        """Return whether a hop ends at mediators, by the schema."""
        return self._schema.leads_to_mediator(hop)

    def is_way_back(self, hop: Hop, last: Hop) -> bool:
        """Return whether a hop undoes the last one, by the same relation or its reverse."""
        way, way_back = self._schema.canonical([hop, Hop(last.relation, not last.inverse)])
        return way == way_back

    def _ordered(self, leaving: Iterable[str], entering: Iterable[str]) -> tuple[Hop, ...]:
        hops = [Hop(each) for each in leaving if is_telling(each)]
        incoming = [Hop(each, True) for each in entering if is_telling(each)]
        if incoming:
            known = set(self._schema.canonical(hops))
            edges = self._schema.canonical(incoming)
            hops += [h for h, edge in zip(incoming, edges, strict=True) if edge not in known]
        return tuple(sorted(hops, key=lambda hop: (hop.relation, hop.inverse)))
