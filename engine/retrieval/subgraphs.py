"""The neighbourhood of a question's topics, as arrays: the triples that a retriever chooses from.

The search expands the nearest entities first. Of equally near ones it takes first those reached by
relations with few edges, then goes by id.

- An edge to a mediator is no hop. The search stops at literals and hubs.
- Topics are expanded both ways, other entities only along the edges that leave them. No gold path
  of 2,274 sampled training questions of WebQSP and CWQ enters an entity on its way by a relation
  that has no reverse.
- Freebase states both relations of a pair. The second is taken from the schema and not read.

Source: He et al. 2021, *Improving multi-hop knowledge base question answering by learning
intermediate supervision signals* (NSM), for mediators and PageRank with its numbers; SubgraphRAG
§4.1 and its code for distances.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from kbqa.kb.graph import Direction, Edges, Graph, Schema
from kbqa.kb.schema import GraphSchema, is_telling
from kbqa.sparql.terms import Term, is_well_formed, term_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RESTART = 0.8  # the probability of a walk to go back to a topic at each step of PageRank
PAGE_RANK_ROUNDS = 20
DISTANCE_ROUNDS = 2

_BATCH = 50  # entities that are looked up together

_Places: TypeAlias = "NDArray[np.integer[Any]]"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of a neighbourhood.

    A topic that is a hub is expanded by those of its relations that have at most `per_relation`
    edges. Edges are sorted before they are cut, so every kind of graph gives the same.
    """

    hops: int = 2  # from a topic
    per_relation: int = 100  # edges of one relation of an entity: the first by `term_order`
    per_node: int = 1000  # edges in a direction; an entity with more is a hub
    frontier: int = 300  # expanded entities, topics not counted
    triples: int = 12_000  # those near the topics by PageRank are kept


@dataclass(frozen=True, slots=True)
class Cut:
    """Counts of what was left out of a subgraph because there was too much."""

    relations: int = 0  # of expanded entities, in a direction, of which not all edges were read
    hubs: int = 0  # entities within reach, not expanded because of their many edges
    entities: int = 0  # other entities within reach that were not expanded
    triples: int = 0  # that were read and then left out


@dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """Triples: triple `i` is ``nodes[heads[i]], relations[links[i]], nodes[tails[i]]``."""

    nodes: tuple[Term, ...]  # each once
    relations: tuple[str, ...]  # sorted
    heads: "NDArray[np.int32]"
    links: "NDArray[np.int32]"
    tails: "NDArray[np.int32]"
    topics: int  # how many of the first nodes are topics
    cut: Cut = Cut()


def extract(
    graph: Graph,
    schema: GraphSchema,
    topics: Sequence[str],
    caps: Caps | None = None,
    *,
    both_names: bool = True,
) -> Subgraph:
    """Extract the neighbourhood of topics, given by their ids; unknown ones have no triples.

    With `both_names`, an edge is there by both of its relations, as in Freebase, else only by the
    one that comes first by name.

    Raises:
        GraphError: The graph does not answer.
    """
    caps, topics = caps or Caps(), tuple(dict.fromkeys(topics))
    search = _EdgeSearch(graph, schema, caps)
    search.run(topics)
    reverses = _reverses(schema, {group.relation for group in search.groups})
    whole = _as_arrays(topics, search.groups, reverses, both_names, search.cut())
    return _nearest(whole, caps.triples)


class _Group(NamedTuple):
    """Edges of one relation of an entity."""

    entity: str
    relation: str
    ends: Sequence[Term]
    direction: Direction


class _EdgeSearch:
    """The search for the edges around the topics of one question."""

    def __init__(self, graph: Graph, schema: GraphSchema, caps: Caps) -> None:
        self._graph, self._schema, self._caps = graph, schema, caps
        self.groups: list[_Group] = []
        self._queue: list[tuple[int, int, str]] = []
        self._places: dict[str, tuple[int, int]] = {}  # hops and choices that lead to an entity
        self._expanded: set[str] = set()
        self._hubs = self._cut_relations = 0

    def run(self, topics: Sequence[str]) -> None:
        """Expand the topics, then entities in order until none are left, or enough are done."""
        self._places.update((topic, (0, 1)) for topic in topics)
        known = [topic for topic in topics if is_well_formed(topic)]
        self._expanded.update(topics)
        directions: tuple[Direction, ...] = ("out", "in")
        for direction in directions:
            found = dict(self._graph.edges(known, direction, self._caps.per_node))
            hubs = [topic for topic in known if topic not in found]
            self._add(found | {hub: self._few(hub, direction) for hub in hubs}, direction)
        left = self._caps.frontier
        while left and (batch := self._next(min(left, _BATCH))):
            left -= len(batch)
            onward = self._graph.edges(batch, "out", self._caps.per_node)
            self._hubs += len(batch) - len(onward)
            self._add(onward, "out")

    def cut(self) -> Cut:
        """Count what the search left out."""
        waiting = {entity for _, _, entity in self._queue} - self._expanded
        return Cut(self._cut_relations, self._hubs, len(waiting))

    def _few(self, hub: str, direction: Direction) -> Edges:
        """List the edges of a hub's relations that have few edges."""
        edges: dict[str, Sequence[Term]] = {}
        most = self._caps.per_relation
        telling = filter(is_telling, self._graph.relations(hub, direction))
        ways = [(hub, relation) for relation in telling]
        found = self._graph.neighbours_of_each(ways, direction, most + 1)
        for (_, relation), ends in found.items():
            if len(ends) <= most:
                edges[relation] = sorted(ends, key=term_order)
            else:
                self._cut_relations += 1
        return edges

    def _add(self, found: Mapping[str, Edges], direction: Direction) -> None:
        """Take the edges of entities, and queue where they lead."""
        relations = set(chain.from_iterable(found.values()))
        schema = self._schema.of(relations)
        no_hop = {each for each in relations if _ends_at_mediator(schema, each, direction)}
        for entity, edges in found.items():
            hops, choices = self._places[entity]
            for relation, ends in edges.items():
                kept = ends[: self._caps.per_relation]
                self._cut_relations += len(kept) < len(ends)
                if kept:
                    self.groups.append(_Group(entity, relation, kept, direction))
                there = hops if relation in no_hop else hops + 1
                if there < self._caps.hops:
                    self._reach(kept, (there, choices * len(ends)))

    def _reach(self, ends: Iterable[Term], place: tuple[int, int]) -> None:
        """Queue the entities that this place is better for."""
        for end in ends:
            if isinstance(end, str) and end not in self._expanded:
                before = self._places.get(end)
                if before is None or place < before:
                    self._places[end] = place
                    heapq.heappush(self._queue, (*place, end))

    def _next(self, most: int) -> list[str]:
        """Take the next entities off the queue; all are equally many hops away."""
        batch: list[str] = []
        while self._queue and len(batch) < most:
            hops, _, entity = self._queue[0]
            if batch and hops > self._places[batch[0]][0]:
                break
            heapq.heappop(self._queue)
            if entity not in self._expanded and is_well_formed(entity):
                self._expanded.add(entity)
                batch.append(entity)
        return batch


def _ends_at_mediator(schema: Schema, relation: str, direction: Direction) -> bool:
    stated = schema.property(relation)
    if stated is None:
        return False
    end = stated.expected_type if direction == "out" else stated.domain
    return end is not None and schema.is_mediator(end)


def _reverses(schema: GraphSchema, relations: set[str]) -> dict[str, str]:
    """Map relations to their reverses."""
    known = schema.of(relations)
    stated = filter(None, (known.property(relation) for relation in relations))
    return {each.id: each.reverse for each in stated if each.reverse and is_telling(each.reverse)}


def _as_arrays(
    topics: Sequence[str],
    groups: Sequence[_Group],
    reverses: Mapping[str, str],
    both_names: bool,
    cut: Cut,
) -> Subgraph:
    """Number nodes and relations, and give each edge both of its names, or the first of them."""
    import numpy as np

    met = set(chain.from_iterable(group.ends for group in groups))
    met.update(group.entity for group in groups)
    nodes = (*topics, *sorted(met.difference(topics), key=term_order))
    relations = sorted({*reverses.values(), *(group.relation for group in groups)})

    sizes = [len(group.ends) for group in groups]
    near = np.repeat(_places([group.entity for group in groups], nodes), sizes)
    links = np.repeat(_places([group.relation for group in groups], relations), sizes)
    far = _places(chain.from_iterable(group.ends for group in groups), nodes)
    is_in = np.repeat(np.array([group.direction == "in" for group in groups], np.bool_), sizes)
    heads, tails = np.where(is_in, far, near), np.where(is_in, near, far)

    # A relation without a reverse is its own here.
    others = _places((reverses.get(each, each) for each in relations), relations)[links]
    has_two = np.array([each in reverses for each in relations], np.bool_)[links]
    turned = has_two & np.array([isinstance(node, str) for node in nodes], np.bool_)[tails]
    kept = np.ones_like(turned)
    if not both_names:
        turned &= others < links
        kept = ~turned
    heads, links, tails = (
        np.concatenate([heads[kept], tails[turned]]),
        np.concatenate([links[kept], others[turned]]),
        np.concatenate([tails[kept], heads[turned]]),
    )
    # As one number each, triples are sorted sooner, and those that came twice fall together.
    ones = np.unique((heads * len(relations) + links) * len(nodes) + tails)
    rest, tails = np.divmod(ones, len(nodes) or 1)
    heads, links = np.divmod(rest, len(relations) or 1)
    used, [links] = _renumber(relations, [links], 0)
    heads, links, tails = (each.astype(np.int32) for each in (heads, links, tails))
    return Subgraph(nodes, used, heads, links, tails, len(topics), cut)


def _places(wanted: Iterable[_T], things: Iterable[_T]) -> _Places:
    """Return the place of each wanted thing among the things."""
    import numpy as np

    at = {thing: place for place, thing in enumerate(things)}
    return np.fromiter((at[each] for each in wanted), np.int64)


def _nearest(subgraph: Subgraph, most: int) -> Subgraph:
    """Keep the triples between the nodes that PageRank puts first."""
    import numpy as np

    heads, tails, size = subgraph.heads, subgraph.tails, len(subgraph.nodes)
    if len(heads) <= most:
        return subgraph
    scores = page_rank(heads, tails, size, subgraph.topics)
    ranks = np.empty(size, np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(size)
    farther = np.maximum(ranks[heads], ranks[tails])
    kept = np.sort(np.argsort(farther, kind="stable")[:most])
    nodes, ends = _renumber(subgraph.nodes, [heads[kept], tails[kept]], subgraph.topics)
    relations, [links] = _renumber(subgraph.relations, [subgraph.links[kept]], 0)
    cut = replace(subgraph.cut, triples=len(subgraph.heads) - most)
    return Subgraph(nodes, relations, ends[0], links, ends[1], subgraph.topics, cut)


def _renumber(
    things: Sequence[_T], places: Sequence[_Places], first: int
) -> "tuple[tuple[_T, ...], list[NDArray[np.int32]]]":
    """Keep the first things and those that are in use, and number them from 0."""
    import numpy as np

    is_used = np.zeros(len(things), np.bool_)
    is_used[:first] = True
    for each in places:
        is_used[each] = True
    numbers = (np.cumsum(is_used) - 1).astype(np.int32)
    return tuple(compress(things, is_used.tolist())), [numbers[each] for each in places]


def page_rank(
    heads: "NDArray[np.int32]", tails: "NDArray[np.int32]", size: int, topics: int
) -> "NDArray[np.float64]":
    """Return the probability of each node for walks along edges, either way, from the topics."""
    import numpy as np

    start = np.zeros(size)
    start[:topics] = 1 / topics
    here, there = np.concatenate([heads, tails]), np.concatenate([tails, heads])
    edges = np.maximum(np.bincount(there, minlength=size), 1)
    reached = start
    for _ in range(PAGE_RANK_ROUNDS):
        walked = np.bincount(here, (reached / edges)[there], size)
        reached = RESTART * start + (1 - RESTART) * walked
    return reached


def encode_distances(
    heads: "NDArray[np.int32]",
    tails: "NDArray[np.int32]",
    nodes: int,
    topics: int,
    rounds: int = DISTANCE_ROUNDS,
) -> "NDArray[np.float32]":
    """Encode how far the nodes of a subgraph are from its topics, by each direction of edges.

    The first two columns mark nodes that are not topics and topics. Two more for each round have
    the average of these marks over incoming edges, then over outgoing ones; zeros where there are
    none. Shape (nodes, 2 + 4 · rounds); with 0 rounds (nodes, 0), without even the topics.

    Source: SubgraphRAG §4.1, "Directional Distance Encoding".
    """
    import numpy as np

    if not rounds:
        return np.zeros((nodes, 0), dtype=np.float32)
    marks = np.zeros((nodes, 2))
    marks[:topics, 1] = 1
    marks[topics:, 0] = 1
    columns = [marks]
    for sources, ends in ((heads, tails), (tails, heads)):
        degrees = np.maximum(np.bincount(ends, minlength=nodes), 1)
        averages = marks
        for _ in range(rounds):  # Parallel edges count each.
            sums = [np.bincount(ends, column[sources], nodes) for column in averages.T]
            averages = np.stack(sums, axis=1) / degrees[:, None]
            columns.append(averages)
    return np.concatenate(columns, axis=1, dtype=np.float32)
