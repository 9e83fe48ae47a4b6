"""Write CRPs with a merged model under OpenVINO, which is faster than torch on a CPU.

It writes what `TransformersGenerator` writes in the same precision, up to rounding.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbqa.engine.writing.backends.beam_search_generator import BeamSearchGenerator
from kbqa.engine.writing.constraints.decoding import Decoding, check_form
from kbqa.engine.writing.generate import DEFAULT_ADAPTER
from kbqa.engine.writing.models.adapter_files import adapter_base, adapter_revision
from kbqa.engine.writing.models.base_models import require_cpu_extra, require_lm_extra
from kbqa.engine.writing.models.openvino_model import compile_model
from kbqa.engine.writing.models.precision import fastest_precision
from kbqa.engine.writing.prompt import load_prompt_format

if TYPE_CHECKING:
    from openvino import CompiledModel, InferRequest
    from torch import Tensor


class OpenVinoModel:
    """A `ReadableModel` that OpenVINO compiled; it has one cache, so readings cannot overlap."""

    def __init__(self, compiled: "CompiledModel") -> None:
        import torch

        self.device: torch.device = torch.device("cpu")
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
    rows: "Tensor | None" = None

    def keep(self, rows: "Tensor") -> None:
        """Keep some rows; the state changes with the next reading."""
        self.rows = rows if self.rows is None else self.rows[rows]

    def read(
        self, tokens: "Tensor", mask: "Tensor", positions: "Tensor", wanted: "Tensor"
    ) -> "Tensor":
        """Read tokens; see `Reading.read`. The logits are valid until the next reading."""
        import torch

        rows = torch.arange(len(tokens)) if self.rows is None else self.rows
        self.rows = None
        inputs = {
            "tokens": tokens.numpy(),
            "mask": mask.numpy(),
            "positions": positions.numpy(),
            "wanted": wanted.flatten().nonzero().flatten().numpy(),
            "rows": rows.int().numpy(),
        }
        return torch.from_numpy(self.request.infer(inputs, share_outputs=True)[0])


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
        require_lm_extra()
        require_cpu_extra()
        import torch
        from transformers import AutoTokenizer

        prompt, revision = load_prompt_format(adapter), adapter_revision(adapter)
        decoding = decoding or Decoding()
        if decoding.level != "none":
            check_form(prompt)
        if threads is not None:
            torch.set_num_threads(threads)
        compiled = compile_model(adapter, base, fastest_precision("cpu"), threads)
        tokenizer = AutoTokenizer.from_pretrained(str(compiled.tokenizer))
        name = (
            f"{base or adapter_base(adapter)} + {adapter.resolve().name} {revision} under OpenVINO,"
            f" decoding {decoding.level}"
        )
        return cls(OpenVinoModel(compiled.model), tokenizer, prompt, name, decoding)
