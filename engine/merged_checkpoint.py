"""An adapter merged into its base model, as an ordinary checkpoint that is made once and cached.

Whatever serves models reads it without knowing of adapters: vLLM, whose own way of adding one at
run time is several times slower on a CPU, its server, or a converter for llama.cpp.
"""

import hashlib
from pathlib import Path
from typing import Literal

from kbqa.engine.adapter_files import adapter_base, adapter_revision, is_whole_model
from kbqa.engine.models import base_model, make_once, quiet_transformers, require_lm_extra
from kbqa.kb.cache import cache_directory
from kbqa.sparql.errors import ModelError

Precision = Literal["bfloat16", "float32"]


def merged_checkpoint(adapter: Path, base: str | None, precision: Precision) -> Path:
    """Merge an adapter into its base model, unless that was done before.

    Args:
        adapter: Folder that `kbqa train-crp` wrote.
        base: Another base model than the one that the adapter names.
        precision: Of the weights, while they are merged and in the checkpoint.

    Returns:
        The checkpoint's folder in the cache, which holds the tokenizer, too; a model that was
        trained in whole is its own.

    Raises:
        ModelError: The base model or the adapter is missing or broken, or the checkpoint cannot be
            written.
    """
    require_lm_extra()
    if is_whole_model(adapter):
        return adapter
    base = base_model(base or adapter_base(adapter))
    checkpoint = cache_directory() / f"merged-{_key(base, adapter_revision(adapter), precision)}"
    return make_once(checkpoint, lambda directory: _merge(base, adapter, precision, directory))


def _key(base: str, revision: str, precision: Precision) -> str:
    """Name what a checkpoint is made of; of a base model in a folder, also when it was written."""
    written = [
        f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}"
        for path in sorted(Path(base).glob("*"))
    ]
    source = "\n".join([base, *written]).encode()
    return f"{hashlib.sha256(source).hexdigest()[:8]}-{revision}-{precision}"


def _merge(base: str, adapter: Path, precision: Precision, directory: Path) -> None:
    import torch
    from peft import PeftModel
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_transformers()
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    try:
        tokenizer = AutoTokenizer.from_pretrained(base)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
        merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{base} with adapter {adapter} cannot be loaded: {reason}") from error
    merged.save_pretrained(str(directory))
    tokenizer.save_pretrained(str(directory))
