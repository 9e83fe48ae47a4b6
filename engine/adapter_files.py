"""What the folder of an adapter says: which base model it is for, and which weights it holds."""

import hashlib
import json
from pathlib import Path

from kbqa.sparql.errors import ModelError


def adapter_revision(adapter: Path) -> str:
    """Name an adapter's weights by the head of their hash.

    Raises:
        ModelError: It holds none.
    """
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if (adapter / name).is_file():
            return hashlib.sha256((adapter / name).read_bytes()).hexdigest()[:8]
    raise ModelError(f"{adapter} holds no weights (adapter_model.safetensors)")


def adapter_base(adapter: Path) -> str:
    """Read which base model an adapter was trained on.

    Raises:
        ModelError: There is no adapter, or it does not say.
    """
    path = adapter / "adapter_config.json"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["base_model_name_or_path"])
    except FileNotFoundError:
        raise ModelError(
            f"there is no adapter at {adapter}. Train one with `kbqa train-crp --output {adapter}`."
        ) from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read: {error!r}") from None
