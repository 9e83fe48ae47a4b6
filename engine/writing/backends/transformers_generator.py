"""Write CRPs with a causal language model and a LoRA adapter under transformers, on CPU or GPU.

The adapter is merged; candidates come from `kbqa.engine.writing.backends.beam_search`.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbqa.engine.deadline import held
from kbqa.engine.writing.backends.beam_search import Hypothesis, State, Unsteered, beam_search
from kbqa.engine.writing.backends.next_token_logits import NextTokenLogits
from kbqa.engine.writing.constraints.crp_grammar import Steps, start
from kbqa.engine.writing.constraints.decoding import Decoding, check_form, walked_topics
from kbqa.engine.writing.constraints.steering import Pieces, SteeredText
from kbqa.engine.writing.generate import (
    DEFAULT_ADAPTER,
    DEFAULT_BEAMS,
    MAX_NEW_TOKENS,
    Candidate,
    Request,
    best_distinct,
)
from kbqa.engine.writing.models.adapter_files import adapter_base, adapter_revision
from kbqa.engine.writing.models.base_models import base_model, require_lm_extra
from kbqa.engine.writing.models.merged_checkpoint import load_merged
from kbqa.engine.writing.models.precision import fastest_precision
from kbqa.engine.writing.prompt import PromptFormat, load_prompt_format

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class TransformersGenerator:
    """A causal language model with a LoRA adapter, merged, under transformers."""

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        prompt: PromptFormat,
        name: str,
        decoding: Decoding,
    ) -> None:
        self._logits, self._tokenizer = NextTokenLogits.of(model), tokenizer
        self._device = model.device
        self._prompt, self._name = prompt, name
        self._decoding = decoding
        # Tokenizers and the tries of `Pieces` are not safe for several threads at once.
        self._lock = threading.Lock()
        self._pieces = None if decoding.level == "none" else Pieces(tokenizer)

    @classmethod
    def load(
        cls,
        adapter: Path = DEFAULT_ADAPTER,
        base: str | None = None,
        decoding: Decoding | None = None,
        threads: int | None = None,
    ) -> "TransformersGenerator":
        """Load an adapter and the base model that it names.

        Args:
            adapter: Folder that `kbqa train-crp` wrote, an adapter's or a whole model's; the
                shipped one by default.
            base: Base model to use instead of the one that the adapter names.
            decoding: How far its texts are constrained; not at all by default.
            threads: Threads that torch computes with, in the whole process; None for torch's own
                choice, one for each core.

        Raises:
            ModelError: The `lm` extra, the base model or the adapter is missing or broken.
        """
        require_lm_extra()
        import torch

        base = base or adapter_base(adapter)
        prompt, revision = load_prompt_format(adapter), adapter_revision(adapter)
        decoding = decoding or Decoding()
        if decoding.level != "none":
            check_form(prompt)
        if threads is not None:
            torch.set_num_threads(threads)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        precision = fastest_precision(device)
        model, tokenizer = load_merged(base_model(base), adapter, precision, device)
        model.eval()
        tokenizer.padding_side = "left"
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        name = f"{base} + {adapter.resolve().name} {revision}, decoding {decoding.level}"
        return cls(model, tokenizer, prompt, name, decoding)

    @property
    def name(self) -> str:
        """The model, adapter, hash of its weights and level of decoding, for reports."""
        return self._name

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        ends_at: float | None = None,
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request by beam search; see `Generator.generate`."""
        if not requests:
            return []
        with held(self._lock, ends_at, self._name):
            return self._generate(requests, n, ends_at)

    def _generate(
        self, requests: Sequence[Request], n: int, ends_at: float | None
    ) -> list[list[Candidate]]:
        prompts = [self._prompt.render(request.question) for request in requests]
        inputs = self._tokenizer(
            prompts, return_tensors="pt", padding=True, add_special_tokens=False
        ).to(self._device)
        form = self._prompt.crp_format
        steps = [self._decoding.steps(request, form) for request in requests]
        found = beam_search(
            self._logits,
            inputs["input_ids"],
            inputs["attention_mask"],
            n=n,
            end=self._tokenizer.eos_token_id,
            max_new_tokens=MAX_NEW_TOKENS,
            ends_at=ends_at,
            starts=[self._start(walk) for walk in steps],
        )
        return [
            [
                replace(candidate, topics=walked_topics(walk, candidate.text))
                for candidate in best_distinct(map(self._candidate, texts), n)
            ]
            for texts, walk in zip(found, steps, strict=True)
        ]

    def _start(self, steps: Steps | None) -> State:
        if steps is None or self._pieces is None:
            return Unsteered()
        return SteeredText.begin(self._pieces, start(steps))

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        text = self._tokenizer.decode(hypothesis.tokens, skip_special_tokens=True)
        return Candidate(text, hypothesis.logprob, len(hypothesis.tokens) + 1)
