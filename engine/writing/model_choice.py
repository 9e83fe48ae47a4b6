"""Which small model writes, and what runs it: chosen first, loaded when it is needed."""

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kbqa.engine.writing.generate import DEFAULT_LEVEL, DecodingLevel
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    from kbqa.engine.writing.generate import Generator
    from kbqa.kb.graph import Graph


Backend = Literal["transformers", "openvino", "vllm", "server"]

BEAM_BACKENDS: tuple[Backend, ...] = ("transformers", "openvino")
"""Those that run kbqa's own beam search, which the graph constrains unless the user says."""

_GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Files of NVIDIA's driver, of Windows' for Linux and of AMD's, if there is a GPU to compute on."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The small model that the user chose, not yet loaded.

    Attributes:
        base: Base model, or None for the one that the adapter names.
        adapter: Folder of the adapter, or None for the shipped one.
        n: Candidates for each question.
        decoding: How far what it writes is constrained.
        backend: What runs it; None for `default_backend`.
        server: Where it is served, for the back end ``server``.
        served_model: The model's name on the server; None if it serves only one.
        threads: Threads that a back end of `BEAM_BACKENDS` computes with; None for its own choice.
    """

    base: str | None
    adapter: Path | None
    n: int
    decoding: DecodingLevel = DEFAULT_LEVEL
    backend: Backend | None = None
    server: str | None = None
    served_model: str | None = None
    threads: int | None = None

    @property
    def needs_graph(self) -> bool:
        """Whether the graph constrains what the model writes."""
        return self.decoding != "none"

    def check(self) -> None:
        """Cheaply check that the model can be loaded.

        Raises:
            InputError: The server's URL or key is not valid.
            ModelError: The extra that the back end needs, the adapter or the base model is missing.
        """
        from kbqa.engine.writing.checkpoint import (
            adapter_base,
            check_base_model,
            require_cpu_extra,
            require_lm_extra,
        )
        from kbqa.engine.writing.generate import DEFAULT_ADAPTER

        if self.server is not None:
            from kbqa.engine.chat.server import SMALL_MODEL, check_server

            check_server(self.server, SMALL_MODEL)
            return
        base = self.base or adapter_base(self.adapter or DEFAULT_ADAPTER)
        match self.backend or default_backend(base):
            case "transformers":
                require_lm_extra()
            case "openvino":
                require_cpu_extra()
        check_base_model(base)

    def load(self, graph: "Graph | None") -> "Generator":
        """Check the model, which is quick, and load it.

        Args:
            graph: The graph that constrains it; None will do unless `needs_graph`.

        Raises:
            ModelError: What the back end needs, the base model or the adapter is missing or broken,
                or the server does not answer.
            GraphError: The graph does not answer.
        """
        from kbqa.engine.writing.checkpoint import adapter_base
        from kbqa.engine.writing.generate import DEFAULT_ADAPTER
        from kbqa.engine.writing.steering import Decoding

        self.check()
        adapter = self.adapter or DEFAULT_ADAPTER
        decoding = Decoding(self.decoding, graph)
        if self.server is not None:
            from kbqa.engine.writing.generate import load_prompt_format
            from kbqa.engine.writing.server import ServerGenerator

            prompt = load_prompt_format(adapter)
            return ServerGenerator(self.server, prompt, self.served_model, decoding)
        backend = self.backend or default_backend(self.base or adapter_base(adapter))
        if backend == "vllm":
            from kbqa.engine.writing.vllm import VllmGenerator

            return VllmGenerator.load(adapter, self.base, decoding)
        if backend == "openvino":
            from kbqa.engine.writing.openvino import OpenVinoGenerator

            return OpenVinoGenerator.load(adapter, self.base, decoding, self.threads)
        from kbqa.engine.writing.transformers import TransformersGenerator

        return TransformersGenerator.load(adapter, self.base, decoding, self.threads)


def default_backend(base: str) -> Backend:
    """Return what runs a base model unless the user says: OpenVINO if it can, and without a GPU.

    Args:
        base: As for `base_models.base_model`.
    """
    has_torch, has_openvino = (
        importlib.util.find_spec(name) is not None for name in ("torch", "openvino")
    )
    has_gpu = any(Path(device).exists() for device in _GPU_DEVICES)
    if has_torch and (has_gpu or not has_openvino):
        return "transformers"
    return "openvino" if _is_plain_llama(base) else "transformers"


def _is_plain_llama(base: str) -> bool:
    from kbqa.engine.writing.checkpoint import SMOLLM2
    from kbqa.engine.writing.llama_graph import LlamaShape

    if base.lower() == SMOLLM2:
        return True
    try:
        config = json.loads((Path(base) / "config.json").read_text(encoding="utf-8"))
        LlamaShape.of(config)
    except (OSError, ValueError, ModelError):  # the check of the model says what is wrong with it
        return False
    return True
