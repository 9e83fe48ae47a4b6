"""The writer in training: it draws paths for questions, and writes its best path for each.

A `Sampler` draws: the model itself, or a vLLM server that is handed the adapter in training.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kbqa.engine.questions.question_sets import Question
from kbqa.engine.retrieval.suggesting import RelationSuggester
from kbqa.engine.writing.backends.beam_search import beam_search
from kbqa.engine.writing.backends.next_token_logits import NextTokenLogits
from kbqa.engine.writing.constraints.crp_grammar import Steps, start
from kbqa.engine.writing.constraints.decoding import Decoding, check_form, walked_topics
from kbqa.engine.writing.constraints.steering import Pieces, SteeredText
from kbqa.engine.writing.generate import MAX_NEW_TOKENS, Candidate, write_apart
from kbqa.engine.writing.models.precision import mixed_precision
from kbqa.engine.writing.prompt import PromptFormat, load_prompt_format
from kbqa.sparql.errors import GraphError
from kbqa.training.writer.config import TrainingConfig
from kbqa.training.writer.grpo.config import GrpoConfig
from kbqa.training.writer.grpo.questions import as_request
from kbqa.training.writer.grpo.rollout_server import RolloutServer
from kbqa.training.writer.grpo.rollouts import ServerSampler
from kbqa.training.writer.grpo.sampling import Asked, Drawn, Sampler, Sampling, draw_texts
from kbqa.training.writer.trained_model import TrainedModel, load_trained_model

if TYPE_CHECKING:
    import torch

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
        check_form(prompt)
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
