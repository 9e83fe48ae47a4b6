"""The relation paths of one question, for a search over relations and not over nodes.

Source: RouterKGQA §3.3, equations 6 to 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kbqa.engine.exploring.neighbourhood import Directions
from kbqa.engine.exploring.path_ends import PathEnds
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.kb.schema.telling import is_telling
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.terms import Term


@dataclass(frozen=True, slots=True)
class RelationPath:
    """A topic entity, with its mid, and the hops from there."""

    topic: Entity
    hops: tuple[Hop, ...] = ()

    @property
    def starts(self) -> tuple[str]:
        """The topic's mid, which the path starts from."""
        assert self.topic.mid is not None
        return (self.topic.mid,)

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
        self._ends, self._schema, self._directions = PathEnds(graph), schema, directions
        self._hops: dict[RelationPath, Sequence[Hop]] = {}

    @property
    def queries(self) -> int:
        """Searches of the graph so far."""
        return self._ends.queries

    def nodes(self, path: RelationPath) -> Sequence[str]:
        """Find the entities at a path's end, at most `path_ends.MAX_NODES`, sorted.

        Raises:
            GraphError: The graph does not answer.
        """
        return self._ends.nodes(path.starts, path.hops)

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
            self._hops[path] = [
                hop
                for hop in self._ends.hops(path.starts, path.hops, self._directions)
                if is_telling(hop.relation) and not self._is_way_back(path, hop)
            ]
        return self._hops[path]

    def ends_at_mediator(self, path: RelationPath) -> bool:
        """Return whether a path ends at mediators, by the schema."""
        return self._schema.leads_to_mediator(path.hops[-1])

    def _end(self, path: RelationPath) -> Sequence[Term]:
        return self._ends.terms(path.starts, path.hops)

    def _is_way_back(self, path: RelationPath, hop: Hop) -> bool:
        """Return whether a hop undoes the last one, by the same relation or its reverse.

        From a mediator the way back also leads on: to the other spouse, the other neighbour.
        """
        if not path.hops or self.ends_at_mediator(path):
            return False
        last = path.hops[-1]
        way, way_back = self._schema.canonical([hop, Hop(last.relation, not last.inverse)])
        return way == way_back
