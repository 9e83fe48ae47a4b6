"""The scorer as a network, and the steps of training it.

Binary cross-entropy over the right triples of a question and some of the wrong ones, Adam. The
encoding of distances is that of the whole subgraph. After each epoch the weights are validated on
all triples of held-out questions, and saved with all that is needed to resume the run exactly.

Source: SubgraphRAG §4.1 and its code, which takes all wrong triples and one question a step.
"""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from kbqa.engine.retrieval.retriever import Weights, text_columns
from kbqa.sparql.errors import TrainingError
from kbqa.training.retriever.examples import CHOSEN_BY, Inputs, RetrieverConfig, measure_recall
from kbqa.training.run import RunFolder, read_state

if TYPE_CHECKING:
    import torch
    from torch import Tensor


logger = logging.getLogger(__name__)

_STATE_FILE = "checkpoint.pt"


class Network:
    """A perceptron with one hidden layer, whose first layer is computed in parts; see `Weights`.

    Vectors of sentences have length 1, so their numbers are small, and training would take many
    times as long. So the weights are trained for numbers of about variance 1, and scaled when they
    are exported. The dimensions are those of these vectors, the distances columns of a node.
    """

    def __init__(self, config: RetrieverConfig, dimensions: int, distances: int) -> None:
        import torch

        hidden, generator = config.hidden, torch.Generator().manual_seed(config.seed)

        self._question_scale = dimensions**0.5
        scales = [dimensions**0.5] * dimensions
        if config.relation_input == "agreement":
            scales += [float(dimensions)] * dimensions + [dimensions**0.5]
        self._relation_scale = torch.tensor(scales)
        self._node_scale = torch.ones(distances)
        if config.entity_text == "name":
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
        """Return the logit of each triple, of rows for relations and nodes and their places."""
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


class Epoch(NamedTuple):
    """The figures of an epoch."""

    step: int  # done by its end
    epoch: int
    loss: float  # mean of its questions, in nats per triple
    valid_recall: float | None  # mean share of held-out gold facts among `CHOSEN_BY` triples


class TrainedScorer(NamedTuple):
    """The weights of the best epoch, and how many were done."""

    weights: Weights
    best: Epoch
    epochs: int


class _State(TypedDict):
    weights: "dict[str, Tensor]"
    optimizer: dict[str, Any]
    best_weights: "dict[str, Tensor]"
    best: tuple[int, int, float, float | None]
    epoch: int


def train_scorer(
    train: Sequence[Inputs],
    valid: Sequence[Inputs],
    folder: RunFolder,
    config: RetrieverConfig,
    report: Callable[[Epoch], None] = lambda epoch: None,
) -> TrainedScorer:
    """Train a scorer, or resume the run in a claimed folder after its last whole epoch.

    The best epoch is chosen by the questions in `valid`; without any it is the last one.

    Raises:
        TrainingError: No question has a right triple, or the last checkpoint cannot be read.
    """
    import torch

    train = [one for one in train if one.right.any()]
    if not train:
        raise TrainingError("there is nothing to train on: no question has a right triple")
    network = Network(config, len(train[0].vector), train[0].distances.shape[1])
    optimizer = torch.optim.Adam(network.weights.values(), lr=config.learning_rate)
    best: Epoch | None = None
    best_weights: dict[str, Tensor] = {}
    done = 0
    if (state := _last_state(folder.path)) is not None:
        network.restore(state["weights"])
        optimizer.load_state_dict(state["optimizer"])
        best, best_weights, done = Epoch(*state["best"]), state["best_weights"], state["epoch"]
        logger.info("resuming %s after epoch %d", folder.path, done)
    steps_per_epoch = -(-len(train) // config.batch_size)
    folder.cut_log(done * steps_per_epoch)
    while done < config.epochs and not (best and done - best.epoch >= config.patience):
        loss = _epoch(network, optimizer, train, config, done)
        done += 1
        epoch = Epoch(done * steps_per_epoch, done, loss, _valid_recall(network, valid, config))
        if best is None or (epoch.valid_recall or 0) > (best.valid_recall or 0) or not valid:
            best, best_weights = epoch, network.copied()
        folder.log(epoch._asdict())
        report(epoch)
        _save(
            folder.path,
            {
                "weights": network.copied(),
                "optimizer": optimizer.state_dict(),
                "best_weights": best_weights,
                "best": (best.step, best.epoch, best.loss, best.valid_recall),
                "epoch": done,
            },
        )
    assert best is not None  # there is at least one epoch
    network.restore(best_weights)
    return TrainedScorer(network.export(), best, done)


def _epoch(
    network: Network,
    optimizer: Any,
    train: Sequence[Inputs],
    config: RetrieverConfig,
    epoch: int,
) -> float:
    """Take the steps of an epoch, and return the mean loss of its questions."""
    order = list(range(len(train)))
    random.Random(config.seed + epoch).shuffle(order)
    total = 0.0
    for start in range(0, len(order), config.batch_size):
        batch = order[start : start + config.batch_size]
        optimizer.zero_grad(set_to_none=True)
        for at in batch:
            drawn = train[at].draw(config.negatives, (config.seed, epoch, at))
            loss = _loss(network, train[at], drawn, config) / len(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach()) * len(batch)
        optimizer.step()
    return total / len(train)


def _loss(network: Network, one: Inputs, drawn: Any, config: RetrieverConfig) -> "Tensor":
    """Compute the mean cross-entropy of some triples of a question."""
    import numpy as np
    import torch

    kind = config.relation_input
    ends = np.concatenate([one.labelled.heads[drawn], one.labelled.tails[drawn]])
    nodes, places = np.unique(ends, return_inverse=True)
    logits = network.logits(
        torch.from_numpy(one.vector),
        torch.from_numpy(text_columns(one.vector, one.words, kind)),
        torch.from_numpy(one.node_columns(kind, nodes)),
        torch.from_numpy(places[: len(drawn)]),
        torch.from_numpy(one.labelled.links[drawn]),
        torch.from_numpy(places[len(drawn) :]),
    )
    right = torch.from_numpy(one.right[drawn]).float()
    loss: Tensor = torch.nn.functional.binary_cross_entropy_with_logits(logits, right)
    return loss


def _valid_recall(
    network: Network, valid: Sequence[Inputs], config: RetrieverConfig
) -> float | None:
    """Measure the mean recall of gold facts of held-out questions."""
    if not valid:
        return None
    weights = network.export()
    recalls = [
        measure_recall(one.score(weights, config), one.labelled, (CHOSEN_BY,)).triples[0]
        for one in valid
    ]
    return sum(recalls) / len(recalls)


def _save(folder: Path, state: _State) -> None:
    import torch

    unfinished = folder / f"{_STATE_FILE}.tmp"
    torch.save(state, unfinished)
    unfinished.replace(folder / _STATE_FILE)


def _last_state(folder: Path) -> _State | None:
    """Read the last checkpoint of a run; None if there is none."""
    path = folder / _STATE_FILE
    if not path.is_file():
        return None
    fields = _State.__annotations__
    state: _State = read_state(path, fields, "Delete it to start again.")
    return state
