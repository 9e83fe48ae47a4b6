"""Where relation paths lead in the graph: the set of nodes at a path's end, and their relations.

The search is over relations, not over nodes. A path's end is looked up once and kept while its
question is answered.

Source: RouterKGQA §3.3, equations 6 to 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kbqa.engine.exploring.neighbourhood import Directions
from kbqa.kb.graph import Direction, Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.kb.schema.telling import is_telling
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.terms import Term

MAX_NODES = 200
"""The most nodes of a path's end that are looked up."""

MAX_ASKED = 24
"""The most nodes of a path's end whose relations are looked up. They are spread evenly over the
known ones: ends of one path have nearly the same relations, and each may be a hub."""


@dataclass(frozen=True, slots=True)
class RelationPath:
    """A topic entity, with its mid, and the hops from there."""

    topic: Entity
    hops: tuple[Hop, ...] = ()

    def then(self, hop: Hop) -> "RelationPath":
        """Append a hop."""
        return RelationPath(self.topic, (*self.hops, hop))


def relation_path(crp: Crp) -> RelationPath | None:
    """Return the main path of a CRP; None if it has forks."""
    hops = tuple(step for step in crp.path if isinstance(step, Hop))
    return RelationPath(crp.topic, hops) if len(hops) == len(crp.path) else None


class Frontiers:
    """Looks up what the relation paths of one question reach.

    Args:
        graph: The graph.
        schema: Of that graph.
        directions: Whether hops may also enter a path's end.
    """

    def __init__(self, graph: Graph, schema: GraphSchema, directions: Directions = "both") -> None:
        self._graph, self._schema, self._directions = graph, schema, directions
        self._ends: dict[RelationPath, Sequence[Term]] = {}
        self._hops: dict[RelationPath, Sequence[Hop]] = {}
        self.queries = 0
        """Searches of the graph so far."""

    def nodes(self, path: RelationPath) -> Sequence[str]:
        """Find the entities at a path's end, at most `MAX_NODES` of them, sorted.

        Raises:
            GraphError: The graph does not answer.
        """
        return [end for end in self._end(path) if isinstance(end, str)]

    def has_answer(self, path: RelationPath) -> bool:
        """Return whether a path leads to anything but its topic."""
        return any(end != path.topic.mid for end in self._end(path))

    def exists(self, path: RelationPath) -> bool:
        """Return whether a path leads to anything."""
        return bool(self._end(path))

    def hops(self, path: RelationPath) -> Sequence[Hop]:
        """List the hops that continue a path: those that leave its end, then those that enter it.

        Bookkeeping relations and the way back are left out.
        """
        if path not in self._hops:
            asked = _spread(self.nodes(path))
            hops = self._relations(asked, "out")
            if self._directions == "both":
                hops += self._relations(asked, "in")
            self._hops[path] = [hop for hop in hops if not self._is_way_back(path, hop)]
        return self._hops[path]

    def ends_at_mediator(self, path: RelationPath) -> bool:
        """Return whether a path ends at mediators, by the schema."""
        return self._schema.leads_to_mediator(path.hops[-1])

    def _relations(self, nodes: Sequence[str], direction: Direction) -> list[Hop]:
        if not nodes:
            return []
        self.queries += 1
        found = self._graph.frontier_relations(nodes, direction)
        return [Hop(each, direction == "in") for each in found if is_telling(each)]

    def _end(self, path: RelationPath) -> Sequence[Term]:
        if not path.hops:
            assert path.topic.mid is not None
            return [path.topic.mid]
        if path not in self._ends:
            hop = path.hops[-1]
            before = self.nodes(RelationPath(path.topic, path.hops[:-1]))
            direction: Direction = "in" if hop.inverse else "out"
            self.queries += 1
            found = self._graph.frontier_neighbours(before, hop.relation, direction, MAX_NODES)
            self._ends[path] = sorted(found, key=str)
        return self._ends[path]

    def _is_way_back(self, path: RelationPath, hop: Hop) -> bool:
        """Return whether a hop undoes the last one, by the same relation or its reverse.

        From a mediator the way back also leads on: to the other spouse, the other neighbour.
        """
        if not path.hops or self.ends_at_mediator(path):
            return False
        last = path.hops[-1]
        way, way_back = self._schema.canonical([hop, Hop(last.relation, not last.inverse)])
        return way == way_back


def _spread(nodes: Sequence[str]) -> Sequence[str]:
    return nodes[:: -(-len(nodes) // MAX_ASKED) or 1]
