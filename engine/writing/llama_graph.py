"""The computation of a Llama model as an OpenVINO graph, built from its weights without torch.

The keys and values of the tokens read so far are the state of the compiled model, so Python never
copies them.

OpenVINO's CPU plugin has one kernel for attention with its state, one for rotary embeddings and one
for RMS norms. It recognizes them by the shape of the graph, so roundabout steps, such as a
multiplication by ones, are the form that it looks for. Attention built from single operations took
1.5 times as long for five texts of one token.

Source: Touvron et al. 2023, LLaMA; Su et al. 2021, RoFormer, for rotary embeddings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from openvino import Model, Node

    Weights = Mapping[str, NDArray[np.float32]]


# Added to the score of a masked token. With minus infinity, a row that is all masked gives NaN.
_MASKED = -1e9

# From (texts, tokens, heads, width) to (texts, heads, tokens, width), or back.
_SWAPPED = (0, 2, 1, 3)


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
        flat = op.reshape(hidden, self._ints(-1, width), special_zero=False)
        wanted = op.gather(flat, self._wanted, self._int(0))
        logits = op.matmul(self._norm(wanted, "model.norm"), head, False, True)
        result = op.result(logits, name="logits")
        return Model([result], self._assigns, self._inputs, "llama")

    def _rotation(self) -> "tuple[Node, Node]":
        """Return cosine and sine of the rotary embeddings, shape (texts, 1, tokens, head width)."""
        import numpy as np

        op, width = self._op, self._shape.head_width
        wavelengths = self._shape.rope_base ** (np.arange(0, width, 2) / width)
        positions = op.unsqueeze(op.convert(self._positions, "f32"), self._ints(1, 3))
        half = op.multiply(positions, op.constant((1 / wavelengths).astype(np.float32)))
        angles = op.concat([half, half], -1)
        return op.cos(angles), op.sin(angles)

    def _attention_bias(self) -> "Node":
        """Return the bias of the scores, shape (texts, 1, tokens to read, all tokens)."""
        op = self._op
        read, every = self._size(self._tokens, 1), self._size(self._mask, 1)
        zero, one = self._int(0), self._int(1)
        column = op.range(zero, every, one, "i64")
        row = op.unsqueeze(op.range(op.subtract(every, read), every, one, "i64"), one)
        is_past = op.less_equal(op.unsqueeze(column, zero), row)
        is_token = op.unsqueeze(op.not_equal(self._mask, zero), self._ints(1, 2))
        seen = op.logical_and(op.unsqueeze(is_past, self._ints(0, 1)), is_token)
        return op.select(seen, self._float(0.0), self._float(_MASKED))

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
        joined = op.transpose(attended, self._ints(*_SWAPPED))
        flat = op.reshape(joined, self._ints(0, 0, shape.heads * shape.head_width), True)
        return self._linear(flat, f"{name}.o_proj")

    def _in_heads(self, flat: "Node", heads: int) -> "Node":
        """Split the width into heads; shape (texts, heads, tokens, head width)."""
        op = self._op
        split = op.reshape(flat, self._ints(0, 0, heads, self._shape.head_width), True)
        return op.transpose(split, self._ints(*_SWAPPED))

    def _rotate(self, heads: "Node", cosine: "Node", sine: "Node") -> "Node":
        import numpy as np

        op, half = self._op, self._shape.head_width // 2
        parts = op.variadic_split(heads, self._int(3), self._ints(half, half))
        minus = op.constant(np.array([-1], np.float32))
        turned = op.concat([op.multiply(parts.output(1), minus), parts.output(0)], -1)
        return op.add(op.multiply(heads, cosine), op.multiply(turned, sine))

    def _with_past(self, heads: "Node", name: str) -> "Node":
        """Append keys or values to those in the state, and repeat them for the heads of queries."""
        import numpy as np
        from openvino import PartialShape, Type, opset6

        op, shape = self._op, self._shape
        nothing = op.concat([self._texts, self._ints(shape.kv_heads, 0, shape.head_width)], 0)
        form = PartialShape([-1, shape.kv_heads, -1, shape.head_width])
        empty = op.broadcast(self._float(0.0), nothing)
        state = opset6.read_value(empty, name, Type.f32, form)
        every = op.concat([op.gather(state, self._rows, self._int(0)), heads], -2)
        self._assigns.append(opset6.assign(every, name))
        ones = np.ones((1, 1, shape.heads // shape.kv_heads, 1, 1), np.float32)
        repeated = op.multiply(op.unsqueeze(every, self._int(2)), op.constant(ones))
        return op.reshape(repeated, self._ints(0, shape.heads, -1, shape.head_width), True)

    def _mlp(self, hidden: "Node", name: str) -> "Node":
        gate = self._op.swish(self._linear(hidden, f"{name}.gate_proj"))
        up = self._linear(hidden, f"{name}.up_proj")
        return self._linear(self._op.multiply(gate, up), f"{name}.down_proj")

    def _norm(self, hidden: "Node", name: str) -> "Node":
        op = self._op
        square = op.reduce_mean(op.power(hidden, self._float(2.0)), self._int(-1), True)
        root = op.sqrt(op.add(square, self._float(self._shape.epsilon)))
        scaled = op.multiply(hidden, op.divide(self._float(1.0), root))
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
        op, first, matrix = self._op, self._int(0), self._stored(name)
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
        at = self._ints(axis) if axis == 0 else self._int(axis)
        return self._op.gather(self._op.shape_of(table, "i64"), at, self._int(0))

    def _ints(self, *values: int) -> "Node":
        import numpy as np

        return self._op.constant(np.array(values, np.int64))

    def _int(self, value: int) -> "Node":
        import numpy as np

        return self._op.constant(np.int64(value))

    def _float(self, value: float) -> "Node":
        import numpy as np

        return self._op.constant(np.float32(value))
