"""The settings of training what writes paths, on gold paths and by reward, and presets of them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import click
from pydantic import Field
from pydantic.dataclasses import dataclass

from kbqa.engine.writing.checkpoint import DEFAULT_BASE
from kbqa.kb.option import Option
from kbqa.training.data.targets import TargetForm

Stage: TypeAlias = Literal["sft", "grpo"]
"""How a model is trained: on gold paths, or by the reward of the paths that it writes."""

DEFAULT_TEMPLATE = "{question}"

ALL_LAYERS = ("all",)
"""As `TrainingConfig.lora_targets`: every linear layer of the model except its output layer."""

FULL_LEARNING_RATE = 5e-5
"""For training all weights: the rate of an adapter would make the model forget what it knows."""


class _LayerNames(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(name.strip() for name in str(value).split(",") if name.strip())
        if not names:
            self.fail("names no layer", param, ctx)
        return names


class _Template(click.ParamType[str]):
    """A text with a place for the question."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if "{question}" not in str(value):
            self.fail("has no {question} in it", param, ctx)
        return str(value)


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Everything except the examples that decides the result of a training run.

    A setting with an `Option` is one of `kbqa train-crp`.
    """

    base: Annotated[str, Option("Model id or folder.")] = DEFAULT_BASE
    start: Annotated[
        str, Option("Folder of an adapter to start from. Base, rank, alpha and layers are its own.")
    ] = ""
    epochs: Annotated[int, Option("Maximum number of passes over the examples.", at_least=1)] = 4
    batch_size: Annotated[int, Option("Examples per batch.", at_least=1)] = 8
    accumulate: Annotated[
        int,
        Option(
            "Batches per step. Processes started by `torchrun` share them: give at least "
            "one for each.",
            at_least=1,
        ),
    ] = 1
    learning_rate: Annotated[
        float,
        Option(
            "Highest learning rate, reached at the end of the warm-up; with --full the "
            f"default is {FULL_LEARNING_RATE:g}.",
            above=0,
        ),
    ] = 7e-4
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.03
    """Share of the steps in which the learning rate rises from 0."""
    final_rate: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the highest learning rate at which the cosine schedule ends."""
    full: Annotated[bool, Option("Train all weights and write a whole model.")] = False
    lora_rank: Annotated[int, Option("Rank of the update matrices.", at_least=1)] = 16
    lora_alpha: Annotated[int, Option("Scale of the update, divided by the rank.", at_least=1)] = 32
    lora_dropout: Annotated[
        float, Option("Share of an adapted layer's inputs hidden in training.", at_least=0, below=1)
    ] = 0.0
    # All that attend or write to the residual stream. On a CPU, the two wide MLP layers would
    # double the time and gain little.
    lora_targets: Annotated[
        tuple[str, ...],
        Field(min_length=1),
        Option(
            "Linear layers to adapt; `all` for all except the output layer.",
            metavar="NAME,…",
            type=_LayerNames(),
        ),
    ] = ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")
    crp_format: Annotated[
        TargetForm,
        Option("Text form to learn: RouterKGQA's, its extension or kbqa's own.", "--format"),
    ] = "extended"
    template: Annotated[
        str,
        Option(
            "What the model is asked, with {question} in it; it is put into the base's chat form. "
            "By default the question alone or, with --start, what that adapter is asked.",
            type=_Template(),
        ),
    ] = DEFAULT_TEMPLATE
    suggested_relations: Annotated[
        int,
        Option(
            "Relations to suggest with each question, the best that the retriever finds "
            "in the graph; needs --store or --endpoint.",
            at_least=0,
        ),
    ] = 0
    max_length: Annotated[
        int, Option("Leave out examples with more tokens, prompt and target together.", at_least=1)
    ] = 400
    gradient_checkpointing: Annotated[bool, Option("Use less memory and more time.")] = False
    seed: Annotated[
        int,
        Option(
            "Decides the initial weights, dropout, held-out questions and order of the examples."
        ),
    ] = 42
    checkpoint_steps: Annotated[
        int, Option("Steps between checkpoints; each epoch ends with one, too.", at_least=1)
    ] = 200
    validate_every: Annotated[
        int, Option("Steps between validations; 0 for one at the end of each epoch.", at_least=0)
    ] = 0
    valid_generate: Annotated[
        int,
        Option(
            "Held-out questions to answer at each validation. The weights that write most "
            "main paths exactly are kept; with 0, those with the lowest loss.",
            at_least=0,
        ),
    ] = 100
    patience: Annotated[
        int,
        Option("Stop after this many validations without improvement; 0 for never.", at_least=0),
    ] = 3


class Preset(NamedTuple):
    """Named settings of `TrainingConfig`, of the data and, for stage ``grpo``, of `GrpoConfig`."""

    source: str
    settings: Mapping[str, object]
    stage: Stage = "sft"


# Appendix A.1. All rows are trained on, and the last epoch counts.
_ROUTERKGQA = {
    "template": "Generate a reasoning path that retrieves the information corresponding to the "
    "given question.\n\nQuestion: { {question} }",
    "max_length": 2048,  # LLaMA-Factory's
    "valid_size": 0,
    "demo_questions": 0,
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

    A setting with an `Option` is one of `kbqa train-crp --stage grpo`.
    """

    group: Annotated[int, Option("Stage grpo: paths to draw for each question.", at_least=2)] = 8
    questions: Annotated[int, Option("Stage grpo: questions per step.", at_least=1)] = 8
    temperature: Annotated[
        float,
        Option(
            "Stage grpo: temperature to draw paths at. A higher one makes them differ more.",
            above=0,
        ),
    ] = 1.0
    kl: Annotated[
        float,
        Option(
            "Stage grpo: weight of the KL divergence from the adapter to start from.", at_least=0
        ),
    ] = 0.04
    rollouts: Annotated[
        str,
        Option(
            "Stage grpo: URL of a vLLM server to draw paths with, such as "
            "http://127.0.0.1:8000/v1; docs/model.md says how to start it."
        ),
    ] = ""
    passes: Annotated[int, Field(ge=1)] = 2
    """Updates of the weights from the paths of one step; the clip matters from the second on."""
    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """How far the probability of a choice may move from that at which it was drawn, as a ratio."""
    relaxed_cost: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """The share of its F1 that a path loses if it has answers only when it is relaxed."""
    part_cost: Annotated[float, Field(ge=0, lt=1)] = 0.01
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
