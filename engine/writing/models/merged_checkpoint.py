"""An adapter merged into its base model, in memory or as a checkpoint that is made once and cached.

Servers and converters read the checkpoint without knowing about adapters: vLLM, for which adding
one at run time is several times slower on a CPU, its server, or a converter for llama.cpp.
"""

import hashlib
import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.writing.models.adapter_files import (
    adapter_base,
    adapter_config,
    adapter_revision,
    is_whole_model,
)
from kbqa.engine.writing.models.base_models import (
    base_model,
    make_once,
    quiet_transformers,
    require_lm_extra,
)
from kbqa.engine.writing.models.precision import OpenVinoPrecision, Precision
from kbqa.kb.cache import cache_directory
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    from peft import PeftConfig, PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def merged_checkpoint(adapter: Path, base: str | None, precision: Precision) -> Path:
    """Return the folder of the merged checkpoint, and make it if it is not there yet.

    Args:
        adapter: Folder that `kbqa train-crp` wrote.
        base: Base model, which may differ from the one that the adapter names.
        precision: Precision of the weights, while they are merged and in the checkpoint.

    Returns:
        The checkpoint's folder in the cache, with the tokenizer; for a whole model, its own folder.

    Raises:
        ModelError: The base model or the adapter is missing or broken, or the checkpoint cannot be
            written.
    """
    require_lm_extra()
    if is_whole_model(adapter):
        return adapter
    base = base_model(base or adapter_base(adapter))
    checkpoint = (
        cache_directory() / f"merged-{checkpoint_key(base, adapter_revision(adapter), precision)}"
    )
    return make_once(checkpoint, lambda directory: _merge(base, adapter, precision, directory))


def checkpoint_key(base: str, revision: str, precision: OpenVinoPrecision) -> str:
    """Return a name for what a merged model is made from, and when a base model's files changed.

    Args:
        base: The base model, as `base_model` returns it.
        revision: The adapter's, as `adapter_revision` returns it.
        precision: Precision of the weights.
    """
    written = [
        f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}"
        for path in sorted(Path(base).glob("*"))
    ]
    source = "\n".join([base, *written]).encode()
    return f"{hashlib.sha256(source).hexdigest()[:8]}-{revision}-{precision}"


def _merge(base: str, adapter: Path, precision: Precision, directory: Path) -> None:
    model, tokenizer = load_merged(base, adapter, precision)
    model.save_pretrained(str(directory))
    tokenizer.save_pretrained(str(directory))


UNREADABLE = (
    OSError,
    ValueError,
    RuntimeError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    UnpicklingError,
)
"""What transformers and PEFT raise if the files of a model or an adapter are damaged."""


class Merged(NamedTuple):
    """A model whose adapter, if it had one, is merged, and its tokenizer."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"


def load_merged(base: str, adapter: Path, precision: Precision, device: str = "cpu") -> Merged:
    """Load a base model, as `base_model` returns it, and merge an adapter into it.

    Raises:
        ModelError: The base model or the adapter is missing or broken.
    """
    import torch
    from peft import PeftConfig
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_transformers()
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    try:
        tokenizer = AutoTokenizer.from_pretrained(base)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype).to(device)
        if not is_whole_model(adapter):
            config = PeftConfig.from_pretrained(str(adapter))
            with warnings.catch_warnings():
                # Of tied layers, which `_merged` sees to.
                warnings.filterwarnings("ignore", "Model (has|with) `tie_w|Input and output emb")
                model = _merged(model, adapter, config)
    except (*UNREADABLE, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{base} with adapter {adapter} cannot be loaded: {reason}") from error
    return Merged(model, tokenizer)


def _merged(model: "PreTrainedModel", adapter: Path, config: "PeftConfig") -> "PreTrainedModel":
    import torch

    if adapter_config(adapter).get("layer_replication"):
        raise ValueError("it repeats layers (layer_replication), so it cannot be merged")
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    is_tied = head is not None and head.weight is embeddings.weight
    adapted = add_adapter(model, adapter, config)
    ends = model.get_output_embeddings(), model.get_input_embeddings()
    if is_tied and ends != (head, embeddings):
        # PEFT would add what it learnt for one of the two layers to both.
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
    merged: PreTrainedModel = adapted.merge_and_unload()
    if is_tied:
        head, embeddings = merged.get_output_embeddings(), merged.get_input_embeddings()
        merged.config.tie_word_embeddings = head.weight is embeddings.weight
    return merged


def add_adapter(
    model: "PreTrainedModel", adapter: Path, config: "PeftConfig", *, is_trainable: bool = False
) -> "PeftModel":
    """Add an adapter to a model by PEFT, which alone would skip what does not fit.

    Args:
        model: Changed in place.
        adapter: Folder of the weights.
        config: The adapter's.
        is_trainable: Whether it is trained further.

    Raises:
        ValueError: The weights are not those that the configuration describes.
    """
    from peft import get_peft_model

    config.inference_mode = not is_trainable
    config.base_model_name_or_path = None  # PEFT warns if the base model has another name now
    adapted = get_peft_model(model, config)
    loaded = adapted.load_adapter(str(adapter), "default", is_trainable=is_trainable)
    if wrong := [*loaded.unexpected_keys, *loaded.missing_keys]:
        raise ValueError(f"its weights and its configuration differ, for instance in {wrong[0]}")
    return adapted
