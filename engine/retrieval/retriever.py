"""Score the triples around a question's topics by how likely they help to answer it.

The scorer is a perceptron. It sees the question, the words of the relation, how the two agree, and
the distances of both ends from the topics; if trained so, also the names of the ends. The first
layer is computed once for each relation and each node and added up for each triple: the same
numbers for a tenth of the work.

The best relations are also suggested to a model that was trained to write paths with suggestions,
so that it sees relations that it was never trained on.

Source: SubgraphRAG §4.1, which always sees names; for suggestions TIARA (Shu et al. 2022).
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import read_model_json
from kbqa.engine.retrieval.subgraphs import Subgraph, encode_distances, extract
from kbqa.kb.graph import Graph
from kbqa.kb.layout import write_safely
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.errors import ModelError
from kbqa.sparql.terms import LiteralTerm, Term

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
        cls,
        embedder: Embedder,
        path: Path = SHIPPED_SCORER,
        read_labels: ReadLabels | None = None,
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
