"""The asker: how likely a question is, given a path.

It is SmolLM2-135M with an adapter of its own, which has learnt to ask the question of a path. A
writer says how likely a path is, given the question, and a path with common relations is likely for
many questions. The asker must explain all words of the question by the path, so a path that lacks a
condition or has another topic scores lower.

Source: Sachan et al. 2022, "Improving Passage Retrieval with Zero-Shot Question Generation" (UPR).
"""

import importlib.util
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from kbqa.engine.writing.backends.batch_reader import ReadableModel, read_continuation
from kbqa.engine.writing.model_choice import Backend, ModelChoice
from kbqa.engine.writing.models.adapter_files import adapter_revision
from kbqa.engine.writing.models.openvino_model import prepare_model
from kbqa.engine.writing.models.precision import openvino_precision
from kbqa.engine.writing.prompt import PROMPT_FILE, load_prompt_format
from kbqa.engine.writing.tokenizer import Tokenizer
from kbqa.sparql.errors import ModelError

ASKER_FOLDER = "asker"
"""In the folder of a judge."""

ASKER_FILES = ("adapter_model.safetensors", PROMPT_FILE, "adapter_config.json")
"""What is needed of the folder that it was trained in; the last one shows that it is whole."""

MAX_QUESTION_TOKENS = 128
"""A longer question is cut at its end. Those of the test halves have up to 90."""


class Asker:
    """Says how likely questions are; threads take turns.

    Args:
        folder: Of the adapter and its prompt.
        threads: Threads to compute with; None for one a core.
    """

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        self._folder, self._threads = folder, threads
        self._prompt = load_prompt_format(folder)
        self.revision = adapter_revision(folder)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, judge: Path, threads: int | None = None) -> Self | None:
        """Check the asker of a judge, and make once what loading it needs; None if it has none.

        The model itself is loaded when it is first asked: many questions do without.

        Args:
            judge: The folder.
            threads: Threads to compute with; None for one a core.

        Raises:
            ModelError: A package, the base model or a file is missing, or the cache cannot be
                written.
        """
        folder = judge / ASKER_FOLDER
        if not folder.is_dir():
            return None
        for name in ASKER_FILES:
            if not (folder / name).is_file():
                raise ModelError(
                    f"the asker in {folder} is not whole: {name} is missing. Run `kbqa train-judge`"
                    " again, or leave it out: --set asker=no."
                )
        backend = _backend()
        ModelChoice(None, folder, n=1, backend=backend).check()
        if backend == "openvino":
            prepare_model(folder, None, openvino_precision())
        return cls(folder, threads)

    def logprobs(self, question: str, paths: Sequence[str]) -> list[float]:
        """Compute the log-probability of a question, given each path; natural log.

        Args:
            question: As asked.
            paths: In words, as `path_words` writes them.

        Raises:
            ModelError: The model cannot be loaded.
        """
        if not paths:
            return []
        with self._lock:
            model, tokenizer = self._loaded
            prompts = [_tokens(tokenizer, self._prompt.render(path)) for path in paths]
            question_tokens = _tokens(tokenizer, " ".join(question.split()))[:MAX_QUESTION_TOKENS]
            text = [*question_tokens, tokenizer.eos_token_id]
            return [sum(each) for each in read_continuation(model, prompts, text)]

    @cached_property
    def _loaded(self) -> tuple[ReadableModel, Tokenizer]:
        if _backend() == "openvino":
            from kbqa.engine.writing.backends.openvino_generator import load_openvino

            return load_openvino(self._folder, threads=self._threads)
        from kbqa.engine.writing.backends.transformers_generator import load_transformers

        return load_transformers(self._folder, threads=self._threads)


def _backend() -> Backend:
    """Return what runs it: OpenVINO if it is there, even beside a GPU."""
    return "openvino" if importlib.util.find_spec("openvino") else "transformers"


def _tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)
