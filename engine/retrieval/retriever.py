"""Score the triples around a question's topics by how likely they help to answer it."""

from pathlib import Path
from typing import TYPE_CHECKING, Self

from kbqa.engine.embedding.embedder import Embedder, relation_words
from kbqa.engine.retrieval.distances import encode_distances
from kbqa.engine.retrieval.scorer import (
    SHIPPED_SCORER,
    ScorerCard,
    Weights,
    load_scorer,
    relation_columns,
)
from kbqa.engine.retrieval.subgraph import Subgraph
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Retriever:
    """Scores triples with a trained scorer.

    Args:
        embedder: Embeds questions and relations.
        weights: The scorer's.
        card: What the scorer is.

    Raises:
        ModelError: The scorer was trained with another embedder.
    """

    def __init__(self, embedder: Embedder, weights: Weights, card: ScorerCard) -> None:
        if embedder.name != card.embedder:
            raise ModelError(
                f"the scorer was trained with the embedder {card.embedder}, not {embedder.name}. "
                "Use that embedder, or train another scorer: kbqa train-retriever."
            )
        self._embedder, self._weights, self._card = embedder, weights, card

    @classmethod
    def load(cls, embedder: Embedder, path: Path = SHIPPED_SCORER) -> Self:
        """Load a scorer, by default the one that ships with kbqa.

        Raises:
            ModelError: It cannot be read, or was trained with another embedder.
        """
        return cls(embedder, *load_scorer(path))

    def score(self, question: str, subgraph: Subgraph) -> "NDArray[np.float64]":
        """Score the triples of a subgraph.

        Returns:
            A probability for each triple, in (0, 1).
        """
        vector = self._embedder.embed([question])[0]
        words = self._embedder.recall([relation_words(each) for each in subgraph.relations])
        return self._weights.score(
            vector,
            relation_columns(vector, words, self._card.relation_input),
            encode_distances(
                subgraph.heads,
                subgraph.tails,
                len(subgraph.nodes),
                subgraph.topics,
                self._card.rounds,
            ),
            subgraph.heads,
            subgraph.links,
            subgraph.tails,
        )


def cosine_scores(embedder: Embedder, question: str, subgraph: Subgraph) -> "NDArray[np.float64]":
    """Score each triple by the cosine of its relation and the question: what training improves on.

    Returns:
        A score for each triple, in [0, 1].
    """
    import numpy as np

    words = [relation_words(each) for each in subgraph.relations]
    cosines = np.array(embedder.similarity(question, words), dtype=np.float64)
    return (1 + cosines[subgraph.links]) / 2
