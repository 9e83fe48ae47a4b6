"""The choice of the small model and of its back end, made first and loaded when needed."""

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from kbqa.engine.writing.generate import (
    DEFAULT_ADAPTER,
    DEFAULT_BEAMS,
    DEFAULT_LEVEL,
    DecodingLevel,
)
from kbqa.kb.option import Option
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    from kbqa.engine.writing.generate import Generator
    from kbqa.kb.graph import Graph


Backend = Literal["transformers", "openvino", "vllm", "server"]

BEAM_BACKENDS: tuple[Backend, ...] = ("transformers", "openvino")
"""Those that run kbqa's own beam search, which the graph constrains by default."""

# Files of NVIDIA's driver, of Windows' for Linux and of AMD's, if there is a GPU.
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True, slots=True)
class WeightsChoice:
    """The weights of the small model that the user chose."""

    base: Annotated[
        str | None,
        Option("Base model instead of the adapter's.", "--model", metavar="MODEL"),
    ] = None
    adapter: Annotated[
        Path | None,
        Option(
            "Adapter of `kbqa train-crp` instead of the shipped one.", metavar="DIR", path="folder"
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ModelChoice(WeightsChoice):
    """The small model that the user chose, not yet loaded."""

    n: Annotated[
        int, Option("Reasoning paths to write for a question.", at_least=1, at_most=50)
    ] = DEFAULT_BEAMS
    decoding: Annotated[
        DecodingLevel | None,
        Option(
            "What constrains the writing: nothing, the graph's relations, or its ways from the "
            f"question's entities.  [default: {DEFAULT_LEVEL}; none under vllm and server]"
        ),
    ] = None
    backend: Annotated[
        Backend | None,
        Option(
            "What runs the small model.  [default: openvino if it is installed and there is no "
            "GPU, else transformers]"
        ),
    ] = None
    server: Annotated[
        str | None, Option("OpenAI-compatible server of the small model.", metavar="URL")
    ] = None
    served_model: Annotated[
        str | None, Option("Its name on --server, if that has several.", metavar="NAME")
    ] = None
    threads: Annotated[
        int | None,
        Option("Threads of the small model.  [default: one a core]", metavar="N", at_least=1),
    ] = None

    @property
    def level(self) -> DecodingLevel:
        """What constrains the writing."""
        if self.decoding is not None:
            return self.decoding
        searches = self.server is None and (self.backend is None or self.backend in BEAM_BACKENDS)
        return DEFAULT_LEVEL if searches else "none"

    @property
    def needs_graph(self) -> bool:
        """Whether the graph constrains what the model writes."""
        return self.level != "none"

    def check(self) -> None:
        """Check that the model can be loaded, which is quick.

        Raises:
            InputError: The server's URL or key is not valid.
            ModelError: The extra that the back end needs, the adapter or the base model is missing.
        """
        from kbqa.engine.writing import checkpoint

        if self.server is not None:
            from kbqa.engine.chat.server import SMALL_MODEL, check_server

            check_server(self.server, SMALL_MODEL)
            return
        base = self.base or checkpoint.adapter_base(self.adapter or DEFAULT_ADAPTER)
        match self.backend or default_backend(base):
            case "transformers":
                checkpoint.require_lm_extra()
            case "openvino":
                checkpoint.require_cpu_extra()
        checkpoint.check_base_model(base)

    def load(self, graph: "Graph | None") -> "Generator":
        """Check the model and load it; the graph is needed only if `needs_graph`."""
        from kbqa.engine.writing.checkpoint import open_adapter
        from kbqa.engine.writing.steering import Decoding

        self.check()
        folder = self.adapter or DEFAULT_ADAPTER
        decoding = Decoding(self.level, graph)
        if self.server is not None:
            from kbqa.engine.writing.generate import load_prompt_format
            from kbqa.engine.writing.server import ServerGenerator

            # The server has the weights; of the folder, only the prompt is needed.
            prompt = load_prompt_format(folder)
            return ServerGenerator(self.server, prompt, self.served_model, decoding)
        adapter = open_adapter(folder, self.base)
        match self.backend or default_backend(adapter.base):
            case "vllm":
                from kbqa.engine.writing.vllm import VllmGenerator

                return VllmGenerator(adapter, decoding)
            case "openvino":
                from kbqa.engine.writing.openvino import OpenVinoGenerator

                return OpenVinoGenerator(adapter, decoding, self.threads)
        from kbqa.engine.writing.transformers import TransformersGenerator

        return TransformersGenerator(adapter, decoding, self.threads)


def default_backend(base: str) -> Backend:
    """Return OpenVINO if it can run a base model and there is no GPU, else transformers."""
    has_torch, has_openvino = (
        importlib.util.find_spec(name) is not None for name in ("torch", "openvino")
    )
    has_gpu = any(Path(device).exists() for device in _GPU_DEVICES)
    if has_torch and (has_gpu or not has_openvino):
        return "transformers"
    return "openvino" if _is_plain_llama(base) else "transformers"


def _is_plain_llama(base: str) -> bool:
    from kbqa.engine.writing.checkpoint import SHIPPED_MODELS
    from kbqa.engine.writing.llama_graph import LlamaShape

    if base.lower() in SHIPPED_MODELS:  # `write_checkpoint` makes only plain Llamas
        return True
    try:
        config = json.loads((Path(base) / "config.json").read_text(encoding="utf-8"))
        LlamaShape.of(config)
    except (OSError, ValueError, ModelError):  # the check of the model says what is wrong with it
        return False
    return True
