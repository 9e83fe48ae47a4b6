"""Read the folder of an adapter: which base model it is for, and what it holds.

`kbqa train-crp --full` writes a whole model in place of an adapter; its base is itself.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kbqa.sparql.errors import ModelError

_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_HEADER_LENGTH_BYTES = 8

MATRIX = re.compile(r"base_model\.model\.(.+)\.lora_([AB])(?:\.default)?\.weight")
"""The name of one of the two matrices of a module, with or without the name of PEFT's adapter."""

_READ = ("lora_alpha", "r", "target_modules")
_WITHOUT_EFFECT = (
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "task_type",
)
"""Settings that change nothing about what is merged, unless another one does."""

_PLAIN: Mapping[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    # The others, such as pissa, change the base model as well.
    "init_lora_weights": (True, "gaussian"),
}


def is_whole_model(adapter: Path) -> bool:
    """Return whether a folder holds a whole trained model and no adapter."""
    return (adapter / "config.json").is_file() and not (adapter / _CONFIG).is_file()


def adapter_revision(adapter: Path) -> str:
    """Return a name for an adapter or a whole model: the start of `adapter_sha256`."""
    return adapter_sha256(adapter)[:8]


def adapter_sha256(adapter: Path) -> str:
    """Return the hash of an adapter or a whole model, in hex.

    The configuration counts: with another `lora_alpha`, the same weights are another adapter.

    Raises:
        ModelError: The folder holds no weights.
    """
    is_whole = is_whole_model(adapter)
    pattern, config = ("model*.safetensors", "config.json") if is_whole else (_WEIGHTS, _CONFIG)
    files = sorted(adapter.glob(pattern)) or sorted(adapter.glob("adapter_model.bin"))
    if not files:
        raise ModelError(f"{adapter} holds no weights ({pattern})")
    return files_sha256([*files, *adapter.glob(config)])


def files_sha256(files: Iterable[Path]) -> str:
    """Return the hash of files, one after the other, in hex."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as weights:
            hashlib.file_digest(weights, lambda: digest)
    return digest.hexdigest()


def adapter_config(adapter: Path) -> dict[str, Any]:
    """Read the configuration of an adapter, in PEFT's layout.

    Raises:
        ModelError: There is no adapter, its file cannot be read, or its scale makes no sense.
    """
    path = adapter / _CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        config["base_model_name_or_path"] = str(config["base_model_name_or_path"])
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(
            f"there is no adapter at {adapter}. Train one with `kbqa train-crp --output {adapter}`."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error!r}") from None
    rank, alpha = config.get("r", 1), config.get("lora_alpha", 1)
    if type(rank) is not int or rank < 1:
        raise ModelError(f"{path}: r is {rank!r}, and has to be a whole number above 0")
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise ModelError(f"{path}: lora_alpha is {alpha!r}, and has to be a number")
    return config


def unusual_settings(config: Mapping[str, Any]) -> list[str]:
    """Name the settings that make a LoRA adapter more than two matrices a module.

    A setting that is not known here counts, unless it is off.

    Args:
        config: As `adapter_config` returns it.
    """
    known = (*_READ, *_WITHOUT_EFFECT)
    return sorted(
        name
        for name, value in config.items()
        if name not in known
        and value is not False
        and value not in _PLAIN.get(name, (None, {}, []))
    )


def why_peft(adapter: Path) -> str:
    """Return why only PEFT can merge an adapter; empty if it is two matrices a module.

    Raises:
        ModelError: There is no adapter, or a file cannot be read.
    """
    config = adapter_config(adapter)
    if unusual := unusual_settings(config):
        return f"it sets {', '.join(unusual)}"
    if absent := [name for name in _READ if name not in config]:
        return f"it does not set {', '.join(absent)}"
    targets = config["target_modules"]
    if not isinstance(targets, list):
        return "its target_modules is no list"
    if not (adapter / _WEIGHTS).is_file():
        return f"it has no {_WEIGHTS}"
    ends = tuple(f".{target}" for target in targets)
    for name in tensor_shapes(adapter / _WEIGHTS):
        found = MATRIX.fullmatch(name)
        # The output layer may be that of the embeddings.
        if not found or not f".{found[1]}".endswith(ends) or found[1] == "lm_head":
            return f"it has the tensor {name}"
    return ""


def tensor_shapes(path: Path) -> dict[str, list[int]]:
    """Read the names and shapes of the tensors in a safetensors file.

    Raises:
        ModelError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_HEADER_LENGTH_BYTES), "little")
            # In a damaged file, the length can be any number.
            header = json.loads(file.read(min(length, path.stat().st_size)))
        return {name: one["shape"] for name, one in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None


def adapter_base(adapter: Path) -> str:
    """Read which base model an adapter was trained on; for a whole model, return its folder.

    Raises:
        ModelError: There is no adapter, or its file does not name a model.
    """
    if is_whole_model(adapter):
        return str(adapter)
    return str(adapter_config(adapter)["base_model_name_or_path"])
