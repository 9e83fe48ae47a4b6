"""Write CRPs with vLLM in this process: many questions at once, fast, on a GPU or a CPU.

vLLM needs its own versions of torch and transformers, so it is usually installed in a separate
environment. The adapter is merged, or added at run time; see
`kbqa.engine.writing.models.merged_checkpoint`. A grammar can constrain what the model writes; the
graph cannot.
"""

import importlib.util
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from kbqa.engine.deadline import check_deadline, held
from kbqa.engine.writing.constraints.crp_ebnf import decoding_grammar
from kbqa.engine.writing.constraints.decoding import Decoding
from kbqa.engine.writing.generate import (
    DEFAULT_ADAPTER,
    DEFAULT_BEAMS,
    DEFAULT_SEED,
    MAX_NEW_TOKENS,
    TEMPERATURE,
    Candidate,
    Progress,
    Request,
    best_distinct,
)
from kbqa.engine.writing.models.adapter_files import adapter_base, adapter_revision, is_whole_model
from kbqa.engine.writing.models.base_models import base_model
from kbqa.engine.writing.models.merged_checkpoint import merged_checkpoint
from kbqa.engine.writing.models.precision import Precision, fastest_precision
from kbqa.engine.writing.prompt import PromptFormat, load_prompt_format
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

Search = Literal["sample", "beam"]

_CONTEXT = 4608  # tokens: the longest question that `PromptFormat` lets through, and its CRP
_MAX_LOGPROBS = 100  # vLLM's beam search asks for two a beam
_CPU_CACHE_BYTES = 2 << 30  # of keys and values; vLLM would take half of the memory
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM supports


class _Written(NamedTuple):
    """A text written for a row's prompt: its tokens and their log-probability, end included."""

    row: int
    text: str
    tokens: Sequence[int]
    logprob: float


class VllmGenerator:
    """A causal language model with a LoRA adapter under vLLM."""

    def __init__(
        self,
        llm: "LLM",
        prompt: PromptFormat,
        name: str,
        lora: "LoRARequest | None",
        search: Search,
        seed: int,
        grammar: str | None,
    ) -> None:
        self._llm, self._prompt, self._name = llm, prompt, name
        self._lora, self._search, self._seed = lora, search, seed
        self._grammar = grammar
        self._lock = threading.Lock()

    @classmethod
    def load(
        cls,
        adapter: Path = DEFAULT_ADAPTER,
        base: str | None = None,
        decoding: Decoding | None = None,
        *,
        merge: bool = True,
        search: Search = "sample",
        seed: int = DEFAULT_SEED,
    ) -> "VllmGenerator":
        """Load an adapter and the base model that it names, and start vLLM's engine.

        Args:
            adapter: Folder that `kbqa train-crp` wrote; the shipped one by default.
            base: Base model to use instead of the one that the adapter names.
            decoding: How far its texts are constrained; not at all by default. ``graph`` is not
                offered here.
            merge: Merge the adapter, once. If not, vLLM adds it at run time, from its own files,
                which suits large models on a GPU.
            search: ``beam`` always continues to the longest text allowed, so it is slow on a CPU.
            seed: Seed of the samples.

        Raises:
            ModelError: vLLM, the base model or the adapter is missing or broken, or what it writes
                cannot be constrained as asked.
        """
        if importlib.util.find_spec("vllm") is None:
            raise ModelError("vLLM is not installed. Install: pip install 'kbqa[vllm]'")
        # Find faults of the adapter here: later they would end vLLM's engine.
        base = base or adapter_base(adapter)
        prompt, revision = load_prompt_format(adapter), adapter_revision(adapter)
        decoding = decoding or Decoding()
        grammar = decoding_grammar(decoding, prompt)
        if grammar is not None and search == "beam":
            raise ModelError(
                "vLLM's beam search cannot be constrained here. Sample, or use --decoding none."
            )
        precision = _precision()
        if merge or is_whole_model(adapter):
            llm = _start(str(merged_checkpoint(adapter, base, precision)), precision, None)
            lora = None
        else:
            llm = _start(base_model(base), precision, _vllm_rank(adapter))
            lora = _lora_request(adapter)
        name = f"{base} + {adapter.resolve().name} {revision}, decoding {decoding.level}"
        return cls(llm, prompt, name, lora, search, seed, grammar)

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
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request; see `Generator.generate`.

        Sampling takes the greedy text and, if n is above 1, n samples. The deadline is checked
        before and between vLLM's calls, which cannot be stopped.
        """
        if not requests:
            return []
        with held(self._lock, ends_at, self._name):
            return self._generate(requests, n, ends_at)

    def _generate(
        self, requests: Sequence[Request], n: int, ends_at: float | None
    ) -> list[list[Candidate]]:
        check_deadline(ends_at, "writing paths")
        tokenizer = self._llm.get_tokenizer()
        prompts = [
            tokenizer.encode(self._prompt.render(request.question), add_special_tokens=False)
            for request in requests
        ]
        from vllm.exceptions import VLLMError

        try:
            if self._search == "beam":
                return self._beams(prompts, n)
            return self._samples(prompts, n, ends_at)
        except (VLLMError, ValueError) as error:
            raise ModelError(f"vLLM failed: {' '.join(str(error).split())}") from error

    def _samples(
        self, prompts: Sequence[list[int]], n: int, ends_at: float | None
    ) -> list[list[Candidate]]:
        ways = [self._sampling(1, 0.0)]
        if n > 1:
            ways.append(self._sampling(n, TEMPERATURE))
        outputs = self._llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts for _ in ways],
            ways * len(prompts),
            use_tqdm=False,
            lora_request=self._lora,
        )
        written = [
            _Written(number // len(ways), text.text, text.token_ids, text.cumulative_logprob)
            for number, output in enumerate(outputs)
            for text in output.outputs
            if text.finish_reason == "stop" and text.cumulative_logprob is not None
        ]
        if self._grammar is not None:
            check_deadline(ends_at, "writing paths")
            written = self._scored(prompts, written)
        found: list[list[Candidate]] = [[] for _ in prompts]
        for text in written:
            found[text.row].append(Candidate(text.text, text.logprob, len(text.tokens)))
        return [best_distinct(candidates, n) for candidates in found]

    def _sampling(self, n: int, temperature: float) -> "SamplingParams":
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        return SamplingParams(
            n=n,
            temperature=temperature,
            seed=self._seed,
            max_tokens=MAX_NEW_TOKENS,
            logprobs=0,
            structured_outputs=self._grammar and StructuredOutputsParams(grammar=self._grammar),
        )

    def _scored(
        self, prompts: Sequence[list[int]], written: Sequence["_Written"]
    ) -> list["_Written"]:
        """Read texts once more for the model's own log-probabilities.

        With a grammar, vLLM's own are relative to what the grammar allows, whatever its
        `logprobs_mode`: the ranking would favour texts that the model would not have written.
        """
        from vllm import SamplingParams

        outputs = self._llm.generate(
            [{"prompt_token_ids": [*prompts[text.row], *text.tokens]} for text in written],
            SamplingParams(max_tokens=1, prompt_logprobs=0),
            use_tqdm=False,
            lora_request=self._lora,
        )
        scored = []
        for text, output in zip(written, outputs, strict=True):
            read = output.prompt_logprobs[len(prompts[text.row]) :]
            steps = zip(text.tokens, read, strict=True)
            logprob = sum(step[token].logprob for token, step in steps)
            scored.append(text._replace(logprob=logprob))
        return scored

    def _beams(self, prompts: Sequence[list[int]], n: int) -> list[list[Candidate]]:
        from vllm.sampling_params import BeamSearchParams

        tokenizer = self._llm.get_tokenizer()
        outputs = self._llm.beam_search(
            [{"prompt_token_ids": prompt} for prompt in prompts],
            BeamSearchParams(beam_width=n, max_tokens=MAX_NEW_TOKENS),
            lora_request=self._lora,
        )
        found = []
        for prompt, output in zip(prompts, outputs, strict=True):
            candidates = []
            for beam in output.sequences:
                *tokens, last = beam.tokens[len(prompt) :]
                if last == tokenizer.eos_token_id:
                    text = tokenizer.decode(tokens, skip_special_tokens=True)
                    candidates.append(Candidate(text, beam.cum_logprob, len(tokens) + 1))
            found.append(best_distinct(candidates, n))
        return found


def _precision() -> Precision:
    import torch

    return fastest_precision("cuda" if torch.cuda.is_available() else "cpu")


def _start(model: str, precision: Precision, rank: int | None) -> "LLM":
    """Start the engine; a rank is the largest of the adapters to be added at run time."""
    # vLLM writes its log to standard output, which is for results, and reports its use to its
    # makers. Both are settled when it is imported.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    import torch
    from transformers import AutoConfig
    from vllm import LLM
    from vllm.exceptions import VLLMError

    on_cpu = not torch.cuda.is_available()
    try:
        context = min(_CONTEXT, AutoConfig.from_pretrained(model).max_position_embeddings)
        return LLM(
            model=model,
            dtype=precision,
            max_model_len=context,
            max_logprobs=_MAX_LOGPROBS,
            enforce_eager=on_cpu,  # compiling takes longer there than it saves
            kv_cache_memory_bytes=_CPU_CACHE_BYTES if on_cpu else None,
            enable_lora=rank is not None,
            max_lora_rank=rank or _RANKS[0],
        )
    except (OSError, ValueError, RuntimeError, VLLMError) as error:
        raise ModelError(f"vLLM cannot load {model}: {' '.join(str(error).split())}") from error


def _lora_request(adapter: Path) -> "LoRARequest":
    from vllm.lora.request import LoRARequest

    return LoRARequest(adapter.resolve().name, 1, str(adapter.resolve()))


def _vllm_rank(adapter: Path) -> int:
    """Read an adapter's rank, rounded up to one that vLLM supports."""
    path = adapter / "adapter_config.json"
    try:
        rank = int(json.loads(path.read_text(encoding="utf-8"))["r"])
        return next(known for known in _RANKS if known >= rank)
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise ModelError(f"{path} has no rank that vLLM supports: {error!r}") from None
