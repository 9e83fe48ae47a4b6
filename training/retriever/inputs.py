"""What the scorer sees of labelled questions, and which of their triples a step takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbqa.engine.embedding.embedder import Embedder, relation_words
from kbqa.engine.retrieval.distances import encode_distances
from kbqa.engine.retrieval.scorer import Weights, relation_columns
from kbqa.training.retriever.config import RetrieverConfig
from kbqa.training.retriever.labelled import Labelled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_QUESTIONS_A_BATCH = 256


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """A labelled question as the scorer sees it.

    Attributes:
        labelled: The question.
        vector: Of the question.
        vectors: Of the relations of all questions.
        places: The place of each of its relations in `vectors`.
        distances: Of each node.
        right: For each triple whether it is right.
    """

    labelled: Labelled
    vector: "Floats"
    vectors: "Floats"
    places: "NDArray[np.int64]"
    distances: "Floats"
    right: "NDArray[np.bool_]"

    @property
    def words(self) -> "Floats":
        """The vector of each relation."""
        words: Floats = self.vectors[self.places]
        return words

    def score(self, weights: Weights, config: RetrieverConfig) -> "NDArray[np.float64]":
        """Score all triples, as the retriever does."""
        return weights.score(
            self.vector,
            relation_columns(self.vector, self.words, config.relation_input),
            self.distances,
            self.labelled.heads,
            self.labelled.links,
            self.labelled.tails,
        )

    def cosines(self) -> "NDArray[np.float64]":
        """Compare the relation of each triple with the question."""
        scores: NDArray[np.float64] = (self.words @ self.vector).astype(float)[self.labelled.links]
        return scores

    def draw(self, negatives: int, seed: Sequence[int]) -> "NDArray[np.int64]":
        """Choose triples for a step: all right ones, the most similar wrong ones, and others."""
        import numpy as np

        right = np.flatnonzero(self.right)
        wrong = np.flatnonzero(~self.right)
        if len(wrong) > negatives:
            ranked = wrong[np.argsort(-self.cosines()[wrong], kind="stable")]
            near, others = ranked[: negatives // 2], ranked[negatives // 2 :]
            drawn = np.random.default_rng(seed).choice(
                others, negatives - len(near), replace=False, shuffle=False
            )
            wrong = np.concatenate([near, drawn])
        return np.concatenate([right, wrong])


def make_inputs(
    examples: Sequence[Labelled], embedder: Embedder, config: RetrieverConfig
) -> list[Inputs]:
    """Embed questions and relations, and encode distances."""
    import numpy as np

    relations = sorted({relation for each in examples for relation in each.relations})
    vectors = embedder.recall([relation_words(relation) for relation in relations])
    place = {relation: at for at, relation in enumerate(relations)}
    made = []
    for start in range(0, len(examples), _QUESTIONS_A_BATCH):
        batch = examples[start : start + _QUESTIONS_A_BATCH]
        questions = embedder.embed([each.question for each in batch])
        for one, question in zip(batch, questions, strict=True):
            made.append(
                Inputs(
                    labelled=one,
                    vector=question,
                    vectors=vectors,
                    places=np.array([place[each] for each in one.relations], dtype=np.int64),
                    distances=encode_distances(
                        one.heads, one.tails, one.nodes, one.topics, config.rounds
                    ),
                    right=one.stated >= 0 if config.labels == "gold" else one.shortest,
                )
            )
    return made
