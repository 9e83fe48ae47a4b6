"""The weights of a checkpoint with a LoRA adapter merged into them, in numpy.

Source: Hu et al. 2021, LoRA, section 4.1.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbqa.engine.writing.models.adapter_files import adapter_config, is_whole_model
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]

_PREFIX = "base_model.model."

_OTHER_KINDS = (
    "alpha_pattern",
    "fan_in_fan_out",
    "layer_replication",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "use_rslora",
)
"""Settings of PEFT that make a LoRA adapter more than two matrices for each module."""


def can_merge(base: Path, adapter: Path) -> bool:
    """Return whether `merged_weights` can merge an adapter into a base model.

    Args:
        base: Folder of the base model; without one, PEFT and transformers have to merge.
        adapter: Folder of the adapter, or of a whole model.
    """
    if not ((base / "tokenizer.json").is_file() and any(base.glob("model*.safetensors"))):
        return False
    if is_whole_model(adapter):
        return True
    config = adapter_config(adapter)
    return (
        config.get("peft_type") == "LORA"
        and config.get("bias") == "none"
        and not any(config.get(setting) for setting in _OTHER_KINDS)
        and (adapter / "adapter_model.safetensors").is_file()
    )


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
            _merge(weights, _read(adapter / "adapter_model.safetensors"), config)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{base} with adapter {adapter} cannot be loaded: {reason}") from error
    return weights


def _merge(weights: "Weights", lora: "Weights", config: dict[str, Any]) -> None:
    scale = config["lora_alpha"] / config["r"]
    for name, down in lora.items():
        module, _, part = name.removeprefix(_PREFIX).rpartition(".lora_")
        if part == "A.weight":
            up = lora[name.replace(".lora_A.", ".lora_B.")]
            weights[f"{module}.weight"] += scale * (up @ down)


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
