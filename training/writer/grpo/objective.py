"""GRPO's objective: what a step of training by reward maximises.

Each path of a group is as good as its reward is above the group's mean. The probability of each of
its choices is raised or lowered accordingly, but not further than the clip allows, and a penalty
keeps the model near the one that it started from.

Only choices count. Where the graph allows one token alone, its probability is 1 whatever the model
says, so there is nothing to learn; where it allows several, probabilities are renormalised over
these. All three models (in training, at the time of the draw, at the start) are masked alike.

Source: Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), §4.1, equations 3 and 4.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.writing.backends.next_token_logits import NextTokenLogits
from kbqa.engine.writing.models.precision import mixed_precision
from kbqa.training.writer.grpo.config import GrpoConfig
from kbqa.training.writer.grpo.policy import DrawnGroup
from kbqa.training.writer.grpo.sampling import TokenChoice

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SPREAD_FLOOR = 0.1
"""Added to the standard deviation of a group's rewards. The paper divides by the deviation alone,
and so makes the little that paths lose for their length as important as right and wrong."""

_LEAST_SPREAD = 1e-6


class Text(NamedTuple):
    """A path to learn from.

    Attributes:
        ids: Tokens of prompt and path.
        prompt_length: Tokens of the prompt.
        choices: The choices in the path; at least one.
        advantage: How much better it is than its group.
        weight: Its share of the step: the weights of all texts of a step add up to 1.
    """

    ids: tuple[int, ...]
    prompt_length: int
    choices: tuple[TokenChoice, ...]
    advantage: float
    weight: float


class Loss(NamedTuple):
    """The loss of some texts, and what is logged of it: their shares of the step's means.

    Attributes:
        loss: To be minimised.
        logprobs: Of the choices, without a gradient.
        kl: Estimate of the KL divergence from the start for each choice, in nats.
        clipped: Share of the choices that the clip holds back.
    """

    loss: "Tensor"
    logprobs: "Tensor"
    kl: float
    clipped: float


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """A group of paths with the reward of each.

    Attributes:
        group: The group.
        rewards: Of its paths, in their order.
    """

    group: DrawnGroup
    rewards: tuple[float, ...]

    @property
    def mean_reward(self) -> float:
        """The mean over all that were drawn, repetitions included."""
        return _mean(self.rewards, [sample.drawn.times for sample in self.group.samples])

    @property
    def advantages(self) -> list[float] | None:
        """How much better each path is than the mean; None if all are equal."""
        return advantages(self.rewards, [sample.drawn.times for sample in self.group.samples])


def advantages(rewards: Sequence[float], counts: Sequence[int]) -> list[float] | None:
    """Compare the rewards of a group's paths with their mean; None if all are equal.

    Args:
        rewards: Of each path.
        counts: How often each was drawn.

    >>> [round(each, 2) for each in advantages([1.0, 0.0], [1, 3])]
    [1.41, -0.47]
    """
    mean = _mean(rewards, counts)
    spread = math.sqrt(_mean([(reward - mean) ** 2 for reward in rewards], counts))
    if spread < _LEAST_SPREAD:
        return None
    return [(reward - mean) / (spread + SPREAD_FLOOR) for reward in rewards]


def _mean(values: Sequence[float], counts: Sequence[int]) -> float:
    return sum(v * n for v, n in zip(values, counts, strict=True)) / sum(counts)


def texts_to_learn(groups: Iterable[JudgedGroup]) -> list[Text]:
    """Return the paths of the groups whose rewards differ, with their advantages."""
    kept = [(each.group, found) for each in groups if (found := each.advantages) is not None]
    return [text for group, found in kept for text in _texts(group, found, len(kept))]


def _texts(group: DrawnGroup, found: Sequence[float], groups: int) -> Iterator[Text]:
    total = sum(sample.drawn.times for sample in group.samples)
    for sample, advantage in zip(group.samples, found, strict=True):
        tokens, choices, times, _ = sample.drawn
        if choices:
            ids = (*group.prompt, *tokens)
            yield Text(ids, len(group.prompt), choices, advantage, times / total / groups)


@dataclass(frozen=True, slots=True)
class Objective:
    """Computes the loss of texts.

    Attributes:
        logits: The logits of the model.
        device: The device of the model.
        config: Has temperature, clip and the weight of the penalty.
    """

    logits: NextTokenLogits
    device: "torch.device"
    config: GrpoConfig

    def logprobs(self, texts: Sequence[Text]) -> "Tensor":
        """Compute the log-probabilities of the choices, text after text, natural log.

        They are those of the distribution that was drawn from: at its temperature, and renormalised
        over the tokens that were allowed.
        """
        import torch

        width = max(len(text.ids) for text in texts)
        ids = torch.zeros((len(texts), width), dtype=torch.long)
        mask, wanted = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for row, text in enumerate(texts):
            ids[row, : len(text.ids)] = torch.tensor(text.ids)
            mask[row, : len(text.ids)] = 1
            # A choice is made by the logits after the token before it.
            wanted[row, [text.prompt_length + choice.at - 1 for choice in text.choices]] = True
        with mixed_precision(self.device):
            logits = self.logits(
                wanted.to(self.device),
                input_ids=ids.to(self.device),
                attention_mask=mask.to(self.device),
            )
        allowed, is_allowed, chosen = (each.to(self.device) for each in _choices(texts))
        scores = logits.gather(1, allowed) / self.config.temperature
        scores = scores.masked_fill(~is_allowed, -torch.inf)
        return scores.log_softmax(-1).gather(1, chosen).squeeze(1)

    def loss(self, texts: Sequence[Text], old: "Tensor | None", reference: "Tensor") -> Loss:
        """Compute the loss of texts.

        Args:
            texts: A part of the texts of a step.
            old: The log-probabilities of their choices before the step; None for the present ones.
            reference: Those by the model at the start.
        """
        import torch

        new = self.logprobs(texts)
        ratio = (new - (new.detach() if old is None else old)).exp()
        advantage = self._of_choices(texts, [text.advantage for text in texts])
        weight = self._of_choices(texts, [text.weight / len(text.choices) for text in texts])
        clip = self.config.clip
        gain = ratio * advantage
        held = ratio.clamp(1 - clip, 1 + clip) * advantage
        # k3, an estimate that is never negative: Schulman 2020, "Approximating KL divergence".
        kl = (reference - new).exp() - (reference - new) - 1
        objective = torch.minimum(gain, held) - self.config.kl * kl
        return Loss(
            loss=-(weight * objective).sum(),
            logprobs=new.detach(),
            kl=float((weight * kl).detach().sum()),
            clipped=float((weight * (held < gain)).detach().sum()),
        )

    def _of_choices(self, texts: Sequence[Text], values: Sequence[float]) -> "Tensor":
        """Repeat a value of each text for each of its choices."""
        import torch

        counts = torch.tensor([len(text.choices) for text in texts])
        return torch.tensor(values).repeat_interleave(counts).to(self.device)


def _choices(texts: Sequence[Text]) -> "tuple[Tensor, Tensor, Tensor]":
    """Return the tokens that each choice allows, where they are no padding, and which was chosen.

    Their shapes are (choices, most allowed), the same, and (choices, 1).
    """
    import torch

    choices = [
        (text.ids[text.prompt_length + choice.at], choice.allowed)
        for text in texts
        for choice in text.choices
    ]
    width = max(len(allowed) for _, allowed in choices)
    padded = torch.tensor([[*allowed, *[0] * (width - len(allowed))] for _, allowed in choices])
    sizes = torch.tensor([len(allowed) for _, allowed in choices])
    chosen = torch.tensor([[allowed.index(token)] for token, allowed in choices])
    return padded, torch.arange(width) < sizes[:, None], chosen
