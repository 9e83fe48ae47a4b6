"""The settings of a training run of the scorer."""

from dataclasses import dataclass

from kbqa.engine.retrieval.distances import ROUNDS
from kbqa.engine.retrieval.scorer import EntityText, RelationInput
from kbqa.training.retriever.labels import LabelKind

CHOSEN_BY = 50
"""The weights with the best recall of gold facts among this many triples are kept."""


@dataclass(frozen=True, slots=True)
class RetrieverConfig:
    """Everything except the examples that decides the result of a training run.

    Attributes:
        labels: Which triples are right.
        rounds: Of averaging in the distance encoding; 0 for a scorer without it.
        relation_input: What the scorer sees of a relation.
        entity_text: What the scorer sees of the ends of a triple besides their distances.
        epochs: The most passes over the examples.
        patience: Stop after this many epochs without improvement.
        negatives: The most wrong triples of a question in a step: half of them those whose
            relation is most similar to the question, half drawn by chance.
        batch_size: Questions in a step.
        learning_rate: Of Adam.
        hidden: Width of the hidden layer.
        seed: Decides the initial weights, the order of the examples, and the draws.
    """

    labels: LabelKind = "gold"
    rounds: int = ROUNDS
    relation_input: RelationInput = "agreement"
    entity_text: EntityText = "none"
    epochs: int = 60
    patience: int = 8
    negatives: int = 500
    batch_size: int = 4
    learning_rate: float = 1e-3
    hidden: int = 128
    seed: int = 42
