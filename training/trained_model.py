"""The model in training: a base model with a fresh LoRA adapter on it, or the whole of it.

What the loop needs of either is the same: parameters, a forward pass, weights that a checkpoint
keeps, and a folder that generation loads. How it is trained is not known here.
"""

import json
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbqa.engine.adapter_files import weights_sha256
from kbqa.engine.models import base_model, quiet_transformers
from kbqa.engine.transformers_generator import has_fast_bf16
from kbqa.sparql.errors import ModelError
from kbqa.training.config import ALL_LAYERS, TrainingConfig
from kbqa.training.run_folder import ADAPTER_CONFIG_FILE, ADAPTER_WEIGHTS_FILE, MODEL_CONFIG_FILE

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from torch import Tensor
    from torch.nn import Parameter
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A causal language model of which all, or only an adapter, is trained.

    Attributes:
        causal: The model that writes, whose layers hold the adapter if there is one.
        adapted: The same with what PEFT knows of the adapter; None where all weights are trained.
        tokenizer: The model's; it can pad.
        base: The name that was asked for: not the folder in this machine's cache that it led to.
        revision: Commit of a model from the Hugging Face hub, or the SHA-256 of a folder's weights,
            one file after the other; None where neither is known.
    """

    causal: "PreTrainedModel"
    adapted: "PeftModel | None"
    tokenizer: "PreTrainedTokenizerBase"
    base: str
    revision: str | None

    def parameters(self) -> "dict[str, Parameter]":
        """Collect what is trained, by name."""
        model = self.causal if self.adapted is None else self.adapted
        return {name: one for name, one in model.named_parameters() if one.requires_grad}

    def weights(self) -> "dict[str, Tensor]":
        """Collect the trained weights, for a checkpoint."""
        from peft import get_peft_model_state_dict

        if self.adapted is None:
            return {name: one.detach() for name, one in self.parameters().items()}
        weights: dict[str, Tensor] = get_peft_model_state_dict(
            self.adapted, save_embedding_layers=False
        )
        return weights

    def set_weights(self, weights: "Mapping[str, Tensor]") -> None:
        """Take over what `weights` gave."""
        from peft import set_peft_model_state_dict

        if self.adapted is None:
            self.causal.load_state_dict(weights, strict=False)
        else:
            set_peft_model_state_dict(self.adapted, dict(weights))

    def save(self, directory: Path) -> None:
        """Write an adapter in PEFT layout, or a whole model with its tokenizer, in bf16.

        Args:
            directory: An empty folder.
        """
        if self.adapted is None:
            self._save_model(directory)
        else:
            self._save_adapter(self.adapted, directory)

    def _save_adapter(self, adapted: "PeftModel", directory: Path) -> None:
        weights = _in_bf16({name: one.detach() for name, one in self.parameters().items()})
        adapted.save_pretrained(str(directory), state_dict=weights, save_embedding_layers=False)
        (directory / "README.md").unlink()  # PEFT's own model card, which says nothing
        path = directory / ADAPTER_CONFIG_FILE
        # safetensors lets nobody but the owner read what it writes.
        shutil.copymode(path, directory / ADAPTER_WEIGHTS_FILE)
        config = json.loads(path.read_text(encoding="utf-8"))
        config["base_model_name_or_path"] = self.base
        config["target_modules"].sort()  # PEFT writes a set
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    def _save_model(self, directory: Path) -> None:
        weights = _in_bf16(self.causal.state_dict())
        self.causal.save_pretrained(str(directory), state_dict=weights)
        self.tokenizer.save_pretrained(str(directory))
        path = directory / MODEL_CONFIG_FILE
        for saved in directory.glob("*.safetensors"):
            shutil.copymode(path, saved)
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(config | {"dtype": "bfloat16"}, indent=2) + "\n", "utf-8")


def load_trained_model(config: TrainingConfig, device: "torch.device") -> TrainedModel:
    """Load a base model, and unless all of it is trained put an adapter that changes nothing on it.

    Trained weights are fp32. Frozen ones are bf16 on a GPU that computes in it, else fp32.

    Raises:
        ModelError: The base model is missing or broken, or has none of the layers to adapt.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_transformers()
    path = base_model(config.base)
    on_gpu = device.type == "cuda"
    frozen_bf16 = on_gpu and not config.full and has_fast_bf16("cuda")
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
        raise ModelError(f"the base model {config.base} names no token that ends a text")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if config.gradient_checkpointing:
        with warnings.catch_warnings():
            # transformers 5.23 announces another name; this one every release of 5 knows.
            warnings.simplefilter("ignore", FutureWarning)
            causal.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )
    revision = _revision(path, causal)
    return TrainedModel(causal, adapted, tokenizer, config.base, revision)


def _with_adapter(causal: "PreTrainedModel", config: TrainingConfig) -> "PeftModel":
    from peft import LoraConfig, get_peft_model

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


def _linear_layers(causal: "PreTrainedModel") -> list[str]:
    """Name the linear layers; PEFT's `all-linear` names each one of every block in full."""
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
    """Convert weights; those that share memory go on sharing it."""
    import torch

    converted = {
        one.data_ptr(): one.to(torch.bfloat16) if one.is_floating_point() else one
        for one in weights.values()
    }
    return {name: converted[one.data_ptr()] for name, one in weights.items()}


def _revision(base: str, causal: "PreTrainedModel") -> str | None:
    directory = Path(base)
    if not directory.is_dir():
        commit: str | None = getattr(causal.config, "_commit_hash", None)
        return commit
    return weights_sha256(
        sorted([*directory.glob("model*.safetensors"), *directory.glob("pytorch_model*.bin")])
    )
