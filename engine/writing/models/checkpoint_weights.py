"""The weights of a checkpoint with a LoRA adapter merged into them, in numpy.

Source: Hu et al. 2021, LoRA, section 4.1.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbqa.engine.writing.models.adapter_files import (
    MATRIX,
    adapter_config,
    is_whole_model,
    why_peft,
)
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]


def can_merge(base: Path, adapter: Path) -> bool:
    """Return whether `merged_weights` can merge an adapter into a base model.

    Args:
        base: Folder of the base model; without one, PEFT and transformers have to merge.
        adapter: Folder of the adapter, or of a whole model.
    """
    if not ((base / "tokenizer.json").is_file() and any(base.glob("model*.safetensors"))):
        return False
    return is_whole_model(adapter) or not why_peft(adapter)


def merged_weights(base: Path, adapter: Path) -> "Weights":
    """Read the weights of a base model and merge an adapter into them, if it is one.

    Args:
        base: Folder of the base model.
        adapter: Folder for which `can_merge` is true.

    Returns:
        The weights by their names in Hugging Face's checkpoints.

    Raises:
        ModelError: A file is broken, or the adapter does not fit the model.
    """
    try:
        weights: Weights = {}
        for path in sorted(base.glob("model*.safetensors")):
            weights |= _read(path)
        if not is_whole_model(adapter):
            config = adapter_config(adapter)
            lora = _read(adapter / "adapter_model.safetensors")
            rank = config["r"]
            if any(rank not in matrix.shape for matrix in lora.values()):
                raise ValueError(f"the rank of the adapter's matrices is not {rank}, as it says")
            weights = merge_lora(weights, lora, config["lora_alpha"] / rank, MATRIX)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{base} with adapter {adapter} cannot be loaded: {reason}") from error
    return weights


def merge_lora(
    weights: "Mapping[str, NDArray[np.float32]]",
    lora: "Mapping[str, NDArray[np.float32]]",
    scale: float,
    matrix_name: re.Pattern[str],
) -> "Weights":
    """Add the product of each adapted module's matrices to its weights.

    Args:
        weights: Of the model, the modules' as ``MODULE.weight``.
        lora: For each adapted module, A of shape (rank, inputs) and B of shape (outputs, rank).
        scale: Of the products.
        matrix_name: Matches the names in `lora`; its groups are the module, and A or B.

    Raises:
        ValueError: There is anything else in `lora`, or it does not fit the weights.
    """
    modules: dict[str, Weights] = {}
    for name, matrix in lora.items():
        found = matrix_name.fullmatch(name)
        if not found or found[2] in modules.setdefault(found[1], {}):
            raise ValueError(f"the adapter has a tensor too many, {name}")
        modules[found[1]][found[2]] = matrix
    merged = dict(weights)
    for module, matrices in modules.items():
        name = f"{module}.weight"
        if name not in weights:
            raise ValueError(f"the adapter is for {name}, which the model does not have")
        if len(matrices) != 2:
            raise ValueError(f"the adapter has only one of the two matrices of {module}")
        down, up = matrices["A"], matrices["B"]
        outputs, inputs = weights[name].shape
        if down.shape != (len(down), inputs) or up.shape != (outputs, len(down)):
            raise ValueError(
                f"the matrices of {module}, {down.shape} and {up.shape}, do not fit its weights, "
                f"{weights[name].shape}"
            )
        merged[name] = weights[name] + scale * (up @ down)
    return merged


def _read(path: Path) -> "Weights":
    """Read a file of weights; numpy itself has no bf16."""
    import numpy as np
    from safetensors import SafetensorError, deserialize

    def array(tensor: dict[str, Any]) -> "NDArray[np.float32]":
        shape, data = tensor["shape"], tensor["data"]
        match tensor["dtype"]:
            case "BF16":
                bits = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
                return bits.view(np.float32).reshape(shape)
            case "F16":
                return np.frombuffer(data, np.float16).astype(np.float32).reshape(shape)
            case "F32":
                return np.frombuffer(data, np.float32).reshape(shape).copy()
            case other:
                raise ValueError(f"{path} has weights of type {other}")

    try:
        tensors: list[tuple[str, dict[str, Any]]] = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
        return {name: array(tensor) for name, tensor in tensors}
    except SafetensorError as error:
        raise ValueError(f"{path}: {error}") from error
