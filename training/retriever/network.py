"""The scorer as a network that can be trained; its first layer is computed in parts as well."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbqa.engine.retrieval.scorer import EntityText, RelationInput, Weights

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Network:
    """A perceptron with one hidden layer, as `Weights` describes it.

    Vectors of sentences have length 1, so their numbers are small, and training would take many
    times as long. So the weights are trained for numbers of about variance 1, and scaled when they
    are exported.

    Args:
        dimensions: Of the vectors of sentences.
        kind: What is seen of a relation, and of a name.
        entity_text: What is seen of a node besides its distances.
        distances: Columns of a node's distances.
        hidden: Width of the hidden layer.
        generator: Draws the initial weights: as torch draws those of a linear layer.
    """

    def __init__(
        self,
        dimensions: int,
        kind: RelationInput,
        entity_text: EntityText,
        distances: int,
        hidden: int,
        generator: "torch.Generator",
    ) -> None:
        import torch

        self._question_scale = dimensions**0.5
        scales = [dimensions**0.5] * dimensions
        if kind == "agreement":
            scales += [float(dimensions)] * dimensions + [dimensions**0.5]
        self._relation_scale = torch.tensor(scales)
        self._node_scale = torch.ones(distances)
        if entity_text == "name":
            self._node_scale = torch.tensor([1.0] * distances + scales + [1.0])
        question, relation, node = dimensions, len(scales), len(self._node_scale)
        inputs = question + relation + 2 * node
        rows = {
            "question": (question, hidden),
            "relation": (relation, hidden),
            "head": (node, hidden),
            "tail": (node, hidden),
            "bias": (hidden,),
            "output": (hidden,),
            "output_bias": (1,),
        }
        self.weights = {
            name: _uniform(shape, hidden if name.startswith("output") else inputs, generator)
            for name, shape in rows.items()
        }

    def logits(
        self,
        question: "Tensor",
        relations: "Tensor",
        nodes: "Tensor",
        heads: "Tensor",
        links: "Tensor",
        tails: "Tensor",
    ) -> "Tensor":
        """Return the logit of each triple.

        Args:
            question: Its vector.
            relations: A row for each relation.
            nodes: A row for each node.
            heads: The subject of each triple.
            links: The relation of each triple.
            tails: The object of each triple.
        """
        w = self.weights
        of_question = (question * self._question_scale) @ w["question"] + w["bias"]
        of_relation = (relations * self._relation_scale) @ w["relation"] + of_question
        nodes = nodes * self._node_scale
        hidden = of_relation[links] + (nodes @ w["head"])[heads] + (nodes @ w["tail"])[tails]
        logits: Tensor = hidden.relu() @ w["output"] + w["output_bias"]
        return logits

    def copied(self) -> "dict[str, Tensor]":
        """Copy the weights as they are trained."""
        return {name: weight.detach().clone() for name, weight in self.weights.items()}

    def restore(self, weights: "Mapping[str, Tensor]") -> None:
        """Take over weights that `copied` returned."""
        import torch

        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(weights[name])

    def export(self) -> Weights:
        """Copy the weights for the scorer."""
        scaled = {
            **self.weights,
            "question": self.weights["question"] * self._question_scale,
            "relation": self.weights["relation"] * self._relation_scale[:, None],
            "head": self.weights["head"] * self._node_scale[:, None],
            "tail": self.weights["tail"] * self._node_scale[:, None],
        }
        return Weights(**{name: each.detach().numpy().copy() for name, each in scaled.items()})


def _uniform(shape: tuple[int, ...], inputs: int, generator: "torch.Generator") -> "Tensor":
    import torch

    drawn = torch.rand(shape, generator=generator) * 2 - 1
    weight: Tensor = (drawn * inputs**-0.5).requires_grad_()
    return weight
