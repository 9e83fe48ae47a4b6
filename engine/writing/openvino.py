"""Write CRPs with a merged model under OpenVINO, which is faster than torch on a CPU.

It writes what `TransformersGenerator` writes in the same precision, up to rounding.

A merged model compiled by OpenVINO; what compiling it needs is made once and cached.

The cache holds the graph with its weights, the tokenizer, and what OpenVINO prepared for this
processor, so that later starts neither merge nor convert.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.writing.beam_search import BatchReader, BeamSearchGenerator, Likely
from kbqa.engine.writing.checkpoint import (
    OpenVinoPrecision,
    adapter_base,
    adapter_revision,
    base_model,
    can_merge,
    checkpoint_key,
    has_fast_int8,
    is_whole_model,
    load_merged,
    make_once,
    merged_weights,
    openvino_precision,
    require_cpu_extra,
    require_lm_extra,
    why_peft,
)
from kbqa.engine.writing.generate import DEFAULT_ADAPTER, load_prompt_format
from kbqa.engine.writing.llama_graph import LlamaShape, import_openvino, llama_graph
from kbqa.engine.writing.steering import Decoding, SavedTokenizer, check_form
from kbqa.kb.open import cache_directory
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from openvino import CompiledModel, InferRequest


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


class OpenVinoModel:
    """A `ReadableModel` that OpenVINO compiled; it has one cache, so readings cannot overlap."""

    def __init__(self, compiled: "CompiledModel") -> None:
        self._request = compiled.create_infer_request()

    def begin(self) -> "OpenVinoReading":
        """Start with an empty cache. The reading before this one has ended."""
        self._request.reset_state()
        return OpenVinoReading(self._request)


@dataclass(slots=True)
class OpenVinoReading:
    """A `Reading` whose cache is the state of a compiled model.

    Attributes:
        request: The compiled model and its state.
        rows: The rows of the state that the next reading goes on from; None for all of them.
    """

    request: "InferRequest"
    rows: "NDArray[np.int64] | None" = None

    def keep(self, rows: "NDArray[np.int64]") -> None:
        """Keep some rows; the state changes with the next reading."""
        self.rows = rows if self.rows is None else self.rows[rows]

    def read(
        self,
        tokens: "NDArray[np.int64]",
        mask: "NDArray[np.int64]",
        positions: "NDArray[np.int64]",
        wanted: "NDArray[np.bool_]",
    ) -> "NumpyNextTokens":
        """Read tokens; see `Reading.read`."""
        import numpy as np

        rows = np.arange(len(tokens)) if self.rows is None else self.rows
        self.rows = None
        inputs = {
            "tokens": tokens,
            "mask": mask,
            "positions": positions,
            "wanted": np.flatnonzero(wanted),
            "rows": rows.astype(np.int32),
        }
        return NumpyNextTokens.of(self.request.infer(inputs, share_outputs=True)[0])


@dataclass(frozen=True, slots=True)
class NumpyNextTokens:
    """What may follow, by the logits of a model; a `batch_reader.NextTokens`.

    Attributes:
        logits: Shape (rows, vocabulary).
        log_sums: Of the exponentials of each row's logits.
    """

    logits: "NDArray[np.float32]"
    log_sums: "NDArray[np.float32]"

    @classmethod
    def of(cls, logits: "NDArray[np.float32]") -> "NumpyNextTokens":
        """Sum the exponentials of each row."""
        import numpy as np

        best = logits.max(axis=1, keepdims=True)
        sums = np.exp(logits - best).sum(axis=1)
        return cls(logits, best[:, 0] + np.log(sums))

    def logprobs(self, rows: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token in its row."""
        found: list[float] = (self.logits[rows, tokens] - self.log_sums[rows]).tolist()
        return found

    def likeliest(self, row: int, count: int) -> list[Likely]:
        """Return the likeliest tokens of a row, best first."""
        import numpy as np

        logits = self.logits[row]
        some = np.argpartition(logits, -min(count, len(logits)))[-count:]
        tokens = some[np.argsort(-logits[some], kind="stable")].tolist()
        return list(map(Likely, tokens, self.logprobs([row] * len(tokens), tokens)))


class OpenVinoGenerator(BeamSearchGenerator):
    """A causal language model with a LoRA adapter, merged, under OpenVINO on the CPU."""

    @classmethod
    def load(
        cls,
        adapter: Path = DEFAULT_ADAPTER,
        base: str | None = None,
        decoding: Decoding | None = None,
        threads: int | None = None,
    ) -> "OpenVinoGenerator":
        """Load an adapter and the base model that it names.

        Args:
            adapter: Folder that `kbqa train-crp` wrote, an adapter's or a whole model's; the
                shipped one by default.
            base: Base model to use instead of the one that the adapter names.
            decoding: How far its texts are constrained; not at all by default.
            threads: Threads that the model computes with; None for one a core.

        Raises:
            ModelError: The `lm` or the `cpu` extra, the base model or the adapter is missing or
                broken, or the model is not a plain Llama.
        """
        prompt, revision = load_prompt_format(adapter), adapter_revision(adapter)
        decoding = decoding or Decoding()
        if decoding.level != "none":
            check_form(prompt)
        model, tokenizer = load_openvino(adapter, base, threads)
        name = (
            f"{base or adapter_base(adapter)} + {adapter.resolve().name} {revision} under OpenVINO,"
            f" decoding {decoding.level}"
        )
        return cls(model, tokenizer, prompt, name, decoding)


def load_openvino(
    adapter: Path, base: str | None = None, threads: int | None = None
) -> tuple[OpenVinoModel, SavedTokenizer]:
    """Load an adapter, merged into its base model, and the tokenizer.

    Args:
        adapter: Folder that `kbqa train-crp` wrote.
        base: Base model to use instead of the one that the adapter names.
        threads: Threads that the model computes with; None for one a core.

    Raises:
        ModelError: See `compile_model`.
    """
    compiled = compile_model(adapter, base, openvino_precision(), threads)
    model = OpenVinoModel(compiled.model)
    try:
        tokenizer = SavedTokenizer(compiled.tokenizer)
    except ModelError as error:
        raise ModelError(f"{error}. Delete the folder to build it again.") from error
    # The weights are prepared by the first reading: not while a question waits.
    BatchReader(model, [[tokenizer.eos_token_id]]).read_prompts()
    return model, tokenizer
