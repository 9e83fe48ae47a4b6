"""Tokenise examples and put them into batches of similar length, the same way every time.

The loss is taken on the target and its end-of-text token alone; the prompt is context.
"""

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.writing.prompt import PromptFormat
from kbqa.training.data.training_set import Example

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

IGNORED = -100  # the label that torch's cross entropy ignores
_BUCKET_BATCHES = 50


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
    """Choose the batches of each step of one epoch; the last step may have fewer.

    Args:
        encoded: The examples.
        batch_size: Examples a batch.
        accumulate: Batches a step.
        seed: See `epoch_order`.
    """
    batches = epoch_order(encoded, batch_size, seed)
    return [batches[at : at + accumulate] for at in range(0, len(batches), accumulate)]


def epoch_order(encoded: Sequence[Encoded], batch_size: int, seed: int) -> list[list[int]]:
    """Choose the batches of one epoch, as indices: shuffled, then sorted by length in buckets.

    Args:
        encoded: The examples.
        batch_size: Examples a batch.
        seed: Decides everything; give each epoch its own.
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
