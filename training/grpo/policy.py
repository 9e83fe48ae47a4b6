"""The writer in training: it draws paths for questions, and writes its best path for each.

A `Sampler` draws: the model itself, or a vLLM server that is handed the adapter in training.

GRPO's objective: what a step of training by reward maximises.

Each path of a group is as good as its reward is above the group's mean. The probability of each of
its choices is raised or lowered accordingly, but not further than the clip allows, and a penalty
keeps the model near the one that it started from.

Only choices count. Where the graph allows one token alone, its probability is 1 whatever the model
says, so there is nothing to learn; where it allows several, probabilities are renormalised over
these. All three models (in training, at the time of the draw, at the start) are masked alike.

Source: Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), §4.1, equations 3 and 4.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    PromptFormat,
    load_prompt_format,
    write_apart,
)
from kbqa.engine.writing.grammar import Steps, start
from kbqa.engine.writing.steering import Decoding, Pieces, SteeredText, walked_topics
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.sparql.errors import GraphError
from kbqa.training.config import GrpoConfig, TrainingConfig
from kbqa.training.grpo.questions import as_request
from kbqa.training.grpo.rollout_server import (
    Asked,
    Drawn,
    RolloutServer,
    Sampler,
    Sampling,
    TokenChoice,
    draw_texts,
)
from kbqa.training.grpo.rollouts import ServerSampler
from kbqa.training.trained_model import TrainedModel, load_trained_model

if TYPE_CHECKING:
    import torch
    from torch import Tensor


logger = logging.getLogger(__name__)

_QUESTIONS_A_BATCH = 16

_Written = TypeVar("_Written")


class Sample(NamedTuple):
    """A path that was drawn, and what can be run of it: None if it is not finished."""

    drawn: Drawn
    candidate: Candidate | None


class DrawnGroup(NamedTuple):
    """The different paths that were drawn for a question.

    Attributes:
        question: The question.
        prompt: The tokens of its prompt.
        samples: The paths; how often they were drawn adds up to the group's size.
    """

    question: Question
    prompt: tuple[int, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class WriterPolicy:
    """The writer in training, constrained by the graph.

    Attributes:
        model: The model, in evaluation mode.
        logits: Its logits.
        prompt: The prompt of a question.
        decoding: Constrains what is written, at level ``graph``.
        pieces: The pieces of the constraining grammar, as tokens.
        device: The device of the model.
        sampler: Draws paths.
        sampling: How they are drawn.
        suggester: Finds relations to suggest; None for an adapter that was trained without.
    """

    model: TrainedModel
    logits: NextTokenLogits
    prompt: PromptFormat
    decoding: Decoding
    pieces: Pieces
    device: "torch.device"
    sampler: Sampler
    sampling: Sampling
    suggester: RelationSuggester | None

    @classmethod
    def load(
        cls,
        config: TrainingConfig,
        grpo: GrpoConfig,
        decoding: Decoding,
        device: "torch.device",
        handed: Path,
    ) -> "WriterPolicy":
        """Load the adapter to start from, and its base model.

        Args:
            config: Names the adapter.
            grpo: How paths are drawn.
            decoding: Constrains what is written, at level ``graph``.
            device: Where to load them.
            handed: Folder in which adapters are handed to a server that draws.

        Raises:
            ModelError: One of them is missing or broken, or the adapter's texts cannot be
                constrained.
        """
        prompt = load_prompt_format(Path(config.start))
        decoding.check(prompt)
        model = load_trained_model(config, device)
        # Without dropout, which would make the old and the new probabilities of a choice differ.
        model.causal.eval()
        logits = NextTokenLogits.of(model.causal)
        end = model.tokenizer.eos_token_id
        sampling = Sampling(grpo.group, grpo.temperature, end, MAX_NEW_TOKENS)
        sampler: Sampler = _ModelSampler(logits, device)
        if grpo.rollouts:
            server = RolloutServer(grpo.rollouts)
            sampler = ServerSampler(server, model, prompt.crp_format, config.lora_rank, handed)
        pieces = Pieces(model.tokenizer)
        suggester = None
        if prompt.relations and decoding.graph is not None:
            suggester = RelationSuggester(decoding.graph, prompt.relations)
        return cls(model, logits, prompt, decoding, pieces, device, sampler, sampling, suggester)

    def draw(self, questions: Sequence[Question], seed: str) -> list[DrawnGroup]:
        """Draw a group of paths for each question; without questions for which the graph fails.

        Args:
            questions: Drawn for as one batch.
            seed: Decides the draws, together with a question and the text so far.

        Raises:
            EndpointDown: Nothing answers at the graph's endpoint.
        """
        groups = _try(lambda some: self._draw(some, seed), questions)
        return [group for group in groups if group is not None]

    def write(self, questions: Sequence[Question]) -> list[Candidate | None]:
        """Write the path of each question that a greedy search finds; None if it finds none.

        Raises:
            EndpointDown: Nothing answers at the graph's endpoint.
        """
        best: list[Candidate | None] = []
        for at in range(0, len(questions), _QUESTIONS_A_BATCH):
            best += _try(self._write, questions[at : at + _QUESTIONS_A_BATCH])
        return best

    def _draw(self, questions: Sequence[Question], seed: str) -> list[DrawnGroup]:
        prompts, steps = self._prompts(questions), self._steps(questions)
        asked = [
            Asked(prompt, question.topics, self._start(walk), f"{seed} {question.id}")
            for question, prompt, walk in zip(questions, prompts, steps, strict=True)
        ]
        drawn = self.sampler.draw(asked, self.sampling)
        return [
            DrawnGroup(question, tuple(prompt), tuple(self._sample(text, walk) for text in texts))
            for question, prompt, texts, walk in zip(questions, prompts, drawn, steps, strict=True)
        ]

    def _write(self, questions: Sequence[Question]) -> list[Candidate | None]:
        steps = self._steps(questions)
        with mixed_precision(self.device):
            found = beam_search(
                self.logits,
                self._prompts(questions),
                n=1,
                end=self.model.tokenizer.eos_token_id,
                max_new_tokens=MAX_NEW_TOKENS,
                starts=[self._start(each) for each in steps],
            )
        return [
            self._candidate(texts[0].tokens, walk) if texts else None
            for texts, walk in zip(found, steps, strict=True)
        ]

    def _prompts(self, questions: Sequence[Question]) -> list[list[int]]:
        """Return the tokens of each question's prompt."""
        encode = self.model.tokenizer.encode
        return [
            encode(self.prompt.render(each.text, self._suggest(each)), add_special_tokens=False)
            for each in questions
        ]

    def _suggest(self, question: Question) -> tuple[str, ...]:
        if self.suggester is None:
            return ()
        return self.suggester.suggest(question.text, question.topics)

    def _steps(self, questions: Sequence[Question]) -> list[Steps | None]:
        form = self.prompt.crp_format
        return [self.decoding.steps(as_request(question), form) for question in questions]

    def _start(self, steps: Steps | None) -> SteeredText:
        assert steps is not None  # which level `none` alone does not have
        return SteeredText.begin(self.pieces, start(steps))

    def _sample(self, drawn: Drawn, steps: Steps | None) -> Sample:
        return Sample(drawn, self._candidate(drawn.tokens, steps) if drawn.is_finished else None)

    def _candidate(self, tokens: Sequence[int], steps: Steps | None) -> Candidate:
        text = self.model.tokenizer.decode(tokens, skip_special_tokens=True)
        return Candidate(text, 0.0, len(tokens), walked_topics(steps, text))


@dataclass(frozen=True, slots=True)
class _ModelSampler:
    """The model in training draws itself."""

    logits: NextTokenLogits
    device: "torch.device"

    def draw(self, asked: Sequence[Asked], sampling: Sampling) -> list[list[Drawn]]:
        with mixed_precision(self.device):
            return draw_texts(
                self.logits,
                [each.prompt for each in asked],
                starts=[each.start for each in asked],
                seeds=[each.seed for each in asked],
                sampling=sampling,
            )

    def close(self) -> None:
        pass


def _try(
    write: Callable[[Sequence[Question]], Sequence[_Written]], questions: Sequence[Question]
) -> list[_Written | None]:
    """Write for questions; None for those for which the graph fails."""
    found = write_apart(write, questions)
    kept: list[_Written | None] = []
    for question, written in zip(questions, found, strict=True):
        if isinstance(written, GraphError):
            logger.warning("nothing is written for %s: %s", question.id, written)
            kept.append(None)
        elif isinstance(written, Exception):
            raise written
        else:
            kept.append(written)
    return kept


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
