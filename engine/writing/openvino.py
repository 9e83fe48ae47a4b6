"""Write CRPs with a merged model under OpenVINO, which is faster than torch on a CPU.

It writes what `TransformersGenerator` writes in the same precision, up to rounding. The graph with
its weights, the tokenizer and OpenVINO's compiled form for this processor are cached.
"""

import importlib
import json
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kbqa.engine.writing.beam_search import BatchReader, BeamSearchGenerator, Likely, LoadedModel
from kbqa.engine.writing.checkpoint import (
    Adapter,
    OpenVinoPrecision,
    base_model,
    can_merge,
    checkpoint_key,
    has_fast_int8,
    load_merged,
    make_once,
    merged_weights,
    openvino_precision,
    require_cpu_extra,
    require_lm_extra,
)
from kbqa.engine.writing.llama_graph import LlamaShape, llama_graph
from kbqa.engine.writing.steering import SavedTokenizer
from kbqa.kb.open import cache_directory
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from openvino import CompiledModel


_VERSION = 1  # raise it when `llama_graph` builds another graph from the same weights

# Inputs of a matrix that share a scale when they are rounded to 8 bits. The error was that of bf16
# on the prompt tried; with 32 or 128 inputs it was larger.
_GROUP = 64

_GRAPH = "graph.xml"
_COMPILED = "compiled"

_TELEMETRY, _IMPORTING = "openvino_telemetry", threading.Lock()


class OpenVinoGenerator(BeamSearchGenerator):
    """A causal language model with a LoRA adapter, merged, under OpenVINO on the CPU."""

    runtime = " under OpenVINO"

    @staticmethod
    def load_model(adapter: Adapter, threads: int | None = None) -> LoadedModel:
        """Compile the model; `threads` compute with it, by default one a core."""
        precision = openvino_precision()
        folder = prepare_model(adapter, precision)
        model = OpenVinoModel(compile_model(folder, precision, threads))
        try:
            tokenizer = SavedTokenizer(folder)
        except ModelError as error:
            raise ModelError(f"{error}. Delete the folder to build it again.") from error
        # The weights are prepared by the first reading: not while a question waits.
        BatchReader(model, [[tokenizer.eos_token_id]]).read_prompts()
        return LoadedModel(model, tokenizer)


def import_openvino() -> None:
    """Import OpenVINO without telemetry; call this before any other import of it.

    With the package openvino_telemetry, the import writes an identifier to the user's home folder,
    and starts a process that sends it to google-analytics.com. So that package is hidden meanwhile.
    """
    with _IMPORTING:
        missing = object()
        found: Any = sys.modules.get(_TELEMETRY, missing)
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
        try:
            importlib.import_module("openvino")
        finally:
            if found is missing:
                del sys.modules[_TELEMETRY]
            else:
                sys.modules[_TELEMETRY] = found


def compile_model(
    folder: Path, precision: OpenVinoPrecision, threads: int | None = None
) -> "CompiledModel":
    """Compile the model of a folder, which `prepare_model` made, for the CPU.

    For int8, the inputs of matrices are rounded on the way.
    """
    in_int8 = precision == "int8"
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
            return Core().compile_model(str(folder / _GRAPH), "CPU", settings)
        except RuntimeError:
            # Processes that write OpenVINO's cache at once may get into each other's way.
            return Core().compile_model(str(folder / _GRAPH), "CPU", settings)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"OpenVINO cannot load {folder}: {reason}. Delete the folder to build it again."
        ) from error


def prepare_model(adapter: Adapter, precision: OpenVinoPrecision) -> Path:
    """Return the folder of a merged model's graph and tokenizer; make it if it is not cached yet.

    For int8, matrices are kept in int8. Else weights are kept in float32.
    """
    require_cpu_extra()
    in_int8 = precision == "int8"
    key = checkpoint_key(adapter, "int8" if in_int8 else "float32")
    return make_once(
        cache_directory() / f"openvino-{_VERSION}-{key}",
        lambda directory: _convert(adapter, directory, in_int8=in_int8),
    )


def _convert(adapter: Adapter, directory: Path, *, in_int8: bool) -> None:
    import_openvino()
    from openvino import save_model

    if can_merge(adapter):
        base = Path(base_model(adapter.base))
        config = json.loads((base / "config.json").read_text(encoding="utf-8"))
        weights = merged_weights(adapter)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(base / name, directory / name)
    else:
        require_lm_extra(adapter)
        model, tokenizer = load_merged(adapter, "float32")
        config = model.config.to_dict()
        weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
        tokenizer.save_pretrained(str(directory))
    graph = llama_graph(LlamaShape.of(config), weights, in_int8=in_int8)
    save_model(graph, str(directory / _GRAPH), compress_to_fp16=False)


class OpenVinoModel:
    """A `ReadableModel` that OpenVINO compiled, and its own `Reading`: it has one cache."""

    def __init__(self, compiled: "CompiledModel") -> None:
        self._request = compiled.create_infer_request()

    def begin(self) -> Self:
        """Start with an empty cache. The reading before this one has ended."""
        self._request.reset_state()
        return self

    def read(
        self,
        rows: "NDArray[np.int64] | None",
        tokens: "NDArray[np.int64]",
        mask: "NDArray[np.int64]",
        positions: "NDArray[np.int64]",
        wanted: "NDArray[np.bool_]",
    ) -> "NumpyNextTokens":
        """Read tokens; see `Reading.read`."""
        import numpy as np

        inputs = {
            "tokens": tokens,
            "mask": mask,
            "positions": positions,
            "wanted": np.flatnonzero(wanted),
            "rows": (np.arange(len(tokens)) if rows is None else rows).astype(np.int32),
        }
        return NumpyNextTokens(self._request.infer(inputs, share_outputs=True)[0])


class NumpyNextTokens:
    """A `NextTokens` by the logits of a model, shape (rows, vocabulary)."""

    def __init__(self, logits: "NDArray[np.float32]") -> None:
        import numpy as np

        best = logits.max(axis=1, keepdims=True)
        sums = np.exp(logits - best).sum(axis=1)
        self._logits, self._log_sums = logits, best[:, 0] + np.log(sums)

    def logprobs(self, rows: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token in its row."""
        found: list[float] = (self._logits[rows, tokens] - self._log_sums[rows]).tolist()
        return found

    def likeliest(self, row: int, count: int) -> list[Likely]:
        """Return the most likely tokens of a row, best first."""
        import numpy as np

        logits = self._logits[row]
        some = np.argpartition(logits, -min(count, len(logits)))[-count:]
        tokens = some[np.argsort(-logits[some], kind="stable")].tolist()
        return list(map(Likely, tokens, self.logprobs([row] * len(tokens), tokens)))
