"""Score the triples around a question's topics by how likely they help to answer it."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from kbqa.engine.embedding.embedder import Embedder, relation_words
from kbqa.engine.retrieval.distances import encode_distances
from kbqa.engine.retrieval.scorer import (
    SHIPPED_SCORER,
    ScorerCard,
    Weights,
    load_scorer,
    node_columns,
    text_columns,
)
from kbqa.engine.retrieval.subgraph import Subgraph
from kbqa.sparql.errors import ModelError
from kbqa.sparql.terms import LiteralTerm, Term

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

ReadLabels: TypeAlias = Callable[[Iterable[str]], Mapping[str, str]]
"""Reads the names of entities, as `Graph.labels` does."""

_KEPT_NAMES = 100_000


class Retriever:
    """Scores triples with a trained scorer.

    Args:
        embedder: Embeds questions and relations.
        weights: The scorer's.
        card: What the scorer is.
        read_labels: Reads the names of entities; only a scorer that sees names needs it.

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
        """Load a scorer, by default the one that ships with kbqa, which sees no names.

        Raises:
            ModelError: It cannot be read, or as for the class.
        """
        return cls(embedder, *load_scorer(path), read_labels)

    def score(self, question: str, subgraph: Subgraph) -> "NDArray[np.float64]":
        """Score the triples of a subgraph.

        Returns:
            A probability for each triple, in (0, 1).

        Raises:
            GraphError: The scorer sees names, and the graph does not answer.
        """
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
    """The vectors of names, of which the last used are kept in memory; safe to use from threads.

    Args:
        embedder: Embeds names.
        size: How many are kept: at most 100,000 by default, which take some 80 MB.
    """

    def __init__(self, embedder: Embedder, size: int = _KEPT_NAMES) -> None:
        self._embedder, self._size = embedder, size
        self._kept: dict[str, NDArray[np.float16]] = {}
        self._lock = threading.Lock()

    def recall(self, names: Sequence[str | None]) -> "Floats":
        """Embed names, or take their vectors from memory.

        Returns:
            A unit vector for each name, in the precision of float16, and zeros for None; shape
            (names, dimensions).
        """
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
    """Return the name of each entity, None for one without a name, and the text of each literal.

    Raises:
        GraphError: The graph does not answer.
    """
    labels = read_labels([node for node in nodes if isinstance(node, str)])
    return tuple(node.text if isinstance(node, LiteralTerm) else labels.get(node) for node in nodes)


def cosine_scores(embedder: Embedder, question: str, subgraph: Subgraph) -> "NDArray[np.float64]":
    """Score each triple by the cosine of its relation and the question: what training improves on.

    Returns:
        A score for each triple, in [0, 1].
    """
    import numpy as np

    words = [relation_words(each) for each in subgraph.relations]
    cosines = np.array(embedder.similarity(question, words), dtype=np.float64)
    return (1 + cosines[subgraph.links]) / 2
