"""Look-ups in the graph for one question: each is made once, counted, and sorted.

Walks go from node to node: a `Neighbourhood` looks up what is around each, and a `Walk` is a chain
of real triples. A search for relation paths goes from set to set: `Frontiers` look up the nodes at
the end of a `RelationPath`, and the relations there (RouterKGQA §3.3, equations 6 to 8).

Everything is filtered and sorted before a method caps it, so the order of the store does not
matter.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal, TypeGuard

from kbqa.kb.graph import Direction, Graph, Neighbours, name_terms, prompt_line
from kbqa.kb.schema import GraphSchema, is_telling
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.terms import LiteralTerm, Term, is_well_formed, term_order, term_text

Directions = Literal["out", "both"]

MAX_TAILS = 1000
"""The most nodes that one relation leads to from a node; others are counted and hidden."""

MAX_NODES = 200
"""The most nodes at the end of a path that are looked up."""

MAX_ASKED = 24
"""The most nodes at the end of a path whose relations are looked up, spread evenly over the known
ones: ends of one path have nearly the same relations, and each may be a hub."""

_MAX_RELATIONS = 5000


@dataclass(frozen=True, slots=True)
class WalkStep:
    """A triple of the graph, walked from its subject or, if `inverse`, from its object."""

    subject: Term
    relation: str
    object: Term
    inverse: bool = False

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
        subject, object_ = (reached, self.end) if hop.inverse else (self.end, reached)
        step = WalkStep(subject, hop.relation, object_, hop.inverse)
        return Walk(self.topic, (*self.steps, step))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record: the mid, and subject, relation, object, inverse of each step."""
        return {
            "topic": self.topic.mid,
            "steps": [
                [term_text(step.subject), step.relation, term_text(step.object), step.inverse]
                for step in self.steps
            ],
        }


def first_to_each(walks: Iterable[Walk]) -> tuple[Walk, ...]:
    """Keep the first walk to each node; nothing leads on from a literal."""
    first: dict[Term, Walk] = {}
    for walk in walks:
        if not isinstance(walk.end, LiteralTerm):
            first.setdefault(walk.end, walk)
    return tuple(first.values())


def triples_of(walks: Iterable[Walk]) -> Iterator[WalkStep]:
    """Yield the triples of walks, each once whichever way it was walked."""
    seen = set()
    for walk in walks:
        for step in walk.steps:
            triple = (step.subject, step.relation, step.object)
            if triple not in seen:
                seen.add(triple)
                yield step


def drawn_hop(hop: Hop, directions: Directions = "both") -> str:
    """Draw a relation as an option: with an arrow if it could be followed either way."""
    return f"{_arrow(hop)} {hop.relation}" if directions == "both" else hop.relation


def drawn_walk(walk: Walk, name: Callable[[Term], str]) -> str:
    """Draw a walk in a line: `->` follows a relation forwards, `<-` backwards.

    >>> walk = Walk(Entity("Kenya", "m.k")).then(Hop("a.b"), "m.1").then(Hop("c.d", True), "m.2")
    >>> drawn_walk(walk, {"m.k": "Kenya", "m.1": "Nairobi", "m.2": "Eve"}.__getitem__)
    'Kenya -> a.b -> Nairobi <- c.d <- Eve'
    """
    return name(walk.nodes[0]) + "".join(_drawn_onward(step, name) for step in walk.steps)


def drawn_step(step: WalkStep, name: Callable[[Term], str]) -> str:
    """Draw a step in the direction in which it was walked: ``Kenya -> a.b -> Nairobi``."""
    return name(step.left) + _drawn_onward(step, name)


def _drawn_onward(step: WalkStep, name: Callable[[Term], str]) -> str:
    return f" {drawn_hop(step.hop)} {_arrow(step.hop)} {name(step.reached)}"


def _arrow(hop: Hop) -> str:
    return "<-" if hop.inverse else "->"


def drawn_triple(step: WalkStep, name: Callable[[Term], str]) -> str:
    """Draw a step as the triple that the graph holds: ``(subject, relation, object)``."""
    return f"({name(step.subject)}, {step.relation}, {name(step.object)})"


def drawn_by_content(
    nodes: Sequence[Term], most: int, seed: int, question: str, node: Term, hop: Hop
) -> tuple[Term, ...]:
    """Draw some of the nodes that a relation leads to from a node; their order does not matter."""
    start = f"{seed}|{question}|{term_text(node)}|{hop.relation}|{'in' if hop.inverse else 'out'}"

    def digest(each: Term) -> str:
        return hashlib.sha256(f"{start}|{term_text(each)}".encode(errors="replace")).hexdigest()

    return tuple(sorted(nodes, key=digest)[:most])


class Neighbourhood:
    """A look-up of what is around the nodes of one question; `timed` times each query."""

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

    def hops(self, node: Term, directions: Directions = "both") -> tuple[Hop, ...]:
        """List the relations of a node except bookkeeping, sorted by name, outgoing first.

        Where the graph holds both names of an edge, only the outgoing relation is listed.
        """
        self.fetch_hops([node], directions)
        return self._hops.get((node, directions), ())

    def hops_onward(self, walks: Sequence[Walk]) -> list[tuple[Hop, ...]]:
        """List the relations at the end of each walk, but not its last one in reverse.

        A reverse relation of another name stays: from a mediator it leads on.
        """
        self.fetch_hops(walk.end for walk in walks)
        onward = []
        for walk in walks:
            last = walk.steps[-1].hop if walk.steps else None
            back = last and last.back
            onward.append(tuple(hop for hop in self.hops(walk.end) if hop != back))
        return onward

    def fetch_hops(self, nodes: Iterable[Term], directions: Directions = "both") -> None:
        """Look up the relations of nodes whose `hops` are wanted next."""
        new = [
            node
            for node in dict.fromkeys(nodes)
            if _can_be_asked(node) and (node, directions) not in self._hops
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

    def _ordered(self, leaving: Iterable[str], entering: Iterable[str]) -> tuple[Hop, ...]:
        hops = [Hop(each) for each in leaving if is_telling(each)]
        incoming = [Hop(each, True) for each in entering if is_telling(each)]
        if incoming:
            known = set(self._schema.canonical(hops))
            edges = self._schema.canonical(incoming)
            hops += [h for h, edge in zip(incoming, edges, strict=True) if edge not in known]
        return tuple(sorted(hops, key=lambda hop: (hop.relation, hop.inverse)))

    def tails(self, node: Term, hop: Hop) -> Neighbours:
        """List the terms that a relation leads to from a node: the first `MAX_TAILS` by id."""
        self.fetch_tails([(node, hop)])
        return self._tails.get((node, hop), Neighbours(()))

    def fetch_tails(self, ways: Iterable[tuple[Term, Hop]]) -> None:
        """Look up the ends of relations whose `tails` are wanted next."""
        new = [
            (node, hop)
            for node, hop in dict.fromkeys(ways)
            if _can_be_asked(node) and (node, hop) not in self._tails
        ]
        self.queries += len(new)
        directions: tuple[Direction, ...] = ("out", "in")
        for direction in directions:
            starts = [
                (node, hop.relation) for node, hop in new if hop.inverse == (direction == "in")
            ]
            if not starts:
                continue
            with self._timed():
                found = self._graph.neighbours_of_each(starts, direction, MAX_TAILS + 1)
                for node, relation in starts:
                    ends = found[node, relation]
                    self._tails[node, Hop(relation, direction == "in")] = (
                        Neighbours(tuple(sorted(ends, key=term_order)))
                        if len(ends) <= MAX_TAILS
                        else self._graph.first_neighbours(node, relation, direction, MAX_TAILS)
                    )

    def whole_names(self, nodes: Iterable[Term]) -> Mapping[Term, str]:
        """Map nodes to their names, a node without one to its id, and a literal to its text."""
        nodes = list(nodes)
        new = [node for node in dict.fromkeys(nodes) if node not in self._names]
        if any(isinstance(node, str) for node in new):
            with self._timed():
                self.queries += 1
                self._names.update(name_terms(self._graph, new))
        else:
            self._names.update((node, term_text(node)) for node in new)
        return {node: self._names[node] for node in nodes}

    def names(self, nodes: Iterable[Term]) -> Mapping[Term, str]:
        """Map nodes to their names, as prompts show them (`prompt_line`)."""
        return {node: prompt_line(name) for node, name in self.whole_names(nodes).items()}

    def whole_name(self, node: Term) -> str:
        """Return the name of a node as the graph has it."""
        return self._names[node] if node in self._names else self.whole_names([node])[node]

    def name(self, node: Term) -> str:
        """Return the name of a node, as prompts show it."""
        return prompt_line(self.whole_name(node))

    def is_nameless(self, node: Term) -> bool:
        """Return whether a node is an entity without a name, as mediators are."""
        return isinstance(node, str) and self.whole_name(node) == node

    def leads_to_mediator(self, hop: Hop) -> bool:
        """Return whether a hop ends at mediators, by the schema."""
        return self._schema.leads_to_mediator(hop)


def _can_be_asked(node: Term) -> TypeGuard[str]:
    return isinstance(node, str) and is_well_formed(node)


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

    def up_to(self, place: int) -> "RelationPath":
        """Return its first hops."""
        return RelationPath(self.topic, self.hops[:place])


def relation_path(crp: Crp) -> RelationPath | None:
    """Return the main path of a CRP; None if it has forks."""
    return RelationPath(crp.topic, crp.hops) if len(crp.hops) == len(crp.path) else None


class PathEnds:
    """A look-up of the ends of paths from some entities; each path is looked up once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ends: dict[tuple[tuple[str, ...], tuple[Hop, ...]], Sequence[Term]] = {}
        self.queries = 0

    def terms(self, starts: Sequence[str], hops: Sequence[Hop]) -> Sequence[Term]:
        """Find the terms that a path leads to from any of some entities: `MAX_NODES`, sorted."""
        if not hops:
            return list(starts)
        key = (tuple(starts), tuple(hops))
        if key not in self._ends:
            *before, hop = hops
            nodes = self.nodes(starts, before)
            self.queries += 1
            found = self._graph.frontier_neighbours(nodes, hop.relation, _direction(hop), MAX_NODES)
            self._ends[key] = sorted(found, key=str)
        return self._ends[key]

    def fetch_each(self, starts: Sequence[str], hops: Sequence[Hop]) -> None:
        """Look up the ends of a path from each entity alone, whose `terms` are wanted next."""
        new = [start for start in starts if ((start,), tuple(hops)) not in self._ends]
        if not hops or not new:
            return
        *before, hop = hops
        self.fetch_each(new, before)
        nodes = {start: self.nodes([start], before) for start in new}
        ways = [(node, hop.relation) for each in nodes.values() for node in each]
        self.queries += 1
        found = self._graph.neighbours_of_each(ways, _direction(hop), MAX_NODES)
        for start, each in nodes.items():
            ends = dict.fromkeys(end for node in each for end in found[node, hop.relation])
            self._ends[(start,), tuple(hops)] = sorted(islice(ends, MAX_NODES), key=str)

    def nodes(self, starts: Sequence[str], hops: Sequence[Hop]) -> list[str]:
        """Find the entities at a path's end that a query can name; see `terms`."""
        return list(filter(_can_be_asked, self.terms(starts, hops)))

    def hops(
        self, starts: Sequence[str], hops: Sequence[Hop], directions: Directions = "both"
    ) -> list[Hop]:
        """List the hops at a path's end: those that leave it, then those that enter it."""
        nodes = self.nodes(starts, hops)
        asked = nodes[:: -(-len(nodes) // MAX_ASKED) or 1]
        leaving = self._relations(asked, "out")
        return leaving if directions == "out" else [*leaving, *self._relations(asked, "in")]

    def _relations(self, nodes: Sequence[str], direction: Direction) -> list[Hop]:
        if not nodes:
            return []
        self.queries += 1
        found = self._graph.frontier_relations(nodes, direction, _MAX_RELATIONS)
        return [Hop(each, direction == "in") for each in found]

    def hops_of_each(self, nodes: Sequence[str]) -> dict[str, list[Hop]]:
        """Map entities to the hops that leave or enter each, looked up for all at once."""
        self.queries += 2
        leaving = self._graph.relations_of_each(nodes, "out", _MAX_RELATIONS)
        entering = self._graph.relations_of_each(nodes, "in", _MAX_RELATIONS)
        return {
            node: [*map(Hop, leaving[node]), *(Hop(each, True) for each in entering[node])]
            for node in nodes
        }


def _direction(hop: Hop) -> Direction:
    return "in" if hop.inverse else "out"


class Frontiers:
    """A look-up of the ends of the relation paths of one question, and the hops onward."""

    def __init__(self, graph: Graph, schema: GraphSchema, directions: Directions = "both") -> None:
        self.graph, self._ends = graph, PathEnds(graph)
        self._schema, self._directions = schema, directions
        self._hops: dict[RelationPath, Sequence[Hop]] = {}

    @property
    def queries(self) -> int:
        """Searches of the graph so far."""
        return self._ends.queries

    def nodes(self, path: RelationPath) -> Sequence[str]:
        """Find the entities at a path's end, at most `MAX_NODES`, sorted."""
        return self._ends.nodes(path.starts, path.hops)

    def ends(self, path: RelationPath) -> Sequence[Term]:
        """Find what a path leads to, also literals, at most `MAX_NODES`, sorted."""
        return self._ends.terms(path.starts, path.hops)

    def exists(self, path: RelationPath) -> bool:
        """Return whether a path leads to anything."""
        return bool(self.ends(path))

    def has_answer(self, path: RelationPath) -> bool:
        """Return whether a path leads to anything but its topic."""
        return any(end != path.topic.mid for end in self.ends(path))

    def hops(self, path: RelationPath) -> Sequence[Hop]:
        """List the hops that continue a path, without bookkeeping relations and the way back."""
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

    def _is_way_back(self, path: RelationPath, hop: Hop) -> bool:
        """Return whether a hop undoes the last one, by the same relation or its reverse."""
        # From a mediator the way back also leads on: to the other spouse, the other neighbour.
        if not path.hops or self.ends_at_mediator(path):
            return False
        last = path.hops[-1]
        way, way_back = self._schema.canonical([hop, last.back])
        return way == way_back
