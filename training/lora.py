"""Load a base model with a fresh LoRA adapter on it, and write the adapter once it is trained."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.models import base_model, quiet_transformers
from kbqa.sparql.errors import ModelError
from kbqa.training.run_folder import ADAPTER_CONFIG_FILE, ADAPTER_WEIGHTS_FILE

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedTokenizerBase


class LoraModel(NamedTuple):
    """A model of which only the adapter is trained, and its tokenizer, which can pad."""

    model: "PeftModel"
    tokenizer: "PreTrainedTokenizerBase"


def load_lora_model(
    base: str, *, rank: int, alpha: int, targets: Sequence[str], device: "torch.device"
) -> LoraModel:
    """Load a base model in fp32, and put an adapter on it that changes nothing yet.

    Args:
        base: A name that kbqa knows, a Hugging Face id, or a folder.
        rank: Rank of the update matrices.
        alpha: Scale of the update, divided by the rank.
        targets: Names of the linear layers that are adapted.
        device: Where the model is put.

    Raises:
        ModelError: The base model is missing or broken, or has none of these layers.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_transformers()
    path = base_model(base)
    lora = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets), task_type="CAUSAL_LM")
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        # On short sequences eager attention is 15–25 % faster to train than SDPA's CPU kernels.
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager"
        )
        adapted = get_peft_model(model.to(device), lora)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"the base model {base} cannot be loaded: {reason}") from error
    if tokenizer.eos_token_id is None:
        raise ModelError(f"the base model {base} names no token that ends a text")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return LoraModel(adapted, tokenizer)


def write_adapter(model: "PeftModel", base: str, directory: Path) -> None:
    """Write the adapter in PEFT layout, in bf16, which the model's own becomes by that.

    Args:
        model: From `load_lora_model`.
        base: The name that was asked for: not the folder in this machine's cache that it led to.
        directory: An empty folder.
    """
    import torch

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)
    model.save_pretrained(str(directory), save_embedding_layers=False)
    path = directory / ADAPTER_CONFIG_FILE
    # safetensors lets nobody but the owner read what it writes.
    shutil.copymode(path, directory / ADAPTER_WEIGHTS_FILE)
    config = json.loads(path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = base
    config["target_modules"].sort()  # PEFT writes a set
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
