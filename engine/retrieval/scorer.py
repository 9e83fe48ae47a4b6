"""A perceptron that says how likely a triple helps to answer a question.

It sees the question, the words of the relation, how the two go together, and the distances of both
ends from the topics; if trained so, also the names of the ends. The first layer is computed in
parts, once for each relation and each node, and then added up for each triple: the same numbers for
a tenth of the work.

Source: SubgraphRAG §4.1, which always sees names.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from kbqa.engine.files.json_file import read_model_json
from kbqa.kb.durable import write_safely
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

ScorerName: TypeAlias = Literal["trained", "cosine"]
"""A scorer that was trained, or the similarity of the question and the relation alone."""

SHIPPED_SCORER = Path(__file__).with_name("retriever.json")
"""The scorer shipped with kbqa; its weights are beside it."""

SCHEMA_VERSION = 1

_LARGEST_LOGIT = 30.0

RelationInput: TypeAlias = Literal["words", "agreement"]
"""What is seen of a relation: its words, or also how they agree with the question."""

EntityText: TypeAlias = Literal["none", "name"]
"""What is seen of the ends of a triple besides their distances: nothing, or their names."""


@dataclass(frozen=True, slots=True)
class ScorerCard:
    """What a scorer is, and where it comes from.

    Attributes:
        embedder: The name of the embedder, with its revision, that it was trained with.
        rounds: Of averaging in the distance encoding.
        relation_input: What it sees of a relation.
        labels: Which triples were right in training.
        trained_on: How many questions of each set.
        data_sha256: The hash of each question set.
        held_out: Measures on held-out questions, by name.
        entity_text: What it sees of the ends of a triple; the first scorers saw no names.
    """

    embedder: str
    rounds: int
    relation_input: RelationInput
    labels: str
    trained_on: dict[str, int]
    data_sha256: dict[str, str]
    held_out: dict[str, float]
    entity_text: EntityText = "none"


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The weights of a perceptron with one hidden layer.

    Attributes:
        question: Shape (dimensions of a sentence, hidden).
        relation: Shape (columns of `text_columns`, hidden).
        head: Of the subject; shape (columns of `node_columns`, hidden).
        tail: Of the object, likewise.
        bias: Shape (hidden,).
        output: Shape (hidden,).
        output_bias: Shape (1,).
    """

    question: "Floats"
    relation: "Floats"
    head: "Floats"
    tail: "Floats"
    bias: "Floats"
    output: "Floats"
    output_bias: "Floats"

    @property
    def size(self) -> int:
        """How many weights there are."""
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
        """Score the triples of a subgraph.

        Args:
            question: Its vector, of shape (dimensions,).
            relations: A row of `text_columns` for each relation.
            nodes: A row of `node_columns` for each node.
            heads: The subject of each triple.
            links: The relation of each triple.
            tails: The object of each triple.

        Returns:
            A probability for each triple, in (0, 1).
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
    """Return what a scorer sees of relations, and of names in the same way.

    Args:
        question: The question's vector, of shape (dimensions,).
        texts: The vector of each relation's words, or of each name; shape (texts, dimensions).
        kind: With `words`, only these. With `agreement`, also their products with the question,
            dimension by dimension, and the sum of those, the cosine.
    """
    import numpy as np

    if kind == "words":
        return texts
    products = texts * question
    return np.concatenate([texts, products, products.sum(axis=1, keepdims=True)], axis=1)


def node_columns(
    question: "Floats", distances: "Floats", names: "Floats | None", kind: RelationInput
) -> "Floats":
    """Return what a scorer sees of nodes.

    Args:
        question: The question's vector, of shape (dimensions,).
        distances: A row of `encode_distances` for each node.
        names: The vector of each node's name, zeros for a node without one, such as a mediator;
            None for a scorer that sees no names.
        kind: What is seen of a name, as of a relation.

    Returns:
        The distances; if names are seen, also their columns, and a last one that is 1 for a node
        without a name. Its weights are what SubgraphRAG's vector, which all such nodes share, adds.
    """
    import numpy as np

    if names is None:
        return distances
    is_nameless = ~names.any(axis=1, keepdims=True)
    return np.concatenate(
        [distances, text_columns(question, names, kind), is_nameless], axis=1, dtype=np.float32
    )


def save_scorer(path: Path, weights: Weights, card: ScorerCard) -> None:
    """Write a scorer as two files: the card as JSON, and the weights beside it in float16.

    Args:
        path: Of the JSON file.
        weights: The weights.
        card: What they are.
    """
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
    """Read a scorer that `save_scorer` wrote.

    Args:
        path: Of the JSON file.

    Raises:
        ModelError: A file is missing or is not a scorer's.
    """
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
