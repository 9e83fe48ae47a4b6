"""Validate a model in training on held-out questions.

The measure is the share of questions whose main path it writes exactly by greedy decoding. The rest
of an answer depends on it, and it often still improves while the loss already rises. The questions
are a sample, chosen once by the seed. Entities are not compared, because linking corrects them.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.writing.backends.beam_search import beam_search
from kbqa.engine.writing.generate import MAX_NEW_TOKENS
from kbqa.engine.writing.models.precision import mixed_precision
from kbqa.engine.writing.prompt import PromptFormat
from kbqa.sparql.crp import Step
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.forms import read_crp
from kbqa.training.data.training_set import Example
from kbqa.training.writer.batches import Encoded, in_batches
from kbqa.training.writer.config import TrainingConfig
from kbqa.training.writer.loss import TargetLoss
from kbqa.training.writer.processes import Processes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_QUESTIONS_A_BATCH = 32


class Validation(NamedTuple):
    """The result of a validation.

    Attributes:
        loss: Mean loss per target token of all held-out examples, natural log.
        main_path: Share of the questions asked whose main path is right; None if none is asked.
    """

    loss: float
    main_path: float | None

    def is_better_than(self, other: "Validation") -> bool:
        """Compare the main paths, or the losses if these are equal."""
        if self.main_path is not None and self.main_path != other.main_path:
            return other.main_path is None or self.main_path > other.main_path
        return self.loss < other.loss


class Validator:
    """Validates models on held-out examples."""

    def __init__(
        self,
        examples: Sequence[Example],
        encoded: Sequence[Encoded],
        tokenizer: "PreTrainedTokenizerBase",
        prompt: PromptFormat,
        config: TrainingConfig,
    ) -> None:
        """Choose the questions to ask.

        Args:
            examples: All held-out examples.
            encoded: The examples whose loss counts.
            tokenizer: The model's tokenizer.
            prompt: The prompt of a question.
            config: Has the number of questions to ask, and the seed to choose them.
        """
        self._tokenizer, self._batch_size = tokenizer, config.batch_size
        self._encoded = encoded
        self._gold = _gold_paths(examples)
        asked = sorted(self._gold)
        if config.valid_generate < len(asked):
            asked = random.Random(config.seed).sample(asked, config.valid_generate)
        relations = {each.question: each.relations for each in examples}
        self._prompts = {each: prompt.render(each, relations[each]) for each in asked}
        self._max_new_tokens = min(
            MAX_NEW_TOKENS, max((one.target_length for one in encoded), default=MAX_NEW_TOKENS)
        )

    def validate(self, loss: TargetLoss, processes: Processes) -> Validation | None:
        """Validate a model in evaluation mode; return None if nothing is held out."""
        if not self._encoded:
            return None
        right = processes.total(self._right(loss, processes), loss.device)
        return Validation(
            self._loss(loss, processes), right / len(self._prompts) if self._prompts else None
        )

    def _loss(self, loss: TargetLoss, processes: Processes) -> float:
        import torch

        total = 0.0
        batches = list(in_batches(self._encoded, self._batch_size, self._tokenizer.pad_token_id))
        with torch.no_grad():
            for batch in processes.share(batches):
                total += float(loss(batch))
        tokens = sum(one.target_length for one in self._encoded)
        return processes.total(total, loss.device) / tokens

    def _right(self, loss: TargetLoss, processes: Processes) -> int:
        """Count the questions in this process's share whose main path is written exactly."""
        questions = processes.share(sorted(self._prompts, key=lambda q: (len(q), q)))
        right = 0
        for start in range(0, len(questions), _QUESTIONS_A_BATCH):
            asked = questions[start : start + _QUESTIONS_A_BATCH]
            texts = self._write(asked, loss)
            right += sum(
                _main_path(text) in self._gold[question]
                for question, text in zip(asked, texts, strict=True)
            )
        return right

    def _write(self, questions: Sequence[str], loss: TargetLoss) -> list[str]:
        prompts = [
            self._tokenizer.encode(self._prompts[question], add_special_tokens=False)
            for question in questions
        ]
        with mixed_precision(loss.device):
            found = beam_search(
                loss.logits,
                prompts,
                n=1,
                end=self._tokenizer.eos_token_id,
                max_new_tokens=self._max_new_tokens,
            )
        return [self._tokenizer.decode(texts[0].tokens) if texts else "" for texts in found]


def _gold_paths(examples: Sequence[Example]) -> dict[str, set[tuple[Step, ...] | None]]:
    """Return the main paths of each question, which may have several targets."""
    paths: dict[str, set[tuple[Step, ...] | None]] = defaultdict(set)
    for example in examples:
        paths[example.question].add(read_crp(example.target).crp.path)
    return paths


def _main_path(text: str) -> tuple[Step, ...] | None:
    try:
        return read_crp(text).crp.path
    except CrpSyntaxError:
        return None
