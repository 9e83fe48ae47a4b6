"""The relation paths of one question, for a search over relations and not over nodes.

Source: RouterKGQA §3.3, equations 6 to 8.

The graph around nodes, as one question sees it: counted, cached, and in an order of its own.

Relations are fetched, filtered and sorted before any method caps them, and so are the nodes that a
relation leads to: what a method is shown never depends on the order of the store.

Where relation paths lead: the nodes at a path's end and the relations there, each found once.

Repair (`kbqa.engine.graph_walk`) and graph-constrained writing
(`kbqa.engine.writing.grammar`) look up paths here.

Source: RouterKGQA §3.3, equations 7 and 8.

Where walks go on, as Think-on-Graph and Plan-on-Graph have it: relations left, nodes drawn.

Walks: chains of real triples from a topic, each with the direction in which it was walked.

Arrows are only drawn, for prompts and people; nothing is ever read back from them.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal

from kbqa.kb.graph import Direction, Graph, Neighbours
from kbqa.kb.names.search import name_terms
from kbqa.kb.schema import GraphSchema, is_telling
from kbqa.kb.small_files import prompt_line
from kbqa.sparql.crp import Crp, Entity, Hop
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


@dataclass(frozen=True, slots=True)
class WalkStep:
    """A triple of the graph, walked from its subject or, if `inverse`, from its object."""

    subject: Term
    relation: str
    object: Term
    inverse: bool = False

    @classmethod
    def taken(cls, node: Term, hop: Hop, reached: Term) -> "WalkStep":
        """Return the step that takes a hop from a node to another."""
        ends = (reached, node) if hop.inverse else (node, reached)
        return cls(ends[0], hop.relation, ends[1], hop.inverse)

    @property
    def hop(self) -> Hop:
        """The relation with its direction."""
        return Hop(self.relation, self.inverse)

    @property
    def left(self) -> Term:
        """The node that the step leaves."""
        return self.object if self.inverse else self.subject

    @property
    def reached(self) -> Term:
        """The node that the step leads to."""
        return self.subject if self.inverse else self.object


@dataclass(frozen=True, slots=True)
class Walk:
    """A topic, with its mid, and steps from there: each leaves the node that the last reached."""

    topic: Entity
    steps: tuple[WalkStep, ...] = ()

    @property
    def end(self) -> Term:
        """The node that the walk has reached."""
        if self.steps:
            return self.steps[-1].reached
        assert self.topic.mid is not None
        return self.topic.mid

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The relations walked."""
        return tuple(step.hop for step in self.steps)

    @property
    def nodes(self) -> tuple[Term, ...]:
        """The topic and every node that was reached, in order."""
        assert self.topic.mid is not None
        return (self.topic.mid, *(step.reached for step in self.steps))

    @property
    def beginnings(self) -> tuple["Walk", ...]:
        """The walk after each of its steps, from the first to the last."""
        return tuple(Walk(self.topic, self.steps[:at]) for at in range(1, len(self.steps) + 1))

    def then(self, hop: Hop, reached: Term) -> "Walk":
        """Append a step from the walk's end."""
        return Walk(self.topic, (*self.steps, WalkStep.taken(self.end, hop, reached)))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record: the topic's mid, and subject, relation, object, inverse a step."""
        return {
            "topic": self.topic.mid,
            "steps": [
                [_text(step.subject), step.relation, _text(step.object), step.inverse]
                for step in self.steps
            ],
        }


def drawn_walk(walk: Walk, name: Callable[[Term], str]) -> str:
    """Draw a walk in a line: `->` follows a relation forwards, `<-` backwards.

    >>> walk = Walk(Entity("Kenya", "m.k")).then(Hop("a.b"), "m.1").then(Hop("c.d", True), "m.2")
    >>> drawn_walk(walk, {"m.k": "Kenya", "m.1": "Nairobi", "m.2": "Eve"}.__getitem__)
    'Kenya -> a.b -> Nairobi <- c.d <- Eve'
    """
    return name(walk.nodes[0]) + "".join(
        f" {arrow(step.hop)} {step.relation} {arrow(step.hop)} {name(step.reached)}"
        for step in walk.steps
    )


def drawn_step(step: WalkStep, name: Callable[[Term], str]) -> str:
    """Draw a step in the direction in which it was walked: ``Kenya -> a.b -> Nairobi``."""
    way = f" {arrow(step.hop)} "
    return f"{name(step.left)}{way}{step.relation}{way}{name(step.reached)}"


def arrow(hop: Hop) -> str:
    """Return the arrow of a hop."""
    return "<-" if hop.inverse else "->"


def drawn_triple(step: WalkStep, name: Callable[[Term], str]) -> str:
    """Draw a step as the triple that the graph holds: ``(subject, relation, object)``."""
    return f"({name(step.subject)}, {step.relation}, {name(step.object)})"


def triples_of(walks: Iterable[Walk]) -> Iterator[WalkStep]:
    """Yield the triples of walks, each once whichever way it was walked."""
    seen = set()
    for walk in walks:
        for step in walk.steps:
            triple = (step.subject, step.relation, step.object)
            if triple not in seen:
                seen.add(triple)
                yield step


def _text(term: Term) -> str:
    return term.text if isinstance(term, LiteralTerm) else term


def hops_onward(neighbourhood: Neighbourhood, walk: Walk) -> tuple[Hop, ...]:
    """List the relations at the end of a walk, except the last one in the opposite direction.

    The reverse of the last relation, where the graph has it by another name, stays: from a mediator
    it leads on to the other nodes.

    Raises:
        GraphError: The graph does not answer.
    """
    hops = neighbourhood.hops(walk.end)
    if not walk.steps:
        return hops
    last = walk.steps[-1].hop
    return tuple(hop for hop in hops if hop != Hop(last.relation, not last.inverse))


def first_to_each(walks: Iterable[Walk]) -> tuple[Walk, ...]:
    """Keep the first walk to each node; nothing leads on from a literal."""
    first: dict[Term, Walk] = {}
    for walk in walks:
        if not isinstance(walk.end, LiteralTerm):
            first.setdefault(walk.end, walk)
    return tuple(first.values())


def drawn_by_content(
    nodes: Sequence[Term], most: int, seed: int, question: str, node: Term, hop: Hop
) -> tuple[Term, ...]:
    """Draw some of the nodes that a relation leads to from a node, whatever their order.

    The first by the SHA-256 of ``seed|question|node|relation|out|id or text`` are drawn, with
    ``in`` for a relation that is followed backwards.
    """
    start = f"{seed}|{question}|{_text(node)}|{hop.relation}|{'in' if hop.inverse else 'out'}"

    def digest(each: Term) -> str:
        return hashlib.sha256(f"{start}|{_text(each)}".encode(errors="replace")).hexdigest()

    return tuple(sorted(nodes, key=digest)[:most])
