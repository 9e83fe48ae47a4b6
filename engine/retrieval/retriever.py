"""The triples around a question's topics, and how likely each helps to answer the question.

The search for triples expands the nearest entities first. Of equally near ones it takes first those
reached by relations with few edges, then goes by id.

- An edge to a mediator is no hop. The search stops at literals and hubs.
- Topics are expanded both ways, other entities only along the edges that leave them. No gold path
  of 2,274 sampled training questions of WebQSP and CWQ enters an entity on its way by a relation
  that has no reverse.
- Freebase states both relations of a pair. The second is taken from the schema and not read.

The scorer is a perceptron. It sees the question, the words of the relation, how the two agree, and
the distances of both ends from the topics; if trained so, also the names of the ends. The first
layer is computed once for each relation and each node and added up for each triple: the same
numbers for a tenth of the work.

The best relations are also suggested to a model that was trained to write paths with suggestions,
so that it sees relations that it was never trained on.

Source: SubgraphRAG §4.1, which always sees names, and its code for distances; He et al. 2021,
*Improving multi-hop knowledge base question answering by learning intermediate supervision signals*
(NSM), for mediators and PageRank with its numbers; for suggestions TIARA (Shu et al. 2022).
"""

import heapq
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import read_model_json
from kbqa.kb.graph import Direction, Edges, Graph, Schema
from kbqa.kb.layout import write_safely
from kbqa.kb.schema import GraphSchema, is_telling
from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.errors import ModelError
from kbqa.sparql.terms import LiteralTerm, Term, is_well_formed, term_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


# A scorer that was trained, or the similarity of the question and the relation alone.
ScorerName: TypeAlias = Literal["trained", "cosine"]

SHIPPED_SCORER = Path(__file__).with_name("retriever.json")  # its weights are beside it

SCHEMA_VERSION = 1

_LARGEST_LOGIT = 30.0

# What is seen of a relation: its words, or also how they agree with the question.
RelationInput: TypeAlias = Literal["words", "agreement"]
# What is seen of the ends of a triple, apart from their distances.
EntityText: TypeAlias = Literal["none", "name"]

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
    graph: Graph, schema: GraphSchema, topics: Sequence[str], caps: Caps | None = None
) -> Subgraph:
    """Extract the neighbourhood of topics, given by their ids; unknown ones have no triples.

    An edge is there by both of its relations, as in Freebase.
    """
    caps, topics = caps or Caps(), tuple(dict.fromkeys(topics))
    search = _EdgeSearch(graph, schema, caps)
    search.run(topics)
    reverses = _reverses(schema, {group.relation for group in search.groups})
    whole = _as_arrays(topics, search.groups, reverses, search.cut())
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
    topics: Sequence[str], groups: Sequence[_Group], reverses: Mapping[str, str], cut: Cut
) -> Subgraph:
    """Number nodes and relations, and give each edge both of its names."""
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
    heads, links, tails = (
        np.concatenate([heads, tails[turned]]),
        np.concatenate([links, others[turned]]),
        np.concatenate([tails, heads[turned]]),
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


@dataclass(frozen=True, slots=True)
class ScorerCard:
    """The description of a scorer and of its training."""

    embedder: str
    rounds: int  # of the distance encoding
    relation_input: RelationInput
    labels: str  # which triples were right in training
    trained_on: dict[str, int]  # the questions of each set
    data_sha256: dict[str, str]
    held_out: dict[str, float]  # measures by name
    entity_text: EntityText = "none"


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The weights of a perceptron with one hidden layer; the comments say their shapes."""

    question: "Floats"  # (dimensions of a sentence, hidden)
    relation: "Floats"  # (columns of `text_columns`, hidden)
    head: "Floats"  # of the subject: (columns of `node_columns`, hidden)
    tail: "Floats"  # of the object, likewise
    bias: "Floats"  # (hidden,)
    output: "Floats"  # (hidden,)
    output_bias: "Floats"  # (1,)

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(array.size for array in _arrays(self).values())

    def score(
        self,
        question: "Floats",
        relations: "Floats",
        nodes: "Floats",
        heads: "NDArray[np.int32]",
        links: "NDArray[np.int32]",
        tails: "NDArray[np.int32]",
    ) -> "NDArray[np.float64]":
        """Return a probability for each triple of a subgraph, in (0, 1).

        `relations` has a row of `text_columns` for each relation, `nodes` one of `node_columns` for
        each node. The others number the parts of each triple.
        """
        import numpy as np

        of_relation = relations @ self.relation + (question @ self.question + self.bias)
        hidden = of_relation[links]
        hidden += (nodes @ self.head)[heads]
        hidden += (nodes @ self.tail)[tails]
        np.maximum(hidden, 0, out=hidden)
        logits = (hidden @ self.output).astype(np.float64) + float(self.output_bias[0])
        # Beyond, float64 would round a score to 1.
        logits = logits.clip(-_LARGEST_LOGIT, _LARGEST_LOGIT)
        scores: NDArray[np.float64] = 1 / (1 + np.exp(-logits))
        return scores


def text_columns(question: "Floats", texts: "Floats", kind: RelationInput) -> "Floats":
    """Return the columns that a scorer sees of relations or names, a row for each text's vector.

    `agreement` adds their products with the question's vector, dimension by dimension, and the sum
    of those.
    """
    import numpy as np

    if kind == "words":
        return texts
    products = texts * question
    return np.concatenate([texts, products, products.sum(axis=1, keepdims=True)], axis=1)


def node_columns(
    question: "Floats", distances: "Floats", names: "Floats | None", kind: RelationInput
) -> "Floats":
    """Return the columns that a scorer sees of nodes: `encode_distances`, and those of names.

    A node without a name, such as a mediator, has zeros, and a 1 in the last column, whose weights
    stand for the vector that all such nodes share in SubgraphRAG.
    """
    import numpy as np

    if names is None:
        return distances
    is_nameless = ~names.any(axis=1, keepdims=True)
    return np.concatenate(
        [distances, text_columns(question, names, kind), is_nameless], axis=1, dtype=np.float32
    )


def save_scorer(path: Path, weights: Weights, card: ScorerCard) -> None:
    """Write the card as JSON, and the weights beside it in float16."""
    import json

    import numpy as np
    from safetensors.numpy import save

    halves = {name: array.astype(np.float16) for name, array in _arrays(weights).items()}
    unfinished = path.with_suffix(".safetensors.tmp")
    unfinished.write_bytes(save(halves))
    unfinished.replace(path.with_suffix(".safetensors"))
    record = {"schema_version": SCHEMA_VERSION, **asdict(card)}
    write_safely(path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def load_scorer(path: Path = SHIPPED_SCORER) -> tuple[Weights, ScorerCard]:
    """Read a scorer by its JSON file; raise `ModelError` if it is none."""
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    card = read_model_json(
        path, ScorerCard, SHIPPED_SCORER, "the scorer", schema_version=SCHEMA_VERSION
    )
    file = path.with_suffix(".safetensors")
    try:
        arrays = {name: array.astype(np.float32) for name, array in load_file(file).items()}
        return Weights(**arrays), card
    except (OSError, SafetensorError, TypeError) as error:
        raise ModelError(f"cannot read the scorer: {file} is not usable: {error}") from error


def _arrays(weights: Weights) -> "dict[str, Floats]":
    return {name: getattr(weights, name) for name in Weights.__slots__}


ReadLabels: TypeAlias = Callable[[Iterable[str]], Mapping[str, str]]  # such as `Graph.labels`

_KEPT_NAMES = 100_000


class Retriever:
    """A trained scorer of triples; `read_labels` is only for one that sees names.

    Raises:
        ModelError: The scorer was trained with another embedder, or it sees names and there is
            nothing that reads them.
    """

    def __init__(
        self,
        embedder: Embedder,
        weights: Weights,
        card: ScorerCard,
        read_labels: ReadLabels | None = None,
    ) -> None:
        if embedder.name != card.embedder:
            raise ModelError(
                f"the scorer was trained with the embedder {card.embedder}, not {embedder.name}. "
                "Use that embedder, or train another scorer: kbqa train-retriever."
            )
        if card.entity_text == "name" and read_labels is None:
            raise ModelError(
                "the scorer sees the names of entities, and there is no graph for them"
            )
        self._embedder, self._weights, self._card = embedder, weights, card
        self._read_labels = read_labels if card.entity_text == "name" else None
        self._name_vectors = NameVectors(embedder)

    @classmethod
    def load(
        cls, embedder: Embedder, path: Path = SHIPPED_SCORER, read_labels: ReadLabels | None = None
    ) -> Self:
        """Load a scorer, by default the shipped one, which sees no names."""
        return cls(embedder, *load_scorer(path), read_labels)

    def score(self, question: str, subgraph: Subgraph) -> "NDArray[np.float64]":
        """Return a probability for each triple of a subgraph, in (0, 1)."""
        vector = self._embedder.embed([question])[0]
        words = self._embedder.recall([relation_words(each) for each in subgraph.relations])
        kind = self._card.relation_input
        distances = encode_distances(
            subgraph.heads, subgraph.tails, len(subgraph.nodes), subgraph.topics, self._card.rounds
        )
        names = None
        if self._read_labels is not None:
            names = self._name_vectors.recall(node_texts(subgraph.nodes, self._read_labels))
        return self._weights.score(
            vector,
            text_columns(vector, words, kind),
            node_columns(vector, distances, names, kind),
            subgraph.heads,
            subgraph.links,
            subgraph.tails,
        )


class NameVectors:
    """The vectors of names. The last used stay in memory, by default some 80 MB. Thread-safe."""

    def __init__(self, embedder: Embedder, size: int = _KEPT_NAMES) -> None:
        self._embedder, self._size = embedder, size
        self._kept: dict[str, NDArray[np.float16]] = {}
        self._lock = threading.Lock()

    def recall(self, names: Sequence[str | None]) -> "Floats":
        """Return a unit vector for each name, in the precision of float16, and zeros for None."""
        import numpy as np

        distinct = sorted({name for name in names if name is not None})
        with self._lock:
            # Removed and added again below, so that the last used come last.
            found = {name: self._kept.pop(name) for name in distinct if name in self._kept}
        new = [name for name in distinct if name not in found]
        vectors = self._embedder.embed(new).astype(np.float16)
        found.update(zip(new, vectors, strict=True))
        with self._lock:
            self._kept.update(found)
            for oldest in list(self._kept)[: max(len(self._kept) - self._size, 0)]:
                del self._kept[oldest]
        rows = np.zeros((len(names), vectors.shape[1]), dtype=np.float32)
        for row, text in zip(rows, names, strict=True):
            if text is not None:
                row[:] = found[text]
        return rows


def node_texts(nodes: Sequence[Term], read_labels: ReadLabels) -> tuple[str | None, ...]:
    """Return each entity's name, None if it has none, and the text of each literal."""
    labels = read_labels([node for node in nodes if isinstance(node, str)])
    return tuple(node.text if isinstance(node, LiteralTerm) else labels.get(node) for node in nodes)


def cosine_scores(embedder: Embedder, question: str, subgraph: Subgraph) -> "NDArray[np.float64]":
    """Score triples, in [0, 1], by the cosine of relation and question: the untrained scorer."""
    import numpy as np

    words = [relation_words(each) for each in subgraph.relations]
    cosines = np.array(embedder.similarity(question, words), dtype=np.float64)
    return (1 + cosines[subgraph.links]) / 2


class RelationSuggester:
    """The search for relations that may lead to the answers of a question, at most `count`."""

    def __init__(self, graph: Graph, count: int) -> None:
        self._graph, self._schema, self._count = graph, GraphSchema(graph), count
        self._score = Retriever.load(Embedder.load(), read_labels=graph.labels).score

    def suggest(
        self, question: str, topics: Sequence[Entity], graph: Graph | None = None
    ) -> tuple[str, ...]:
        """Return relations, best first; none without topics. `graph` may have a deadline."""
        mids = [each.mid for each in topics if each.mid]
        subgraph = extract(self._graph if graph is None else graph, self._schema, mids)
        scores = self._score(question, subgraph)
        return best_relations(subgraph, scores, self._schema)[: self._count]


def best_relations(
    subgraph: Subgraph, scores: "NDArray[np.float64]", schema: GraphSchema
) -> tuple[str, ...]:
    """Rank the relations of triples, each by its best triple.

    Of a relation and its reverse, which say the same, only the better one is kept.
    """
    import numpy as np

    best = np.zeros(len(subgraph.relations))
    np.maximum.at(best, subgraph.links, scores)
    ranked = [subgraph.relations[at] for at in np.argsort(-best, kind="stable")]
    facts: dict[str, str] = {}
    for relation, hop in zip(ranked, schema.canonical(map(Hop, ranked)), strict=True):
        facts.setdefault(hop.relation, relation)
    return tuple(facts.values())
