"""How far the writing of CRPs is constrained, and by what.

Level ``grammar`` lets a model write nothing but CRPs; ``schema`` in these only relations that the
graph has; ``graph`` lets main paths start from the question's topics alone, and take at each step a
relation by which the graph goes on from the nodes reached so far. So a main path is reachable by
construction, and what a model would make up is never written. Where a question's topics are not
known, ``graph`` is ``schema``.
"""

from collections.abc import Sequence

from kbqa.engine.crp_grammar import AnySteps, Options, Steps, start
from kbqa.engine.generate import Request
from kbqa.engine.levels import GRAPH_LEVELS, Level
from kbqa.engine.path_walk import KnownRelations, PathWalk
from kbqa.kb.graph import Graph
from kbqa.kb.relation_list import list_relations


class Decoding:
    """A level, with the graph that it needs.

    Args:
        level: See the module's docstring.
        graph: For the levels ``schema`` and ``graph``.

    Raises:
        ValueError: The level needs a graph, and there is none.
        GraphError: The graph does not answer, or holds no relation.
    """

    def __init__(self, level: Level = "none", graph: Graph | None = None) -> None:
        self.level = level
        self._graph = graph
        self._known = None
        self.relations: Sequence[str] | None = None
        """What paths may take, as ids; None where they may take any relation."""
        if level in GRAPH_LEVELS:
            if graph is None:
                raise ValueError(f"decoding by {level} needs a graph")
            self.relations = list_relations(graph)
            self._known = KnownRelations(self.relations)

    def begin(self, request: Request) -> Options | None:
        """Say how the CRPs of a request may begin; None where they may be any text."""
        return None if self.level == "none" else start(self._steps(request))

    def _steps(self, request: Request) -> Steps:
        if self._known is None or self._graph is None:
            return AnySteps()
        if self.level == "graph":
            walk = PathWalk(self._graph, request.topics, self._known)
            if walk.has_topics:
                return walk
        return self._known
