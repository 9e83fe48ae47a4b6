"""Write CRPs for questions with a small language model: n candidates each, best first.

`Generator` is the seam behind which the back ends stand. This module holds the transformers one,
which runs on a CPU or a GPU; its candidates come from `kbqa.engine.beam_search`.

Source: RouterKGQA §3.2; appendix A.1 for what the model was trained on.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbqa.engine.beam_search import Hypothesis, beam_search
from kbqa.engine.models import base_model, quiet_transformers, require_lm_extra
from kbqa.engine.prompt import PromptFormat, load_prompt_format
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

DEFAULT_ADAPTER = Path(__file__).parent / "adapter"
DEFAULT_BEAMS = 5
_MAX_NEW_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Candidate:
    """A CRP as the model wrote it.

    Attributes:
        text: The text, unread; it may not be a CRP at all.
        logprob: Sum of its tokens' log-probabilities, natural log, end of text included.
        tokens: Number of tokens, end of text included.
    """

    text: str
    logprob: float
    tokens: int


def rank_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Sort candidates by their mean log-probability per token, the likeliest first.

    That is how Hugging Face's beam search, and so RouterKGQA, ranks finished texts. By the sum a
    path without its constraints would mostly win, because it is shorter.

    >>> short, long = Candidate("a", -1.2, 10), Candidate("b", -2.0, 40)
    >>> [candidate.text for candidate in rank_candidates([short, long])]
    ['b', 'a']
    """
    return sorted(candidates, key=lambda candidate: -candidate.logprob / candidate.tokens)


class Generator(Protocol):
    """What writes CRPs."""

    @property
    def name(self) -> str:
        """The model and adapter, for reports."""

    def generate(self, questions: Sequence[str], n: int = DEFAULT_BEAMS) -> list[list[Candidate]]:
        """Write n candidates for each question, best first.

        Args:
            questions: Asked together; how many fit is the caller's to know.
            n: Candidates a question.

        Raises:
            ModelError: The model failed.
        """


@dataclass(frozen=True, slots=True)
class SavedBeams:
    """Stands in where every candidate was written before; it writes none."""

    name: str

    def generate(self, questions: Sequence[str], n: int = DEFAULT_BEAMS) -> list[list[Candidate]]:
        """Refuse to write, unless nothing is asked for."""
        if questions:
            raise ModelError(f"{self.name} holds no paths for {questions[0]!r}")
        return []


class TransformersGenerator:
    """A causal language model with a LoRA adapter, merged, under transformers."""

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        prompt: PromptFormat,
        name: str,
    ) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._prompt, self._name = prompt, name

    @classmethod
    def load(
        cls, adapter: Path = DEFAULT_ADAPTER, base: str | None = None
    ) -> "TransformersGenerator":
        """Load an adapter and the base model that it names.

        Args:
            adapter: Folder that `kbqa train-crp` wrote; the shipped one by default.
            base: Another base model than the one that the adapter names.

        Raises:
            ModelError: The `lm` extra, the base model or the adapter is missing or broken.
        """
        require_lm_extra()
        base = base or adapter_base(adapter)
        prompt, revision = load_prompt_format(adapter), adapter_revision(adapter)
        merged = _load_merged(base_model(base), adapter)
        return cls(*merged, prompt, f"{base} + {adapter.resolve().name} {revision}")

    @property
    def name(self) -> str:
        """The model, the adapter and the hash of its weights, for reports."""
        return self._name

    def generate(self, questions: Sequence[str], n: int = DEFAULT_BEAMS) -> list[list[Candidate]]:
        """Write n candidates for each question by beam search; see `Generator.generate`."""
        if not questions:
            return []
        prompts = [self._prompt.render(question) for question in questions]
        inputs = self._tokenizer(
            prompts, return_tensors="pt", padding=True, add_special_tokens=False
        ).to(self._model.device)
        found = beam_search(
            self._model,
            inputs["input_ids"],
            inputs["attention_mask"],
            n=n,
            end=self._tokenizer.eos_token_id,
            max_new_tokens=_MAX_NEW_TOKENS,
        )
        return [rank_candidates(map(self._candidate, texts)) for texts in found]

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
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype).to(device)
        merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
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


def adapter_revision(adapter: Path) -> str:
    """Name an adapter's weights by the head of their hash.

    Raises:
        ModelError: It holds none.
    """
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if (adapter / name).is_file():
            return hashlib.sha256((adapter / name).read_bytes()).hexdigest()[:8]
    raise ModelError(f"{adapter} holds no weights (adapter_model.safetensors)")


def adapter_base(adapter: Path) -> str:
    """Read which base model an adapter was trained on.

    Raises:
        ModelError: There is no adapter, or it does not say.
    """
    path = adapter / "adapter_config.json"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["base_model_name_or_path"])
    except FileNotFoundError:
        raise ModelError(
            f"there is no adapter at {adapter}. Train one with `kbqa train-crp --output {adapter}`."
        ) from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read: {error!r}") from None
