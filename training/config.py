"""The settings of training what writes paths, on gold paths and by reward, and presets of them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from kbqa.engine.writing.checkpoint import DEFAULT_BASE
from kbqa.training.data.targets import TargetForm

Stage: TypeAlias = Literal["sft", "grpo"]
"""How a model is trained: on gold paths, or by the reward of the paths that it writes."""

ALL_LAYERS = ("all",)
"""As `TrainingConfig.lora_targets`: every linear layer of the model except its output layer."""

FULL_LEARNING_RATE = 5e-5
"""For training all weights: the rate of an adapter would make the model forget what it knows."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Everything except the examples that decides the result of a training run.

    A setting with a description is an option of `kbqa train-crp`.
    """

    base: str = Field(default=DEFAULT_BASE, description="Model id or folder.")
    start: str = Field(
        default="",
        description="Folder of an adapter to start from. Base, rank, alpha and layers are its own.",
    )
    epochs: int = Field(default=4, ge=1, description="Maximum number of passes over the examples.")
    batch_size: int = Field(default=8, ge=1, description="Examples per batch.")
    accumulate: int = Field(
        default=1,
        ge=1,
        description="Batches per step. Processes started by `torchrun` share them: give at least "
        "one for each.",
    )
    learning_rate: float = Field(
        default=7e-4,
        gt=0,
        description="Highest learning rate, reached at the end of the warm-up; with --full the "
        f"default is {FULL_LEARNING_RATE:g}.",
    )
    warmup: float = Field(default=0.03, ge=0, le=1)
    """Share of the steps in which the learning rate rises from 0."""
    final_rate: float = Field(default=0.1, ge=0, le=1)
    """Share of the highest learning rate at which the cosine schedule ends."""
    full: bool = Field(default=False, description="Train all weights and write a whole model.")
    lora_rank: int = Field(default=16, ge=1, description="Rank of the update matrices.")
    lora_alpha: int = Field(
        default=32, ge=1, description="Scale of the update, divided by the rank."
    )
    lora_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of an adapted layer's inputs hidden in training.",
    )
    # All that attend or write to the residual stream. On a CPU, the two wide MLP layers would
    # double the time and gain little.
    lora_targets: tuple[str, ...] = Field(
        default=("q_proj", "k_proj", "v_proj", "o_proj", "down_proj"),
        min_length=1,
        description="Linear layers to adapt; `all` for all except the output layer.",
    )
    crp_format: TargetForm = Field(
        default="extended",
        description="Text form to learn: RouterKGQA's, its extension or kbqa's own.",
    )
    suggested_relations: int = Field(
        default=0,
        ge=0,
        description="Relations to suggest with each question, the best that the retriever finds "
        "in the graph; needs --store or --endpoint.",
    )
    max_length: int = Field(
        default=400,
        ge=1,
        description="Leave out examples with more tokens, prompt and target together.",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Use less memory and more time."
    )
    seed: int = Field(
        default=42,
        description="Decides the initial weights, dropout, held-out questions and order of the "
        "examples.",
    )
    checkpoint_steps: int = Field(
        default=200, ge=1, description="Steps between checkpoints; each epoch ends with one, too."
    )
    validate_every: int = Field(
        default=0,
        ge=0,
        description="Steps between validations; 0 for one at the end of each epoch.",
    )
    valid_generate: int = Field(
        default=100,
        ge=0,
        description="Held-out questions to answer at each validation. The weights that write most "
        "main paths exactly are kept; with 0, those with the lowest loss.",
    )
    patience: int = Field(
        default=3,
        ge=0,
        description="Stop after this many validations without improvement; 0 for never.",
    )


class Preset(NamedTuple):
    """Named settings of `TrainingConfig`, and for stage ``grpo`` of `GrpoConfig` as well."""

    source: str
    settings: Mapping[str, object]
    stage: Stage = "sft"


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
        # Table 9 gives neither the warm-up nor the end of the cosine: these are the defaults of
        # LLaMA-Factory, which the paper used. Rank, alpha and layers are the published adapters'.
        "routerkgqa-webqsp": Preset(
            "RouterKGQA, Table 9 and published adapters", {**_ROUTERKGQA, "epochs": 50}
        ),
        "routerkgqa-cwq": Preset(
            "RouterKGQA, Table 9 and published adapters", {**_ROUTERKGQA, "epochs": 10}
        ),
        # DeepSeekMath has a learning rate of 1e-6, for all weights. Adapters are trained with ten
        # times as much. One GPU can learn from four texts of an 8B model at a time.
        "grpo-8b": Preset(
            "an 8B model on GPUs, paths drawn with --rollouts; untested",
            {
                "learning_rate": 1e-5,
                "batch_size": 4,
                "checkpoint_steps": 10,
                "questions": 32,
                "group": 16,
            },
            "grpo",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class GrpoConfig:
    """What decides the result of training by reward, beside questions and `TrainingConfig`.

    A setting with a description is an option of `kbqa train-crp --stage grpo`.
    """

    group: int = Field(default=8, ge=2, description="Stage grpo: paths to draw for each question.")
    questions: int = Field(default=8, ge=1, description="Stage grpo: questions per step.")
    temperature: float = Field(
        default=1.0,
        gt=0,
        description="Stage grpo: temperature to draw paths at. A higher one makes them differ "
        "more.",
    )
    kl: float = Field(
        default=0.04,
        ge=0,
        description="Stage grpo: weight of the KL divergence from the adapter to start from.",
    )
    rollouts: str = Field(
        default="",
        description="Stage grpo: URL of a vLLM server to draw paths with, such as "
        "http://127.0.0.1:8000/v1; docs/model.md says how to start it.",
    )
    passes: int = Field(default=2, ge=1)
    """Updates of the weights from the paths of one step; the clip matters from the second on."""
    clip: float = Field(default=0.2, gt=0, lt=1)
    """How far the probability of a choice may move from that at which it was drawn, as a ratio."""
    relaxed_cost: float = Field(default=0.1, ge=0, lt=1)
    """The share of its F1 that a path loses if it has answers only when it is relaxed."""
    part_cost: float = Field(default=0.01, ge=0, lt=1)
    """The share of its F1 that a path loses for each hop, constraint and ordering."""


GRPO_DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "epochs": 1,
        "learning_rate": 5e-5,
        "validate_every": 25,
        "checkpoint_steps": 25,
        "patience": 0,
    }
)
"""Where the defaults of `TrainingConfig` are others than for supervised training."""
