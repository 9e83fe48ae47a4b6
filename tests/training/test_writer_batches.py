from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kbqa.engine.writing.checkpoint import mixed_precision
from kbqa.engine.writing.generate import CHATML, PLAIN, PromptFormat, Request
from kbqa.engine.writing.transformers import NextTokenLogits, TransformersGenerator
from kbqa.training.config import TrainingConfig
from kbqa.training.data.training_set import Example, Split
from kbqa.training.writer import (
    IGNORED,
    Encoded,
    TargetLoss,
    Validation,
    collate,
    encode,
    epoch_order,
    epoch_steps,
    in_batches,
    train_adapter,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@pytest.fixture(scope="module")
def tokenizer(tiny_base: Path) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_base)


def _of_length(*lengths: int) -> list[Encoded]:
    return [Encoded(tuple(range(1, length + 1)), 1) for length in lengths]


SUGGESTING = replace(CHATML, relations=1)


@pytest.mark.parametrize("prompt", [CHATML, PLAIN, SUGGESTING], ids=["chatml", "plain", "relation"])
def test_an_example_is_the_prompt_of_generation_then_target_and_end(
    prompt: PromptFormat, examples: Sequence[Example], tokenizer: "PreTrainedTokenizerBase"
) -> None:
    relations = ("location.country.capital",)
    example = replace(examples[0], relations=relations)
    [encoded] = encode([example], tokenizer, prompt, max_length=1_000).kept
    rendered = prompt.render(example.question, relations)
    asked = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    assert list(encoded.ids[: encoded.prompt_length]) == asked
    *target, end = encoded.ids[encoded.prompt_length :]
    assert tokenizer.decode(target) == examples[0].target
    assert end == tokenizer.eos_token_id


def test_examples_that_are_too_long_are_left_out_and_never_cut(
    examples: Sequence[Example], tokenizer: "PreTrainedTokenizerBase"
) -> None:
    whole = encode(examples, tokenizer, CHATML, max_length=1_000).kept
    lengths = [len(one.ids) for one in whole]
    longest = max(lengths)
    assert min(lengths) < longest
    some = encode(examples, tokenizer, CHATML, max_length=longest - 1)
    assert some.kept == [one for one in whole if len(one.ids) < longest]
    assert some.too_long == [
        f"small {example.id}"
        for example, length in zip(examples, lengths, strict=True)
        if length == longest
    ]


def test_target_and_end_carry_loss_and_the_prompt_none(tiny_base: Path) -> None:
    batch = collate([Encoded((5, 6, 7, 2), 2), Encoded((8, 9, 2), 1)], pad_id=2)
    assert batch.input_ids.tolist() == [[5, 6, 7, 2], [8, 9, 2, 2]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    # The end counts although it is also what pads here.
    assert batch.labels.tolist() == [[IGNORED, IGNORED, 7, 2], [IGNORED, 9, 2, IGNORED]]


@pytest.mark.parametrize("size", [1, 7, 40, 1_000])
def test_every_example_is_seen_once_an_epoch(size: int) -> None:
    order = epoch_order(_of_length(*(index % 17 + 2 for index in range(size))), 4, seed=1)
    assert sorted(index for batch in order for index in batch) == list(range(size))
    assert max(map(len, order)) <= 4
    assert len(order) == -(-size // 4)


def test_the_order_hangs_on_the_seed() -> None:
    encoded = _of_length(*range(2, 400))
    assert epoch_order(encoded, 8, seed=3) == epoch_order(encoded, 8, seed=3)
    assert epoch_order(encoded, 8, seed=3) != epoch_order(encoded, 8, seed=4)


@pytest.mark.parametrize(("accumulate", "steps"), [(1, 6), (2, 3), (4, 2), (9, 1)])
def test_a_step_is_so_many_batches_in_the_order_of_the_epoch(accumulate: int, steps: int) -> None:
    encoded = _of_length(*range(2, 24))
    made = epoch_steps(encoded, 4, accumulate, seed=3)
    assert len(made) == steps
    assert [len(step) for step in made[:-1]] == [accumulate] * (steps - 1)
    assert [batch for step in made for batch in step] == epoch_order(encoded, 4, seed=3)


def test_batches_are_of_like_length_and_come_in_no_order() -> None:
    encoded = _of_length(*(index * 7 % 100 + 2 for index in range(400)))
    batches = [[len(encoded[index].ids) for index in batch] for batch in epoch_order(encoded, 8, 1)]
    assert max(max(batch) - min(batch) for batch in batches) <= 4
    longest = [max(batch) for batch in batches]
    assert longest != sorted(longest)


def test_validation_sees_every_example_once(tiny_base: Path) -> None:
    encoded = _of_length(9, 3, 5, 4, 8)
    batches = list(in_batches(encoded, 2, pad_id=0))
    assert [batch.attention_mask.sum(1).tolist() for batch in batches] == [[3, 4], [5, 8], [9]]


torch = pytest.importorskip("torch", reason="needs the lm extra")


def _llama(size: int) -> "PreTrainedModel":
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(vocab_size=size, **_SHAPE))


def _granite(size: int) -> "PreTrainedModel":
    """A model that divides its logits by a number."""
    from transformers import GraniteConfig, GraniteForCausalLM

    return GraniteForCausalLM(GraniteConfig(vocab_size=size, logits_scaling=4.0, **_SHAPE))


_SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "initializer_range": 0.5,
}


@pytest.mark.parametrize(
    ("make", "has_plain_head"), [(_llama, True), (_granite, False)], ids=["plain", "scaled"]
)
def test_the_loss_is_that_of_all_logits_at_the_targets(
    make: object, has_plain_head: bool, examples: Sequence[Example], tiny_base: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(tiny_base)
    torch.manual_seed(0)
    model = make(len(tokenizer)).eval()
    batch = collate(encode(examples[:5], tokenizer, CHATML, 1_000).kept, tokenizer.pad_token_id)
    loss = TargetLoss(NextTokenLogits.of(model), torch.device("cpu"))
    assert loss.logits.has_plain_head == has_plain_head
    with mixed_precision(torch.device("cpu")):
        logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    expected = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(),
        batch.labels[:, 1:].flatten(),
        ignore_index=IGNORED,
        reduction="sum",
    )
    torch.testing.assert_close(loss(batch), expected)


pytest.importorskip("torch", reason="needs the lm extra")


@pytest.mark.parametrize(
    ("one", "other", "is_better"),
    [
        (Validation(2.0, 0.5), Validation(1.0, 0.4), True),
        (Validation(1.0, 0.4), Validation(2.0, 0.5), False),
        (Validation(1.0, 0.5), Validation(2.0, 0.5), True),
        (Validation(1.0, 0.5), Validation(1.0, 0.5), False),
        (Validation(1.0, None), Validation(2.0, None), True),
        (Validation(2.0, None), Validation(1.0, None), False),
    ],
)
def test_main_paths_count_before_the_loss(
    one: Validation, other: Validation, is_better: bool
) -> None:
    assert one.is_better_than(other) == is_better


def test_the_share_is_that_of_main_paths_that_the_adapter_writes(
    examples: Sequence[Example], tiny_base: Path, tmp_path: Path
) -> None:
    """On questions it was trained on, a tiny model gets some right and some wrong."""
    config = TrainingConfig(base=str(tiny_base), epochs=12, learning_rate=3e-2, patience=0)
    result = train_adapter(Split(tuple(examples), tuple(examples)), tmp_path, config)
    generator = TransformersGenerator.load(tmp_path)
    beams = generator.generate([Request(example.question) for example in examples], n=1)
    relations = [text.partition("[")[2] for [text] in ([one.text for one in row] for row in beams)]
    right = sum(
        example.target.partition("[")[2] == relation
        for example, relation in zip(examples, relations, strict=True)
    )
    assert right > len(examples) / 4
    assert result.valid_main_path == pytest.approx(right / len(examples), abs=0.1)
