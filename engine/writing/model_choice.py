"""Which small model writes, and what runs it: chosen first, loaded when it is needed."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kbqa.engine.writing.generate import DEFAULT_LEVEL, DecodingLevel

if TYPE_CHECKING:
    from kbqa.engine.writing.generate import Generator
    from kbqa.kb.graph import Graph

Backend = Literal["transformers", "openvino", "vllm", "server"]

GRAPH_BACKENDS: tuple[Backend, ...] = ("transformers", "openvino")
"""Those that the graph can constrain: they run kbqa's own beam search."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The small model that the user chose, not yet loaded.

    Attributes:
        base: Base model, or None for the one that the adapter names.
        adapter: Folder of the adapter, or None for the shipped one.
        n: Candidates for each question.
        decoding: How far what it writes is constrained.
        backend: What runs it.
        server: Where it is served, for the back end ``server``.
        served_model: The model's name on the server; None if it serves only one.
        threads: Threads that a back end of `GRAPH_BACKENDS` computes with; None for its own choice.
    """

    base: str | None
    adapter: Path | None
    n: int
    decoding: DecodingLevel = DEFAULT_LEVEL
    backend: Backend = "transformers"
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
        from kbqa.engine.writing.generate import DEFAULT_ADAPTER
        from kbqa.engine.writing.models.adapter_files import adapter_base
        from kbqa.engine.writing.models.base_models import (
            check_base_model,
            require_cpu_extra,
            require_lm_extra,
        )

        if self.server is not None:
            from kbqa.engine.chat.openai_server import SMALL_MODEL, check_server

            check_server(self.server, SMALL_MODEL)
            return
        if self.backend in GRAPH_BACKENDS:
            require_lm_extra()
        if self.backend == "openvino":
            require_cpu_extra()
        check_base_model(self.base or adapter_base(self.adapter or DEFAULT_ADAPTER))

    def load(self, graph: "Graph | None") -> "Generator":
        """Check the model, which is quick, and load it.

        Args:
            graph: The graph that constrains it; None will do unless `needs_graph`.

        Raises:
            ModelError: What the back end needs, the base model or the adapter is missing or broken,
                or the server does not answer.
            GraphError: The graph does not answer.
        """
        from kbqa.engine.writing.constraints.decoding import Decoding
        from kbqa.engine.writing.generate import DEFAULT_ADAPTER

        self.check()
        adapter = self.adapter or DEFAULT_ADAPTER
        decoding = Decoding(self.decoding, graph)
        if self.server is not None:
            from kbqa.engine.writing.backends.server_generator import ServerGenerator
            from kbqa.engine.writing.prompt import load_prompt_format

            prompt = load_prompt_format(adapter)
            return ServerGenerator(self.server, prompt, self.served_model, decoding)
        if self.backend == "vllm":
            from kbqa.engine.writing.backends.vllm_generator import VllmGenerator

            return VllmGenerator.load(adapter, self.base, decoding)
        if self.backend == "openvino":
            from kbqa.engine.writing.backends.openvino_generator import OpenVinoGenerator

            return OpenVinoGenerator.load(adapter, self.base, decoding, self.threads)
        from kbqa.engine.writing.backends.transformers_generator import TransformersGenerator

        return TransformersGenerator.load(adapter, self.base, decoding, self.threads)
