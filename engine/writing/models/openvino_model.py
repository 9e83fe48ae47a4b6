"""A merged model compiled by OpenVINO; what compiling it needs is made once and cached.

The cache holds the graph with its weights, the tokenizer, and what OpenVINO prepared for this
processor, so that later starts neither merge nor convert.
"""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.writing.models.adapter_files import (
    adapter_base,
    adapter_revision,
    is_whole_model,
    why_peft,
)
from kbqa.engine.writing.models.base_models import (
    base_model,
    make_once,
    require_cpu_extra,
    require_lm_extra,
)
from kbqa.engine.writing.models.checkpoint_weights import can_merge, merged_weights
from kbqa.engine.writing.models.llama_graph import LlamaShape, import_openvino, llama_graph
from kbqa.engine.writing.models.merged_checkpoint import checkpoint_key, load_merged
from kbqa.engine.writing.models.precision import OpenVinoPrecision, has_fast_int8
from kbqa.kb.cache import cache_directory
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    from openvino import CompiledModel

_VERSION = 1
"""Of the graph. Raise it when `llama_graph` builds another one from the same weights."""

_GROUP = 64
"""Inputs of a matrix that share a scale when they are rounded to 8 bits. The error was that of bf16
on the prompt tried; with 32 or 128 inputs it was larger."""

_GRAPH = "graph.xml"
_COMPILED = "compiled"


class CompiledWriter(NamedTuple):
    """A compiled model, as `llama_graph` describes it, and the folder of its tokenizer."""

    model: "CompiledModel"
    tokenizer: Path


def compile_model(
    adapter: Path, base: str | None, precision: OpenVinoPrecision, threads: int | None = None
) -> CompiledWriter:
    """Merge an adapter into its base model and compile it for the CPU.

    Args:
        adapter: Folder that `kbqa train-crp` wrote.
        base: Base model, which may differ from the one that the adapter names.
        precision: What the model computes in. For int8, its matrices are kept in int8, and what
            they are multiplied by is rounded on the way; else its weights are kept in float32.
        threads: Threads to compute with; None for one a core.

    Raises:
        ModelError: An extra, the base model or the adapter is missing or broken, the model is not a
            plain Llama, or the cache cannot be written.
    """
    folder, in_int8 = prepare_model(adapter, base, precision), precision == "int8"
    import_openvino()
    from openvino import Core

    number = "bf16" if precision == "bfloat16" else "f32"
    settings: dict[str, object] = {
        "INFERENCE_PRECISION_HINT": number,
        "KV_CACHE_PRECISION": number,  # else 8 bits
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": _GROUP if in_int8 and has_fast_int8() else 0,
        "NUM_STREAMS": 1,
        # Bound to cores, the threads of two processes would wait for the same ones.
        "ENABLE_CPU_PINNING": False,
        "CACHE_DIR": str(folder / _COMPILED),
        "CACHE_MODE": "OPTIMIZE_SIZE",  # without the weights, which are in the folder already
    }
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    try:
        try:
            model = Core().compile_model(str(folder / _GRAPH), "CPU", settings)
        except RuntimeError:
            # Processes that write OpenVINO's cache at once may get into each other's way.
            model = Core().compile_model(str(folder / _GRAPH), "CPU", settings)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"OpenVINO cannot load {folder}: {reason}. Delete the folder to build it again."
        ) from error
    return CompiledWriter(model, folder)


def prepare_model(adapter: Path, base: str | None, precision: OpenVinoPrecision) -> Path:
    """Make what compiling a model needs, if it is not in the cache yet; return its folder.

    Args and errors are those of `compile_model`.
    """
    require_cpu_extra()
    base = base_model(base or adapter_base(adapter))
    in_int8 = precision == "int8"
    key = checkpoint_key(base, adapter_revision(adapter), "int8" if in_int8 else "float32")
    return make_once(
        cache_directory() / f"openvino-{_VERSION}-{key}",
        lambda directory: _convert(base, adapter, directory, in_int8=in_int8),
    )


def _convert(base: str, adapter: Path, directory: Path, *, in_int8: bool) -> None:
    """Write the graph and the tokenizer into a folder."""
    import_openvino()
    from openvino import save_model

    folder = Path(base)
    if can_merge(folder, adapter):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights = merged_weights(folder, adapter)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(folder / name, directory / name)
    else:
        require_lm_extra(adapter, "" if is_whole_model(adapter) else why_peft(adapter))
        model, tokenizer = load_merged(base, adapter, "float32")
        config = model.config.to_dict()
        weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
        tokenizer.save_pretrained(str(directory))
    graph = llama_graph(LlamaShape.of(config), weights, in_int8=in_int8)
    save_model(graph, str(directory / _GRAPH), compress_to_fp16=False)
