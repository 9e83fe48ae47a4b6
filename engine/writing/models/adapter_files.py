"""Read the folder of an adapter: which base model it is for, and which weights it holds.

`kbqa train-crp --full` writes a whole model in place of an adapter; its base is itself.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kbqa.sparql.errors import ModelError

_CONFIG = "adapter_config.json"


def is_whole_model(adapter: Path) -> bool:
    """Return whether a folder holds a whole trained model and no adapter."""
    return (adapter / "config.json").is_file() and not (adapter / _CONFIG).is_file()


def adapter_revision(adapter: Path) -> str:
    """Return a name for the weights of an adapter or a whole model: the start of their hash.

    Raises:
        ModelError: The folder holds none.
    """
    pattern = "model*.safetensors" if is_whole_model(adapter) else "adapter_model.safetensors"
    files = sorted(adapter.glob(pattern)) or sorted(adapter.glob("adapter_model.bin"))
    if not files:
        raise ModelError(f"{adapter} holds no weights ({pattern})")
    return weights_sha256(files)[:8]


def weights_sha256(files: Iterable[Path]) -> str:
    """Return the hash of files of weights, one after the other, in hex."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as weights:
            hashlib.file_digest(weights, lambda: digest)
    return digest.hexdigest()


def adapter_config(adapter: Path) -> dict[str, Any]:
    """Read the configuration of an adapter, in PEFT's layout.

    Raises:
        ModelError: There is no adapter, or its file cannot be read.
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
    return config


def adapter_base(adapter: Path) -> str:
    """Read which base model an adapter was trained on; for a whole model, return its folder.

    Raises:
        ModelError: There is no adapter, or its file does not name a model.
    """
    if is_whole_model(adapter):
        return str(adapter)
    return str(adapter_config(adapter)["base_model_name_or_path"])
