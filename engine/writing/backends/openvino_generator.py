"""Write CRPs with a merged model under OpenVINO, which is faster than torch on a CPU.

It writes what `TransformersGenerator` writes in the same precision, up to rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbqa.engine.writing.backends.batch_reader import BatchReader, Likely
from kbqa.engine.writing.backends.beam_search_generator import BeamSearchGenerator
from kbqa.engine.writing.constraints.decoding import Decoding, check_form
from kbqa.engine.writing.generate import DEFAULT_ADAPTER
from kbqa.engine.writing.models.adapter_files import adapter_base, adapter_revision
from kbqa.engine.writing.models.openvino_model import compile_model
from kbqa.engine.writing.models.precision import openvino_precision
from kbqa.engine.writing.prompt import load_prompt_format
from kbqa.engine.writing.tokenizer import SavedTokenizer
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from openvino import CompiledModel, InferRequest


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
