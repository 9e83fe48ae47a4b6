"""The settings of training by reward, beside those of `TrainingConfig`."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field
from pydantic.dataclasses import dataclass


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
