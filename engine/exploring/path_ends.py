"""Where relation paths lead: the nodes at a path's end and the relations there, each found once.

Repair (`kbqa.engine.exploring.frontiers`) and graph-constrained writing
(`kbqa.engine.writing.constraints.path_walk`) look up paths here.

Source: RouterKGQA §3.3, equations 7 and 8.
"""

from collections.abc import Sequence
from itertools import islice

from kbqa.engine.exploring.neighbourhood import Directions
from kbqa.kb.graph import Direction, Graph
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import Term, is_well_formed

MAX_NODES = 200
"""The most nodes of a path's end that are looked up."""

MAX_ASKED = 24
"""The most nodes of a path's end whose relations are looked up. They are spread evenly over the
known ones: ends of one path have nearly the same relations, and each may be a hub."""

_MAX_RELATIONS = 5000


class PathEnds:
    """Looks up the relation paths of one question.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ends: dict[tuple[tuple[str, ...], tuple[Hop, ...]], Sequence[Term]] = {}
        self.queries = 0
        """Searches of the graph so far."""

    def terms(self, starts: Sequence[str], hops: Sequence[Hop]) -> Sequence[Term]:
        """Find what a path leads to from any of some entities, at most `MAX_NODES`, sorted.

        Raises:
            GraphError: The graph does not answer.
        """
        if not hops:
            return list(starts)
        key = (tuple(starts), tuple(hops))
        if key not in self._ends:
            *before, hop = hops
            direction: Direction = "in" if hop.inverse else "out"
            nodes = self.nodes(starts, before)
            self.queries += 1
            found = self._graph.frontier_neighbours(nodes, hop.relation, direction, MAX_NODES)
            self._ends[key] = sorted(found, key=str)
        return self._ends[key]

    def fetch_each(self, starts: Sequence[str], hops: Sequence[Hop]) -> None:
        """Look up what a path leads to from each entity alone, for all of them at once.

        Their `terms`, which are wanted next, are then known.

        Raises:
            GraphError: The graph does not answer.
        """
        new = [start for start in starts if ((start,), tuple(hops)) not in self._ends]
        if not hops or not new:
            return
        *before, hop = hops
        self.fetch_each(new, before)
        nodes = {start: self.nodes([start], before) for start in new}
        ways = [(node, hop.relation) for each in nodes.values() for node in each]
        self.queries += 1
        direction: Direction = "in" if hop.inverse else "out"
        found = self._graph.neighbours_of_each(ways, direction, MAX_NODES)
        for start, each in nodes.items():
            ends = dict.fromkeys(end for node in each for end in found[node, hop.relation])
            self._ends[(start,), tuple(hops)] = sorted(islice(ends, MAX_NODES), key=str)

    def nodes(self, starts: Sequence[str], hops: Sequence[Hop]) -> list[str]:
        """Find the entities at a path's end that a query can name; see `terms`."""
        ends = self.terms(starts, hops)
        return [end for end in ends if isinstance(end, str) and is_well_formed(end)]

    def hops(
        self, starts: Sequence[str], hops: Sequence[Hop], directions: Directions = "both"
    ) -> list[Hop]:
        """List the hops at a path's end: those that leave it, then those that enter it.

        Raises:
            GraphError: The graph does not answer.
        """
        nodes = self.nodes(starts, hops)
        asked = nodes[:: -(-len(nodes) // MAX_ASKED) or 1]
        leaving = self._relations(asked, "out")
        return leaving if directions == "out" else [*leaving, *self._relations(asked, "in")]

    def hops_of_each(self, nodes: Sequence[str]) -> dict[str, list[Hop]]:
        """Map entities to the hops that leave or enter each, looked up for all at once.

        Raises:
            GraphError: The graph does not answer.
        """
        self.queries += 2
        leaving = self._graph.relations_of_each(nodes, "out", _MAX_RELATIONS)
        entering = self._graph.relations_of_each(nodes, "in", _MAX_RELATIONS)
        return {
            node: [*map(Hop, leaving[node]), *(Hop(each, True) for each in entering[node])]
            for node in nodes
        }

    def _relations(self, nodes: Sequence[str], direction: Direction) -> list[Hop]:
        if not nodes:
            return []
        self.queries += 1
        found = self._graph.frontier_relations(nodes, direction, _MAX_RELATIONS)
        return [Hop(each, direction == "in") for each in found]
