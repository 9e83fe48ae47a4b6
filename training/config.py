"""What decides the result of a training run, besides the examples; and settings by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from kbqa.engine.models import SMOLLM2
from kbqa.training.crp_targets import TargetForm

ALL_LAYERS = ("all",)
"""As `TrainingConfig.lora_targets`: every linear layer of the model but the one that writes out."""

FULL_LEARNING_RATE = 5e-5
"""For training all weights: a rate that suits an adapter would undo what they know."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """All that decides the result of a training run, besides the examples.

    Attributes:
        base: Base model: a name that kbqa knows, a Hugging Face id, or a folder.
        epochs: Passes over the training examples.
        batch_size: Examples a batch.
        accumulate: Batches a step, which several processes share.
        learning_rate: The highest, reached at the end of the warm-up.
        warmup: Share of the steps in which the learning rate rises from 0.
        final_rate: Share of the highest learning rate that the cosine ends at.
        full: Train all weights of the model instead of a LoRA adapter.
        lora_rank: Rank of the update matrices.
        lora_alpha: Scale of the update, divided by the rank.
        lora_dropout: Share of an adapted layer's inputs that the adapter does not see in training.
        lora_targets: Names of the linear layers that are adapted, or `ALL_LAYERS`. By default all
            that write to the residual stream or attend: on a CPU the two wide MLP layers would
            cost as much time again as they are worth.
        crp_format: The text form of the targets, which the prompt format records.
        max_length: Tokens of prompt and target together; longer examples are left out.
        gradient_checkpointing: Compute activations twice instead of keeping them: less memory,
            more time, the same result.
        seed: Decides initial weights, the order of examples, dropout, and which held-out questions
            are asked.
        checkpoint_steps: Steps between checkpoints.
        validate_every: Steps between validations; 0 for one at the end of each epoch.
        valid_generate: Held-out questions that are answered by greedy decoding at each validation;
            0 for none: the loss judges alone.
        patience: Validations without a better one until the run stops early; 0 for never.
    """

    base: str = SMOLLM2
    epochs: int = 4
    batch_size: int = 8
    accumulate: int = 1
    learning_rate: float = 7e-4
    warmup: float = 0.03
    final_rate: float = 0.1
    full: bool = False
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    lora_targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")
    crp_format: TargetForm = "routerkgqa"
    max_length: int = 320
    gradient_checkpointing: bool = False
    seed: int = 42
    checkpoint_steps: int = 200
    validate_every: int = 0
    valid_generate: int = 100
    patience: int = 3

    def __post_init__(self) -> None:
        counts = (self.epochs, self.batch_size, self.accumulate, self.lora_rank, self.lora_alpha)
        if min(*counts, self.max_length, self.checkpoint_steps) < 1:
            raise ValueError("epochs, sizes and numbers of steps are at least 1")
        if min(self.validate_every, self.valid_generate, self.patience) < 0:
            raise ValueError("what 0 turns off is not below 0")
        if self.learning_rate <= 0 or not 0 <= self.warmup <= 1 or not 0 <= self.final_rate <= 1:
            raise ValueError("the learning rate is positive, warm-up and final rate are shares")
        if not 0 <= self.lora_dropout < 1:
            raise ValueError("the dropout is a share below 1")
        if not self.lora_targets:
            raise ValueError("an adapter needs a layer to adapt")


class Preset(NamedTuple):
    """Settings by name: where they come from, and those that are not `TrainingConfig`'s own."""

    source: str
    settings: Mapping[str, object]


_ROUTERKGQA = {
    "learning_rate": 5e-5,
    "warmup": 0.0,
    "final_rate": 0.0,
    "batch_size": 4,
    "accumulate": 4,
    "lora_rank": 8,
    "lora_alpha": 16,
    "lora_targets": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "patience": 0,
}

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "kbqa": Preset("a small model on a CPU", {}),
        # Table 9 names neither warm-up nor an end of the cosine: they are those of LLaMA-Factory,
        # which the paper trained with. Rank, alpha and layers are the published adapters'.
        "routerkgqa-webqsp": Preset(
            "RouterKGQA, Table 9 and published adapters", {**_ROUTERKGQA, "epochs": 50}
        ),
        "routerkgqa-cwq": Preset(
            "RouterKGQA, Table 9 and published adapters", {**_ROUTERKGQA, "epochs": 10}
        ),
    }
)
