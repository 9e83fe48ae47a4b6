"""The writer in training: it draws paths, writes its best one, and learns from their rewards.

GRPO's objective is what a step maximises. Each path of a group is as good as its reward is above
the group's mean. The probability of each of its choices is raised or lowered accordingly, but not
further than the clip allows, and a penalty keeps the model near the one that it started from.

Only choices count. Where the graph allows one token alone, its probability is 1 whatever the model
says, so there is nothing to learn; where it allows several, probabilities are renormalised over
these. All three models (in training, at the time of the draw, at the start) are masked alike.

Source: Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), §4.1, equations 3 and 4.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kbqa.engine.questions.question_sets import Question
from kbqa.engine.retrieval.retriever import RelationSuggester
from kbqa.engine.writing.beam_search import beam_search
from kbqa.engine.writing.checkpoint import mixed_precision
from kbqa.engine.writing.generate import (
    MAX_NEW_TOKENS,
    Candidate,
    load_prompt_format,
    write_apart,
)
from kbqa.engine.writing.grammar import Steps, start
from kbqa.engine.writing.steering import Decoding, Pieces, SteeredText, walked_topics
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.sparql.errors import GraphError
from kbqa.training.config import GrpoConfig, TrainingConfig
from kbqa.training.grpo.drawing import (
    Drawn,
    DrawRequest,
    ModelSampler,
    Sampler,
    Sampling,
    TokenChoice,
)
from kbqa.training.grpo.rollouts import RolloutServer, ServerSampler
from kbqa.training.trained_model import load_trained_model

if TYPE_CHECKING:
    import torch
    from torch import Tensor


logger = logging.getLogger(__name__)

SPREAD_FLOOR = 0.1
"""Added to the standard deviation of a group's rewards. The paper divides by the deviation alone,
and so makes the little that paths lose for their length as important as right and wrong."""

_LEAST_SPREAD = 1e-6
_QUESTIONS_A_BATCH = 16

_Written = TypeVar("_Written")


class DrawnGroup(NamedTuple):
    """The different paths that were drawn for a question, and, once they are run, their rewards."""

    question: Question
    prompt: tuple[int, ...]  # its tokens
    texts: tuple[Drawn, ...]  # how often they were drawn adds up to the group's size
    candidates: tuple[Candidate | None, ...]  # what can be run of each; None if it is not finished
    rewards: tuple[float, ...] = ()

    @property
    def mean_reward(self) -> float:
        """The mean over all that were drawn, repetitions included."""
        return _mean(self.rewards, [text.times for text in self.texts])

    @property
    def advantages(self) -> list[float] | None:
        """How much better each path is than the mean; None if all are equal."""
        return advantages(self.rewards, [text.times for text in self.texts])


class WriterPolicy:
    """The writer in training, constrained by the graph.

    Adapters are handed to a server that draws, if there is one, in the folder `handed`.

    Raises:
        ModelError: The adapter to start from or its base model is missing or broken, or its texts
            cannot be constrained.
    """

    def __init__(
        self,
        config: TrainingConfig,
        grpo: GrpoConfig,
        decoding: Decoding,
        device: "torch.device",
        handed: Path,
    ) -> None:
        self.prompt = load_prompt_format(Path(config.start))
        decoding.check(self.prompt)
        self.model = load_trained_model(config, device)
        # Without dropout, which would make the old and the new probabilities of a choice differ.
        self.model.causal.eval()
        self.logits = NextTokenLogits.of(self.model.causal)
        self.decoding, self.pieces = decoding, Pieces(self.model.tokenizer)
        self._device = device
        self._end: int = self.model.tokenizer.eos_token_id
        self._sampling = Sampling(grpo.group, grpo.temperature, self._end, MAX_NEW_TOKENS)
        self.sampler: Sampler = ModelSampler(self.logits, device)
        if grpo.rollouts:
            server, form = RolloutServer(grpo.rollouts), self.prompt.crp_format
            self.sampler = ServerSampler(server, self.model, form, config.lora_rank, handed)
        self._suggester = None
        if self.prompt.relations and decoding.graph is not None:
            self._suggester = RelationSuggester(decoding.graph, self.prompt.relations)

    def draw(self, questions: Sequence[Question], seed: str) -> list[DrawnGroup]:
        """Draw a group of paths for each question; without questions for which the graph fails.

        The seed, a question and the text so far decide the draws.
        """
        groups = _try(lambda some: self._draw(some, seed), questions)
        return [group for group in groups if group is not None]

    def write(self, questions: Sequence[Question]) -> list[Candidate | None]:
        """Write the path of each question that a greedy search finds; None if it finds none."""
        best: list[Candidate | None] = []
        for at in range(0, len(questions), _QUESTIONS_A_BATCH):
            best += _try(self._write, questions[at : at + _QUESTIONS_A_BATCH])
        return best

    def _draw(self, questions: Sequence[Question], seed: str) -> list[DrawnGroup]:
        prompts, steps = self._prompts(questions), self._steps(questions)
        asked = [
            DrawRequest(prompt, question.topics, self._start(walk), f"{seed} {question.id}")
            for question, prompt, walk in zip(questions, prompts, steps, strict=True)
        ]
        groups = []
        for question, prompt, texts, walk in zip(
            questions, prompts, self.sampler.draw(asked, self._sampling), steps, strict=True
        ):
            candidates = (self._candidate(t.tokens, walk) if t.is_finished else None for t in texts)
            groups.append(DrawnGroup(question, tuple(prompt), tuple(texts), tuple(candidates)))
        return groups

    def _write(self, questions: Sequence[Question]) -> list[Candidate | None]:
        steps = self._steps(questions)
        with mixed_precision(self._device):
            found = beam_search(
                self.logits,
                self._prompts(questions),
                n=1,
                end=self._end,
                max_new_tokens=MAX_NEW_TOKENS,
                starts=[self._start(each) for each in steps],
            )
        return [
            self._candidate(texts[0].tokens, walk) if texts else None
            for texts, walk in zip(found, steps, strict=True)
        ]

    def _prompts(self, questions: Sequence[Question]) -> list[list[int]]:
        """Return the tokens of each question's prompt."""
        suggest = self._suggester.suggest if self._suggester else None
        texts = (
            self.prompt.render(each.text, suggest(each.text, each.topics) if suggest else ())
            for each in questions
        )
        return [self.model.tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def _steps(self, questions: Sequence[Question]) -> list[Steps | None]:
        form = self.prompt.crp_format
        return [self.decoding.steps(question.topics, form) for question in questions]

    def _start(self, steps: Steps | None) -> SteeredText:
        assert steps is not None  # which level `none` alone does not have
        return SteeredText.begin(self.pieces, start(steps))

    def _candidate(self, tokens: Sequence[int], steps: Steps | None) -> Candidate:
        text = self.model.tokenizer.decode(tokens, skip_special_tokens=True)
        return Candidate(text, 0.0, len(tokens), walked_topics(steps, text))


def _try(
    write: Callable[[Sequence[Question]], Sequence[_Written]], questions: Sequence[Question]
) -> list[_Written | None]:
    """Write for questions; None for those for which the graph fails."""
    kept: list[_Written | None] = []
    for question, written in zip(questions, write_apart(write, questions), strict=True):
        if isinstance(written, GraphError):
            logger.warning("nothing is written for %s: %s", question.id, written)
            kept.append(None)
        elif isinstance(written, Exception):
            raise written
        else:
            kept.append(written)
    return kept


def advantages(rewards: Sequence[float], counts: Sequence[int]) -> list[float] | None:
    """Compare the rewards of paths, each drawn so often, with their mean; None if all are equal.

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


class Text(NamedTuple):
    """A path to learn from."""

    ids: tuple[int, ...]  # of prompt and path
    prompt_length: int
    choices: tuple[TokenChoice, ...]  # at least one
    advantage: float
    weight: float  # its share of the step: those of all texts of a step add up to 1


def texts_to_learn(groups: Iterable[DrawnGroup]) -> list[Text]:
    """Return the paths of the groups whose rewards differ, with their advantages."""
    kept = [(group, found) for group in groups if (found := group.advantages) is not None]
    texts = []
    for group, found in kept:
        total = sum(text.times for text in group.texts)
        for (tokens, choices, times, _), advantage in zip(group.texts, found, strict=True):
            if choices:
                ids, weight = (*group.prompt, *tokens), times / total / len(kept)
                texts.append(Text(ids, len(group.prompt), choices, advantage, weight))
    return texts


class Loss(NamedTuple):
    """The loss of some texts, and their shares of what a step logs."""

    loss: "Tensor"  # to be minimised
    logprobs: "Tensor"  # of the choices, without a gradient
    kl: float  # estimate of the divergence from the start for each choice, in nats
    clipped: float  # share of the choices that the clip holds back


@dataclass(frozen=True, slots=True)
class Objective:
    """Computes the loss of texts."""

    logits: NextTokenLogits
    device: "torch.device"
    config: GrpoConfig  # temperature, clip and the weight of the penalty

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
        """Compute the loss of some texts of a step.

        `old` has the log-probabilities of their choices before the step, None for the present ones,
        and `reference` those by the model at the start.
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
