"""Examples as batches of similar length, the same every time, and the loss and validation on them.

The loss is taken on the target and its end-of-text token alone; the prompt is context.

A validation measures the share of held-out questions whose main path is written exactly by greedy
decoding. The rest of an answer depends on it, and it often still improves while the loss already
rises. The questions are a sample, chosen once by the seed. Entities are not compared, because
linking corrects them.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.writing.beam_search import beam_search
from kbqa.engine.writing.checkpoint import mixed_precision
from kbqa.engine.writing.generate import MAX_NEW_TOKENS, PromptFormat
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.sparql.crp import Step
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.forms import read_crp
from kbqa.training.config import TrainingConfig
from kbqa.training.data.training_set import Example
from kbqa.training.run import Processes

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


IGNORED = -100  # the label that torch's cross entropy ignores
_BUCKET_BATCHES = 50
_QUESTIONS_A_BATCH = 32


class Encoded(NamedTuple):
    """Token ids of prompt and target, and the length of the prompt."""

    ids: tuple[int, ...]
    prompt_length: int

    @property
    def target_length(self) -> int:
        """Count the tokens that carry loss."""
        return len(self.ids) - self.prompt_length


class Encoding(NamedTuple):
    """Examples as tokens, and the set and id of examples that are too long."""

    kept: list[Encoded]
    too_long: list[str]


class Batch(NamedTuple):
    """Right-padded tensors, each of shape (examples, tokens)."""

    input_ids: "Tensor"
    attention_mask: "Tensor"
    labels: "Tensor"


def encode(
    examples: Sequence[Example],
    tokenizer: "PreTrainedTokenizerBase",
    prompt: PromptFormat,
    max_length: int,
) -> Encoding:
    """Tokenise examples; those longer than `max_length` tokens are left out, never cut."""
    encoding = Encoding([], [])
    for example in examples:
        text = prompt.render(example.question, example.relations)
        prompt_ids = tokenizer.encode(text, add_special_tokens=False)
        target_ids = tokenizer.encode(example.target, add_special_tokens=False)
        ids = (*prompt_ids, *target_ids, tokenizer.eos_token_id)
        if len(ids) <= max_length:
            encoding.kept.append(Encoded(ids, len(prompt_ids)))
        else:
            encoding.too_long.append(f"{example.source} {example.id}")
    return encoding


def epoch_steps(
    encoded: Sequence[Encoded], batch_size: int, accumulate: int, seed: int
) -> list[list[list[int]]]:
    """Choose the batches of each step of one epoch; the last step may have fewer."""
    batches = epoch_order(encoded, batch_size, seed)
    return [batches[at : at + accumulate] for at in range(0, len(batches), accumulate)]


def epoch_order(encoded: Sequence[Encoded], batch_size: int, seed: int) -> list[list[int]]:
    """Choose the batches of one epoch, as indices: shuffled, then sorted by length in buckets.

    The seed decides everything; give each epoch its own.
    """
    rng = random.Random(seed)
    order = list(range(len(encoded)))
    rng.shuffle(order)
    size = batch_size * _BUCKET_BATCHES
    batches = []
    for start in range(0, len(order), size):
        bucket = sorted(order[start : start + size], key=lambda index: len(encoded[index].ids))
        batches += [bucket[at : at + batch_size] for at in range(0, len(bucket), batch_size)]
    rng.shuffle(batches)
    return batches


def collate(examples: Sequence[Encoded], pad_id: int) -> Batch:
    """Pad examples to one length."""
    import torch

    width = max(len(example.ids) for example in examples)
    shape = (len(examples), width)
    input_ids = torch.full(shape, pad_id)
    mask = torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, IGNORED)
    for row, (ids, prompt_length) in enumerate(examples):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        mask[row, : len(ids)] = 1
        labels[row, prompt_length : len(ids)] = torch.tensor(ids[prompt_length:])
    return Batch(input_ids, mask, labels)


def in_batches(encoded: Sequence[Encoded], batch_size: int, pad_id: int) -> Iterator[Batch]:
    """Yield all examples once, in order of length."""
    ordered = sorted(encoded, key=lambda example: len(example.ids))
    for start in range(0, len(ordered), batch_size):
        yield collate(ordered[start : start + batch_size], pad_id)


@dataclass(frozen=True, slots=True)
class TargetLoss:
    """Computes the loss of batches."""

    logits: NextTokenLogits
    device: "torch.device"

    def __call__(self, batch: Batch) -> "Tensor":
        """Sum the negative log-likelihood, natural log, of a batch's target tokens."""
        import torch

        labels = batch.labels.to(self.device)
        wanted = torch.zeros_like(labels, dtype=torch.bool)
        wanted[:, :-1] = labels[:, 1:] != IGNORED
        with mixed_precision(self.device):
            logits = self.logits(
                wanted,
                input_ids=batch.input_ids.to(self.device),
                attention_mask=batch.attention_mask.to(self.device),
            )
        targets = labels[:, 1:][wanted[:, :-1]]
        return torch.nn.functional.cross_entropy(logits, targets, reduction="sum")


class Validation(NamedTuple):
    """The result of a validation."""

    loss: float  # mean per target token of all held-out examples, natural log
    main_path: float | None  # share of the questions asked whose main path is right

    def is_better_than(self, other: "Validation") -> bool:
        """Compare the main paths, or the losses if these are equal."""
        if self.main_path is not None and self.main_path != other.main_path:
            return other.main_path is None or self.main_path > other.main_path
        return self.loss < other.loss


class Validator:
    """Validates models on held-out examples; the loss counts only those that are encoded."""

    def __init__(
        self,
        examples: Sequence[Example],
        encoded: Sequence[Encoded],
        tokenizer: "PreTrainedTokenizerBase",
        prompt: PromptFormat,
        config: TrainingConfig,
    ) -> None:
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
