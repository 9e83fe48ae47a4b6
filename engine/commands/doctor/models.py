"""Check that the parts of the path model are there, without loading them."""

import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from kbqa.engine.running.asker import ASKER_FOLDER
from kbqa.engine.running.reading import SHIPPED_JUDGE
from kbqa.engine.writing.generate import DEFAULT_ADAPTER
from kbqa.engine.writing.model_choice import default_backend
from kbqa.engine.writing.models.adapter_files import (
    adapter_base,
    adapter_revision,
    is_whole_model,
    tensor_shapes,
    why_peft,
)
from kbqa.engine.writing.models.base_models import (
    SMOLLM2,
    check_base_model,
    require_cpu_extra,
    require_lm_extra,
    smollm2_files,
)
from kbqa.engine.writing.prompt import load_prompt_format
from kbqa.kb.health.findings import Finding, from_error, ok, problem, warning
from kbqa.sparql.errors import ModelError

# The name that transformers uses in all families of causal models with rotary embeddings.
_QUERY_WEIGHTS = re.compile(r"\blayers\.(\d+)\.self_attn\.q_proj\.lora_A\b")
_UNPACKED = 6
"""Bytes of a weight in float32, as a multiple of its bytes in the shipped 4-bit file."""


def check_models(base: str | None = None, adapter: Path | None = None) -> Iterator[Finding]:
    """Check everything that `kbqa ask` loads.

    Args:
        base: Base model, if not the one that the adapter names.
        adapter: Adapter, if not the shipped one.
    """
    adapter = adapter or DEFAULT_ADAPTER
    try:
        trained_on = adapter_base(adapter)
        load_prompt_format(adapter)
        revision = adapter_revision(adapter)
        by_peft = "" if is_whole_model(adapter) else why_peft(adapter)
        if by_peft:
            require_lm_extra(adapter, by_peft)
    except ModelError as error:
        yield from_error("adapter", error, "Give a folder that `kbqa train-crp` wrote.")
        return
    name = base or trained_on
    yield _check_backend(name)
    yield _check_base(name)
    misfit = _misfit(adapter, name)
    if misfit:
        yield problem(
            "adapter", f"{adapter} does not fit {name}: {misfit}", f"Use --model {trained_on}."
        )
    elif name != trained_on:
        yield warning(
            "adapter",
            f"{adapter} was trained on {trained_on}, not on {name}",
            f"Use --model {trained_on}, unless both names mean the same model.",
        )
    else:
        merged = f"; PEFT merges it, since {by_peft}" if by_peft else ""
        yield ok("adapter", f"{revision} in {adapter}, trained on {trained_on}{merged}")


def model_memory_bytes(base: str | None = None, adapter: Path | None = None) -> int:
    """Estimate the memory of the base model and the judge's asker in float32.

    A model whose weights are not here counts as nothing.
    """
    try:
        written_by = base or adapter_base(adapter or DEFAULT_ADAPTER)
        return sum(map(_memory_bytes, (written_by, adapter_base(SHIPPED_JUDGE / ASKER_FOLDER))))
    except ModelError:
        return 0


def _memory_bytes(name: str) -> int:
    directory = _weights_directory(name)
    if directory is None:
        return _UNPACKED * smollm2_files().gguf.stat().st_size if name == SMOLLM2 else 0
    weights = [*directory.glob("model*.safetensors"), *directory.glob("pytorch_model*.bin")]
    return 2 * sum(path.stat().st_size for path in weights)


def _check_backend(base: str) -> Finding:
    """Check that what runs the base model is installed."""
    try:
        if default_backend(base) == "openvino":
            require_cpu_extra()
            return ok("runtime", f"openvino {version('openvino')}")
        require_lm_extra()
    except ModelError as error:
        return from_error("runtime", error)
    return ok("runtime", f"torch {version('torch')}, transformers {version('transformers')}")


def _check_base(name: str) -> Finding:
    try:
        if name.lower() == SMOLLM2:
            is_made = smollm2_files().checkpoint.is_dir()
            state = "is ready" if is_made else "is included and will be converted at first use"
            return ok("base model", f"{name} {state}")
        check_base_model(name, ask_hub=False)
        if not Path(name).is_dir() and _cached(name) is None:
            return warning(
                "base model",
                f"{name} is not on this machine and will be downloaded at first use",
                f"To download it now: `hf download {name}`.",
            )
    except ModelError as error:
        advice = "Give --model a Hugging Face id, or a folder with config.json and weights."
        return from_error("base model", error, advice)
    return ok("base model", f"{name} is on this machine")


def _cached(name: str) -> Path | None:
    """Return the folder of a model in the Hugging Face cache, if it is there."""
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    try:
        config = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(config).parent if isinstance(config, str) else None


def _weights_directory(name: str) -> Path | None:
    if name.lower() == SMOLLM2:
        checkpoint = smollm2_files().checkpoint
        return checkpoint if checkpoint.is_dir() else None
    return Path(name) if Path(name).is_dir() else _cached(name)


def _misfit(adapter: Path, name: str) -> str:
    """Describe how an adapter's shape differs from the base model's; empty if not known to."""
    weights = adapter / "adapter_model.safetensors"
    try:
        directory = _weights_directory(name)
        if directory is None or not weights.is_file():
            return ""
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        tensors = tensor_shapes(weights)
    except ModelError:
        return ""
    except (OSError, ValueError) as error:
        return f"the model's config.json cannot be read ({error})"
    shapes = {
        int(found[1]): shape
        for key, shape in tensors.items()
        if (found := _QUERY_WEIGHTS.search(key))
    }
    if not shapes:
        return ""
    layers, width = max(shapes) + 1, shapes[0][1]
    wanted_layers, wanted_width = config.get("num_hidden_layers"), config.get("hidden_size")
    if (layers, width) == (wanted_layers, wanted_width):
        return ""
    return (
        f"it was made for {layers} layers of width {width}, "
        f"and the model has {wanted_layers} of {wanted_width}"
    )
