"""Write CRPs with a merged model under OpenVINO, which is faster than torch on a CPU.

It writes what `TransformersGenerator` writes in the same precision, up to rounding. The graph with
its weights, the tokenizer and OpenVINO's compiled form for this processor are cached.

`llama_graph` builds the computation of a Llama model from its weights without torch. The keys and
values of the tokens read so far are the state of the compiled model, so Python never copies them.

OpenVINO's CPU plugin has one kernel for attention with its state, one for rotary embeddings and one
for RMS norms. It recognizes them by the shape of the graph, so roundabout steps, such as a
multiplication by ones, are the form that it looks for. Attention built from single operations took
1.5 times as long for five texts of one token.

Source: Touvron et al. 2023, LLaMA; Su et al. 2021, RoFormer, for rotary embeddings.
"""

import importlib
import json
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

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
from kbqa.engine.writing.generate import SavedTokenizer
from kbqa.kb.open import cache_directory
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from openvino import CompiledModel, Model, Node

    Weights = Mapping[str, NDArray[np.float32]]


_VERSION = 1  # raise it when `llama_graph` builds another graph from the same weights

# Inputs of a matrix that share a scale when they are rounded to 8 bits. The error was that of bf16
# on the prompt tried; with 32 or 128 inputs it was larger.
_GROUP = 64

_GRAPH = "graph.xml"
_COMPILED = "compiled"

_TELEMETRY, _IMPORTING = "openvino_telemetry", threading.Lock()

# Added to the score of a masked token. With minus infinity, a row that is all masked gives NaN.
_MASKED = -1e9

# From (texts, tokens, heads, width) to (texts, heads, tokens, width), or back.
_SWAPPED = (0, 2, 1, 3)


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


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """The numbers of a Llama model's configuration that its computation needs."""

    layers: int
    heads: int
    kv_heads: int  # a divisor of `heads`
    head_width: int
    epsilon: float  # added to the mean square in RMS norms
    rope_base: float  # base of the wavelengths of the rotary embeddings
    has_tied_head: bool  # the output layer has the weights of the embeddings

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "LlamaShape":
        """Read Hugging Face's ``config.json``; raise `ModelError` if it is not of a plain Llama."""
        rope = config.get("rope_parameters") or {}
        is_plain = (
            config.get("model_type") == "llama"
            and config.get("hidden_act") == "silu"
            and rope.get("rope_type") == "default"
            and not config.get("attention_bias")
            and not config.get("mlp_bias")
        )
        if not is_plain:
            raise ModelError(
                "the back end openvino runs only plain Llama models, such as SmolLM2, and this is "
                f"a {config.get('model_type')} model with rotary embeddings of type "
                f"{rope.get('rope_type')}. Use --backend transformers."
            )
        heads = config["num_attention_heads"]
        return cls(
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"],
            head_width=config.get("head_dim") or config["hidden_size"] // heads,
            epsilon=config["rms_norm_eps"],
            rope_base=rope["rope_theta"],
            has_tied_head=config["tie_word_embeddings"],
        )


def llama_graph(shape: LlamaShape, weights: "Weights", *, in_int8: bool = False) -> "Model":
    """Build the graph of a Llama model; `import_openvino` has been called.

    Its inputs:

    - ``tokens``, int64, shape (texts, tokens to read)
    - ``positions`` of these in their texts, int64, of the same shape
    - ``mask``: 1 for each token read before or now, 0 for padding; int64, shape (texts, tokens)
    - ``rows``: the row of the state that each text continues, int32, shape (texts,)
    - ``wanted``: the numbers, row by row, of the tokens to read after which logits are wanted;
      int64, shape (wanted,)

    Its output is ``logits``, float32, shape (wanted, vocabulary). The weights have their names in
    Hugging Face's checkpoints. With `in_int8`, matrices are kept in 8 bits, with a scale a row.
    """
    return _Graph(shape, weights, in_int8).build()


class _Rows(NamedTuple):
    """A matrix in int8, and the scale of each row, shape (rows, 1)."""

    whole: "Node"
    scales: "Node"


class _Graph:
    def __init__(self, shape: LlamaShape, weights: "Weights", in_int8: bool) -> None:
        from openvino import PartialShape, Type, opset13

        self._op, self._shape, self._weights = opset13, shape, weights
        flat, table = PartialShape([-1]), PartialShape([-1, -1])
        self._tokens = opset13.parameter(table, Type.i64, name="tokens")
        self._positions = opset13.parameter(table, Type.i64, name="positions")
        self._mask = opset13.parameter(table, Type.i64, name="mask")
        self._rows = opset13.parameter(flat, Type.i32, name="rows")
        self._wanted = opset13.parameter(flat, Type.i64, name="wanted")
        self._inputs = [self._tokens, self._positions, self._mask, self._rows, self._wanted]
        for node in self._inputs:
            node.output(0).set_names({node.friendly_name})
        self._texts = self._size(self._tokens, 0)
        self._assigns: list[Any] = []
        self._in_int8 = in_int8
        self._matrices: dict[str, Node | _Rows] = {}

    def build(self) -> "Model":
        from openvino import Model

        op = self._op
        embeddings = "model.embed_tokens.weight"
        head = self._matrix(embeddings if self._shape.has_tied_head else "lm_head.weight")
        cosine, sine = self._rotation()
        bias = self._attention_bias()
        hidden = self._rows_of(embeddings, self._tokens)
        for layer in range(self._shape.layers):
            name = f"model.layers.{layer}"
            normed = self._norm(hidden, f"{name}.input_layernorm")
            attended = self._attention(normed, f"{name}.self_attn", cosine, sine, bias)
            hidden = op.add(hidden, attended)
            normed = self._norm(hidden, f"{name}.post_attention_layernorm")
            hidden = op.add(hidden, self._mlp(normed, f"{name}.mlp"))
        width = self._weights["model.norm.weight"].size
        # The output layer is much of the work, so it sees only what is wanted.
        flat = op.reshape(hidden, self._constant((-1, width)), special_zero=False)
        wanted = op.gather(flat, self._wanted, self._constant(0))
        logits = op.matmul(self._norm(wanted, "model.norm"), head, False, True)
        result = op.result(logits, name="logits")
        return Model([result], self._assigns, self._inputs, "llama")

    def _rotation(self) -> "tuple[Node, Node]":
        """Return cosine and sine of the rotary embeddings, shape (texts, 1, tokens, head width)."""
        import numpy as np

        op, width = self._op, self._shape.head_width
        wavelengths = self._shape.rope_base ** (np.arange(0, width, 2) / width)
        positions = op.unsqueeze(op.convert(self._positions, "f32"), self._constant((1, 3)))
        half = op.multiply(positions, op.constant((1 / wavelengths).astype(np.float32)))
        angles = op.concat([half, half], -1)
        return op.cos(angles), op.sin(angles)

    def _attention_bias(self) -> "Node":
        """Return the bias of the scores, shape (texts, 1, tokens to read, all tokens)."""
        op = self._op
        read, every = self._size(self._tokens, 1), self._size(self._mask, 1)
        zero, one = self._constant(0), self._constant(1)
        column = op.range(zero, every, one, "i64")
        row = op.unsqueeze(op.range(op.subtract(every, read), every, one, "i64"), one)
        is_past = op.less_equal(op.unsqueeze(column, zero), row)
        is_token = op.unsqueeze(op.not_equal(self._mask, zero), self._constant((1, 2)))
        seen = op.logical_and(op.unsqueeze(is_past, self._constant((0, 1))), is_token)
        return op.select(seen, self._constant(0.0, "float32"), self._constant(_MASKED, "float32"))

    def _attention(
        self, hidden: "Node", name: str, cosine: "Node", sine: "Node", bias: "Node"
    ) -> "Node":
        op, shape = self._op, self._shape
        query = self._in_heads(self._linear(hidden, f"{name}.q_proj"), shape.heads)
        key = self._in_heads(self._linear(hidden, f"{name}.k_proj"), shape.kv_heads)
        value = self._in_heads(self._linear(hidden, f"{name}.v_proj"), shape.kv_heads)
        attended = op.scaled_dot_product_attention(
            self._rotate(query, cosine, sine),
            self._with_past(self._rotate(key, cosine, sine), f"{name}.keys"),
            self._with_past(value, f"{name}.values"),
            bias,
        )
        joined = op.transpose(attended, self._constant(_SWAPPED))
        width = shape.heads * shape.head_width
        flat = op.reshape(joined, self._constant((0, 0, width)), True)
        return self._linear(flat, f"{name}.o_proj")

    def _in_heads(self, flat: "Node", heads: int) -> "Node":
        """Split the width into heads; shape (texts, heads, tokens, head width)."""
        op = self._op
        split = op.reshape(flat, self._constant((0, 0, heads, self._shape.head_width)), True)
        return op.transpose(split, self._constant(_SWAPPED))

    def _rotate(self, heads: "Node", cosine: "Node", sine: "Node") -> "Node":
        import numpy as np

        op, half = self._op, self._shape.head_width // 2
        parts = op.variadic_split(heads, self._constant(3), self._constant((half, half)))
        minus = op.constant(np.array([-1], np.float32))
        turned = op.concat([op.multiply(parts.output(1), minus), parts.output(0)], -1)
        return op.add(op.multiply(heads, cosine), op.multiply(turned, sine))

    def _with_past(self, heads: "Node", name: str) -> "Node":
        """Append keys or values to those in the state, and repeat them for the heads of queries."""
        import numpy as np
        from openvino import PartialShape, Type, opset6

        op, shape = self._op, self._shape
        nothing = op.concat([self._texts, self._constant((shape.kv_heads, 0, shape.head_width))], 0)
        form = PartialShape([-1, shape.kv_heads, -1, shape.head_width])
        empty = op.broadcast(self._constant(0.0, "float32"), nothing)
        state = opset6.read_value(empty, name, Type.f32, form)
        every = op.concat([op.gather(state, self._rows, self._constant(0)), heads], -2)
        self._assigns.append(opset6.assign(every, name))
        ones = np.ones((1, 1, shape.heads // shape.kv_heads, 1, 1), np.float32)
        repeated = op.multiply(op.unsqueeze(every, self._constant(2)), op.constant(ones))
        return op.reshape(repeated, self._constant((0, shape.heads, -1, shape.head_width)), True)

    def _mlp(self, hidden: "Node", name: str) -> "Node":
        gate = self._op.swish(self._linear(hidden, f"{name}.gate_proj"))
        up = self._linear(hidden, f"{name}.up_proj")
        return self._linear(self._op.multiply(gate, up), f"{name}.down_proj")

    def _norm(self, hidden: "Node", name: str) -> "Node":
        op = self._op
        square = op.reduce_mean(
            op.power(hidden, self._constant(2.0, "float32")), self._constant(-1), True
        )
        root = op.sqrt(op.add(square, self._constant(self._shape.epsilon, "float32")))
        scaled = op.multiply(hidden, op.divide(self._constant(1.0, "float32"), root))
        return op.multiply(scaled, self._weight(f"{name}.weight"))

    def _linear(self, hidden: "Node", name: str) -> "Node":
        return self._op.matmul(hidden, self._matrix(f"{name}.weight"), False, True)

    def _matrix(self, name: str) -> "Node":
        """Return a matrix; OpenVINO multiplies by an int8 matrix without converting it."""
        matrix = self._stored(name)
        if not isinstance(matrix, _Rows):
            return matrix
        return self._op.multiply(self._op.convert(matrix.whole, "f32"), matrix.scales)

    def _rows_of(self, name: str, rows: "Node") -> "Node":
        op, first, matrix = self._op, self._constant(0), self._stored(name)
        if not isinstance(matrix, _Rows):
            return op.gather(matrix, rows, first)
        whole = op.convert(op.gather(matrix.whole, rows, first), "f32")
        return op.multiply(whole, op.gather(matrix.scales, rows, first))

    def _stored(self, name: str) -> "Node | _Rows":
        if name not in self._matrices:
            whole = self._weights[name]
            self._matrices[name] = self._quantized(whole) if self._in_int8 else self._weight(name)
        return self._matrices[name]

    def _quantized(self, matrix: "NDArray[np.float32]") -> _Rows:
        import numpy as np

        scales = np.maximum(np.abs(matrix).max(axis=1, keepdims=True) / 127, 1e-12)
        whole = np.rint(matrix / scales).astype(np.int8)
        return _Rows(self._op.constant(whole), self._op.constant(scales.astype(np.float32)))

    def _weight(self, name: str) -> "Node":
        return self._op.constant(self._weights[name], shared_memory=True)

    def _size(self, table: "Node", axis: int) -> "Node":
        """Return the length of an axis as a vector of one, or as a scalar for axis 1."""
        at = self._constant((axis,)) if axis == 0 else self._constant(axis)
        return self._op.gather(self._op.shape_of(table, "i64"), at, self._constant(0))

    def _constant(self, value: float | Sequence[int], kind: str = "int64") -> "Node":
        import numpy as np

        return self._op.constant(np.array(value, kind))
