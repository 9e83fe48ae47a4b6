from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kbqa.engine.writing.backends.next_token_logits import NextTokenLogits
from kbqa.engine.writing.models.precision import mixed_precision
from kbqa.engine.writing.prompt import CHATML
from kbqa.training.data.training_set import Example
from kbqa.training.writer.batches import IGNORED, collate, encode
from kbqa.training.writer.loss import TargetLoss

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

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
