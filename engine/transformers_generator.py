"""Write CRPs with a causal language model and a LoRA adapter under transformers, on CPU or GPU.

The adapter is merged; candidates come from `kbqa.engine.beam_search`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.adapter_files import adapter_base, adapter_revision, is_whole_model
from kbqa.engine.beam_search import Hypothesis, State, Unsteered, beam_search
from kbqa.engine.decoding import Decoding
from kbqa.engine.generate import (
    DEFAULT_ADAPTER,
    DEFAULT_BEAMS,
    MAX_NEW_TOKENS,
    Candidate,
    Request,
    best_distinct,
)
from kbqa.engine.models import base_model, quiet_transformers, require_lm_extra
from kbqa.engine.next_token_logits import NextTokenLogits
from kbqa.engine.prompt import PromptFormat, load_prompt_format
from kbqa.engine.steering import Pieces, SteeredText
from kbqa.sparql.errors import ModelError

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
        self._pieces = None if decoding.level == "none" else Pieces(tokenizer)

    @classmethod
    def load(
        cls,
        adapter: Path = DEFAULT_ADAPTER,
        base: str | None = None,
        decoding: Decoding | None = None,
    ) -> "TransformersGenerator":
        """Load an adapter and the base model that it names.

        Args:
            adapter: Folder that `kbqa train-crp` wrote, an adapter's or a whole model's; the
                shipped one by default.
            base: Another base model than the one that the adapter names.
            decoding: How far its texts are constrained; not at all by default.

        Raises:
            ModelError: The `lm` extra, the base model or the adapter is missing or broken.
        """
        require_lm_extra()
        base = base or adapter_base(adapter)
        prompt, revision = load_prompt_format(adapter), adapter_revision(adapter)
        decoding = decoding or Decoding()
        if prompt.crp_format != "routerkgqa" and decoding.level != "none":
            raise ModelError(
                f"{adapter} writes paths in the form {prompt.crp_format!r}, and only those in "
                "RouterKGQA's can be constrained. Use --decoding none."
            )
        merged = _load_merged(base_model(base), adapter)
        name = f"{base} + {adapter.resolve().name} {revision}, decoding {decoding.level}"
        return cls(*merged, prompt, name, decoding)

    @property
    def name(self) -> str:
        """The model, adapter, hash of its weights and level of decoding, for reports."""
        return self._name

    def generate(
        self, requests: Sequence[Request], n: int = DEFAULT_BEAMS
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request by beam search; see `Generator.generate`."""
        if not requests:
            return []
        prompts = [self._prompt.render(request.question) for request in requests]
        inputs = self._tokenizer(
            prompts, return_tensors="pt", padding=True, add_special_tokens=False
        ).to(self._device)
        found = beam_search(
            self._logits,
            inputs["input_ids"],
            inputs["attention_mask"],
            n=n,
            end=self._tokenizer.eos_token_id,
            max_new_tokens=MAX_NEW_TOKENS,
            starts=[self._start(request) for request in requests],
        )
        return [best_distinct(map(self._candidate, texts), n) for texts in found]

    def _start(self, request: Request) -> State:
        options = self._decoding.begin(request)
        if options is None or self._pieces is None:
            return Unsteered()
        return SteeredText.begin(self._pieces, options)

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        text = self._tokenizer.decode(hypothesis.tokens, skip_special_tokens=True)
        return Candidate(text, hypothesis.logprob, len(hypothesis.tokens) + 1)


class _Merged(NamedTuple):
    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"


def _load_merged(base: str, adapter: Path) -> _Merged:
    import torch
    from peft import PeftModel
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_transformers()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # A CPU without bf16 instructions computes bf16 many times slower than fp32.
    dtype = torch.bfloat16 if has_fast_bf16(device) else torch.float32
    try:
        tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
        merged = AutoModelForCausalLM.from_pretrained(base, dtype=dtype).to(device)
        if not is_whole_model(adapter):
            merged = PeftModel.from_pretrained(merged, str(adapter)).merge_and_unload()
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{base} with adapter {adapter} cannot be loaded: {reason}") from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    merged.eval()
    return _Merged(merged, tokenizer)


def has_fast_bf16(device: str) -> bool:
    """Tell whether bf16 is faster than fp32 on a device: on a CPU it needs instructions for it."""
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported())
