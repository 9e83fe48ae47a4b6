"""The model in training: a base model with a new LoRA adapter, or the whole base model.

The loop needs the same of either: parameters, a forward pass, weights for a checkpoint, and a
folder that generation can load.
"""

import json
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbqa.engine.files import file_sha256
from kbqa.engine.writing.checkpoint import (
    UNREADABLE,
    adapter_config,
    add_adapter,
    base_model,
    fastest_precision,
    quiet_transformers,
    unusual_settings,
)
from kbqa.sparql.errors import ModelError
from kbqa.training.config import ALL_LAYERS, TrainingConfig
from kbqa.training.run import ADAPTER_CONFIG_FILE, MODEL_CONFIG_FILE

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from torch import Tensor
    from torch.nn import Parameter
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


_KEPT = ("alpha_pattern", "exclude_modules", "rank_pattern", "use_dora", "use_rslora")
"""Settings of an adapter to start from that are kept. With others, more is trained or changed than
the two matrices of each layer."""


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A causal language model, trained as a whole or only an adapter of it."""

    causal: "PreTrainedModel"  # writes; its layers contain the adapter, if there is one
    adapted: "PeftModel | None"  # PEFT's view of the same model; None if all weights are trained
    tokenizer: "PreTrainedTokenizerBase"  # can pad
    base: str  # as the user named it, not the cache folder it was resolved to
    revision: str | None  # the commit of a model from a hub, or the SHA-256 of the weights

    def parameters(self) -> "dict[str, Parameter]":
        """Return the trained parameters by name."""
        model = self.causal if self.adapted is None else self.adapted
        return {name: one for name, one in model.named_parameters() if one.requires_grad}

    def weights(self) -> "dict[str, Tensor]":
        """Return the trained weights for a checkpoint."""
        from peft import get_peft_model_state_dict

        if self.adapted is None:
            return {name: one.detach() for name, one in self.parameters().items()}
        weights: dict[str, Tensor] = get_peft_model_state_dict(
            self.adapted, save_embedding_layers=False
        )
        return weights

    def set_weights(self, weights: "Mapping[str, Tensor]") -> None:
        """Set the weights that `weights` returned."""
        from peft import set_peft_model_state_dict

        if self.adapted is None:
            self.causal.load_state_dict(weights, strict=False)
        else:
            set_peft_model_state_dict(self.adapted, dict(weights))

    def save(self, directory: Path, *, exactly: bool = False) -> None:
        """Write an adapter in PEFT layout, or a whole model with its tokenizer.

        They are in bf16, but `exactly` writes an adapter as precisely as it is trained.
        """
        if self.adapted is None:
            self.causal.save_pretrained(
                str(directory), state_dict=_in_bf16(self.causal.state_dict())
            )
            self.tokenizer.save_pretrained(str(directory))
            path = directory / MODEL_CONFIG_FILE
            config = json.loads(path.read_text(encoding="utf-8")) | {"dtype": "bfloat16"}
        else:
            weights = {name: one.detach() for name, one in self.parameters().items()}
            self.adapted.save_pretrained(
                str(directory),
                state_dict=weights if exactly else _in_bf16(weights),
                save_embedding_layers=False,
            )
            (directory / "README.md").unlink()  # PEFT's own model card, an empty template
            path = directory / ADAPTER_CONFIG_FILE
            config = json.loads(path.read_text(encoding="utf-8"))
            config["base_model_name_or_path"] = self.base
            if isinstance(config["target_modules"], list):
                config["target_modules"].sort()  # PEFT writes a set
        for saved in directory.glob("*.safetensors"):  # readable by their owner only
            shutil.copymode(path, saved)
        text = json.dumps(config, indent=2, sort_keys=self.adapted is not None)
        path.write_text(f"{text}\n", encoding="utf-8")


def load_trained_model(config: TrainingConfig, device: "torch.device") -> TrainedModel:
    """Load a base model and, unless all of it is trained, add a new adapter or that of a start.

    Trained weights are float32. Frozen ones are bf16 on a GPU that is fast in bf16, else float32.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_transformers()
    path = base_model(config.base)
    on_gpu = device.type == "cuda"
    frozen_bf16 = on_gpu and not config.full and fastest_precision("cuda") == "bfloat16"
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        causal = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=torch.bfloat16 if frozen_bf16 else torch.float32,
            # On short sequences eager attention is 15–25 % faster to train than SDPA on a CPU.
            attn_implementation="sdpa" if on_gpu else "eager",
        ).to(device)
        adapted = None if config.full else _with_adapter(causal, config)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"the base model {config.base} cannot be loaded: {reason}") from error
    if tokenizer.eos_token_id is None:
        raise ModelError(f"the base model {config.base} has no end-of-text token in its tokenizer")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if config.gradient_checkpointing:
        with warnings.catch_warnings():
            # transformers 5.23 deprecates this name, the only one that all 5.x releases accept.
            warnings.simplefilter("ignore", FutureWarning)
            causal.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )
    revision: str | None = getattr(causal.config, "_commit_hash", None)
    if Path(path).is_dir():
        files = (*Path(path).glob("model*.safetensors"), *Path(path).glob("pytorch_model*.bin"))
        revision = file_sha256(*sorted(files))
    return TrainedModel(causal, adapted, tokenizer, config.base, revision)


def _with_adapter(causal: "PreTrainedModel", config: TrainingConfig) -> "PeftModel":
    """Add a new adapter, or the adapter to start from with all its settings."""
    from peft import LoraConfig, PeftConfig, get_peft_model
    from safetensors import SafetensorError

    if not config.start:
        targets = config.lora_targets
        return get_peft_model(
            causal,
            LoraConfig(
                r=config.lora_rank,
                lora_alpha=config.lora_alpha,
                lora_dropout=config.lora_dropout,
                target_modules=_linear_layers(causal) if targets == ALL_LAYERS else list(targets),
                task_type="CAUSAL_LM",
            ),
        )
    start = Path(config.start)
    unusual = [name for name in unusual_settings(adapter_config(start)) if name not in _KEPT]
    if unusual:
        raise ModelError(
            f"the adapter in {start} sets {', '.join(unusual)}, which kbqa cannot train further. "
            "Merge it into its base model, and train a new adapter of that with --base."
        )
    try:
        settings = PeftConfig.from_pretrained(str(start))
        settings.r, settings.lora_alpha = config.lora_rank, config.lora_alpha
        settings.lora_dropout = config.lora_dropout
        return add_adapter(causal, start, settings, is_trainable=True)
    except (*UNREADABLE, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"the adapter in {start} cannot be loaded: {reason}") from error


def _linear_layers(causal: "PreTrainedModel") -> list[str]:
    """Return the names of the linear layers; PEFT's `all-linear` lists each one of every block."""
    from torch.nn import Linear
    from transformers.pytorch_utils import Conv1D

    head = causal.get_output_embeddings()
    return sorted(
        {
            name.rpartition(".")[2]
            for name, module in causal.named_modules()
            if isinstance(module, (Linear, Conv1D)) and module is not head
        }
    )


def _in_bf16(weights: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Convert weights to bf16; weights that share memory still share it."""
    import torch

    converted = {
        one.data_ptr(): one.to(torch.bfloat16) if one.is_floating_point() else one
        for one in weights.values()
    }
    return {name: converted[one.data_ptr()] for name, one in weights.items()}
