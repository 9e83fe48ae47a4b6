"""Write CRPs with vLLM in this process: many questions at once, fast, on a GPU or a CPU.

vLLM needs its own versions of torch and transformers, so it is usually installed in a separate
environment. At level ``schema`` a grammar constrains the texts. At level ``graph`` a logits
processor does (`kbqa.engine.writing.vllm_steering`); then vLLM's engine runs in this process, too,
and shares the open graph.

vLLM chooses the tokens, and moves texts between the rows of its batch. `SteeredRows` knows for each
row how its text may continue, and masks the logits of all other tokens.
"""

import importlib.util
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from kbqa.engine.writing.beam_search import (
    CONSIDERED,
    HOPELESS,
    Likely,
    SmallModelGenerator,
    State,
    best_walked,
    forced_run,
)
from kbqa.engine.writing.checkpoint import (
    Adapter,
    Precision,
    adapter_config,
    base_model,
    fastest_precision,
    merged_checkpoint,
)
from kbqa.engine.writing.ebnf import decoding_grammar
from kbqa.engine.writing.generate import (
    DEFAULT_SEED,
    MAX_NEW_TOKENS,
    TEMPERATURE,
    Candidate,
    Progress,
    Request,
    Tokenizer,
    best_distinct,
)
from kbqa.engine.writing.grammar import Steps, start
from kbqa.engine.writing.steering import (
    Decoding,
    Pieces,
    SteeredText,
)
from kbqa.kb.deadline import check_deadline
from kbqa.sparql.errors import DeadlineExceeded, GraphError, ModelError

if TYPE_CHECKING:
    from torch import Tensor
    from vllm import LLM, CompletionOutput, SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.v1.sample.logits_processor import LogitsProcessor


Search = Literal["sample", "beam"]

ROW = "kbqa_row"  # argument of a request in this process: the number of the text's start

Keep = Literal["best", "likely", "all"]
"""The allowed tokens that are kept: the most likely one from which the text can be finished; those
that are not hopeless beside it; or all, dead ends included, of free text those among the
`CONSIDERED` most likely. Training by reward draws from ``all``."""

_CONTEXT = 4608  # tokens: the longest question that `PromptFormat` lets through, and its CRP
_MAX_LOGPROBS = 100  # vLLM's beam search asks for two a beam
_CPU_CACHE_BYTES = 2 << 30  # of keys and values; vLLM would take half of the memory
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM supports

logger = logging.getLogger(__name__)


def dead_end_token(tokenizer: Tokenizer) -> int:
    """Return a token that no steered text holds, to write where a text cannot go on."""
    special = set(tokenizer.all_special_ids) - {tokenizer.eos_token_id}
    if not special:
        raise ModelError(
            "the model's tokenizer has no special token but the end of text, so vLLM cannot "
            "follow the graph. Use --decoding schema."
        )
    return min(special)


@dataclass(slots=True)
class _Row:
    """A text of the batch."""

    state: State | None  # after `read` tokens; None if it cannot continue
    tokens: Sequence[int]
    keep: Keep
    read: int = 0


class SteeredRows:
    """The texts of a batch that are steered, by the number of their row.

    A text that cannot continue gets `dead_end` as each further token, so that it is not taken for a
    finished one. `failure` is set if the graph failed or the deadline passed.
    """

    def __init__(self, end: int, dead_end: int) -> None:
        self._end, self._dead_end = end, dead_end
        self._rows: dict[int, _Row] = {}
        self.failure: GraphError | DeadlineExceeded | None = None

    def put(self, at: int, start: State | None, tokens: Sequence[int], keep: Keep) -> None:
        """Steer the text of a row from its start; None if it cannot begin.

        `tokens` are those written so far; the sampler appends to this list.
        """
        self._rows[at] = _Row(start, tokens, keep)

    def drop(self, at: int) -> None:
        """Stop steering the text of a row, if it was steered."""
        self._rows.pop(at, None)

    def move(self, source: int, target: int, *, swap: bool) -> None:
        """Move a text to another row, or swap two of them. Either row may not be steered."""
        moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
        if moved is not None:
            self._rows[target] = moved
        if swap and replaced is not None:
            self._rows[source] = replaced

    def mask(self, logits: "Tensor") -> None:
        """Set logits, shape (rows, vocabulary), of tokens that may not follow to minus infinity."""
        for at, row in self._rows.items():
            kept = self._kept(row, logits[at]) or [self._dead_end]
            values = logits[at, kept].clone()
            logits[at] = float("-inf")
            logits[at, kept] = values

    def _kept(self, row: _Row, logits: "Tensor") -> list[int]:
        """Return the tokens that may follow; none if the text cannot continue."""
        try:
            _read_on(row)
            if row.state is None:
                return []
            check_deadline()
            return list(self._following(row, row.state, logits))
        except (GraphError, DeadlineExceeded) as error:  # raised, it would end vLLM's engine
            logger.warning("A path is given up: %s", error)
            row.state, self.failure = None, error
            return []

    def _following(self, row: _Row, state: State, logits: "Tensor") -> Iterator[int]:
        """Yield the tokens to keep. To check whether one leads on may take a query, so few are."""
        if state.tokens is not None and len(state.tokens) == 1:
            yield from state.tokens  # within a run of tokens that was found to lead on
            return
        if row.keep == "all":
            for token, _ in _likeliest(state, logits):
                if state.tokens is not None or state.follow(token) is not None:
                    yield token
            return
        best: float | None = None
        for token, logit in _likeliest(state, logits):
            if best is not None and logit < best - HOPELESS:
                return
            if self._leads_on(state, token):
                yield token
                if row.keep == "best":
                    return
                if best is None:
                    best = logit

    def _leads_on(self, state: State, token: int) -> bool:
        following = state.follow(token)
        if token == self._end:
            return following is not None
        return forced_run(following, self._end).state is not None


def _read_on(row: _Row) -> None:
    """Follow the tokens that were sampled since the last step."""
    while row.state is not None and row.read < len(row.tokens):
        row.state = row.state.follow(row.tokens[row.read])
        row.read += 1


def _likeliest(state: State, logits: "Tensor") -> Iterator[Likely]:
    """Yield the tokens that may follow with their logits, best first; of free text, some."""
    if state.tokens is None:
        top = logits.topk(min(CONSIDERED, len(logits)))
        return map(Likely, top.indices.tolist(), top.values.tolist())
    if not state.tokens:
        return iter(())
    listed = logits[list(state.tokens)].sort(descending=True, stable=True)
    tokens = [state.tokens[at] for at in listed.indices.tolist()]
    return map(Likely, tokens, listed.values.tolist())


class _Written(NamedTuple):
    """A text written for a row's prompt: its tokens and their log-probability, end included."""

    row: int
    text: str
    tokens: Sequence[int]
    logprob: float


class _Steering:
    """The steering of an engine in this process, with the texts that it now writes."""

    def __init__(self, model: str) -> None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model)
        self._pieces = Pieces(tokenizer)
        self.dead_end = dead_end_token(tokenizer)
        self.rows = SteeredRows(tokenizer.eos_token_id, self.dead_end)
        self.starts: dict[int, State] = {}

    def begin(self, steps: Sequence[Steps | None]) -> None:
        """Forget the texts before, and steer new ones."""
        self.rows.failure = None
        self.starts.clear()
        for row, one in enumerate(steps):
            if one is not None:  # at level graph, all
                self.starts[row] = SteeredText.begin(self._pieces, start(one))


class VllmGenerator(SmallModelGenerator):
    """A causal language model with a LoRA adapter under vLLM.

    Sampling takes the greedy text and, if n is above 1, n samples. At level ``graph`` samples are
    drawn from the tokens that beam search would consider, too. The deadline is checked before and
    between vLLM's calls, and only at level ``graph`` within them.

    `merge` merges the adapter, once. If not, vLLM adds it at run time, which suits large models on
    a GPU. The search ``beam`` always continues to the longest text allowed, so it is slow on a CPU.
    """

    def __init__(
        self,
        adapter: Adapter,
        decoding: Decoding | None = None,
        *,
        merge: bool = True,
        search: Search = "sample",
    ) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise ModelError("vLLM is not installed. Install: pip install 'kbqa[vllm]'")
        import torch

        super().__init__(adapter, decoding)
        decoding = self._decoding
        self._grammar = decoding_grammar(decoding, adapter.prompt)
        if decoding.level != "none" and search == "beam":
            raise ModelError(
                "vLLM's beam search cannot be constrained here. Sample, or use --decoding none."
            )
        self._search = search
        precision = fastest_precision("cuda" if torch.cuda.is_available() else "cpu")
        is_merged = merge or adapter.is_whole
        rank: int | None = None
        if is_merged:
            model = str(merged_checkpoint(adapter, precision))
        else:
            # Find faults of the adapter here: later they would end vLLM's engine.
            model, rank = base_model(adapter.base), _vllm_rank(adapter.folder)
        self._steering = _Steering(model) if decoding.level == "graph" else None
        self._llm = _start(model, precision, rank, self._steering)
        self._lora = None if is_merged else _lora_request(adapter.folder.resolve())

    def _write(
        self, requests: Sequence[Request], n: int, progress: Progress | None
    ) -> list[list[Candidate]]:
        check_deadline()
        from vllm.exceptions import VLLMError

        prompts = self._prompt_tokens(requests, self._llm.get_tokenizer())
        try:
            if self._search == "beam":
                return self._beams(prompts, n)
            return self._samples(requests, prompts, n)
        except (VLLMError, ValueError) as error:
            raise ModelError(f"vLLM failed: {' '.join(str(error).split())}") from error

    def _samples(
        self,
        requests: Sequence[Request],
        prompts: Sequence[list[int]],
        n: int,
    ) -> list[list[Candidate]]:
        steps = self._steps(requests)
        if self._steering is not None:
            self._steering.begin(steps)
        ways = [(1, 0.0), (n, TEMPERATURE)] if n > 1 else [(1, 0.0)]
        outputs = self._llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts for _ in ways],
            [self._sampling(row, *way) for row in range(len(prompts)) for way in ways],
            use_tqdm=False,
            lora_request=self._lora,
        )
        written = [
            _Written(number // len(ways), text.text, text.token_ids, text.cumulative_logprob)
            for number, output in enumerate(outputs)
            for text in output.outputs
            if self._is_finished(text) and text.cumulative_logprob is not None
        ]
        if self._steering is not None and self._steering.rows.failure is not None:
            raise self._steering.rows.failure
        if self._grammar is not None:
            check_deadline()
            written = self._scored(prompts, written)
        found: list[list[Candidate]] = [[] for _ in prompts]
        for text in written:
            read, tokens = len(prompts[text.row]), len(text.tokens)
            found[text.row].append(Candidate(text.text, text.logprob, tokens, input_tokens=read))
        return [best_walked(of, n, walk) for of, walk in zip(found, steps, strict=True)]

    def _is_finished(self, text: "CompletionOutput") -> bool:
        is_dead_end = self._steering is not None and text.stop_reason == self._steering.dead_end
        return text.finish_reason == "stop" and not is_dead_end

    def _sampling(self, row: int, n: int, temperature: float) -> "SamplingParams":
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        steering = self._steering
        return SamplingParams(
            n=n,
            temperature=temperature,
            seed=DEFAULT_SEED,
            max_tokens=MAX_NEW_TOKENS,
            logprobs=0,
            structured_outputs=self._grammar and StructuredOutputsParams(grammar=self._grammar),
            stop_token_ids=None if steering is None else [steering.dead_end],
            extra_args=None if steering is None else {ROW: row},
        )

    def _scored(self, prompts: Sequence[list[int]], written: Sequence[_Written]) -> list[_Written]:
        """Read texts once more for the model's own log-probabilities.

        With a grammar, vLLM's are relative to what the grammar allows, whatever its
        `logprobs_mode`: the ranking would favour texts that the model would not have written. With
        a logits processor they are the model's own: vLLM computes them before it masks.
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
                    length, read = len(tokens) + 1, len(prompt)
                    candidates.append(Candidate(text, beam.cum_logprob, length, input_tokens=read))
            found.append(best_distinct(candidates, n))
        return found


def _start(model: str, precision: Precision, rank: int | None, steering: _Steering | None) -> "LLM":
    """Start the engine; `rank` is of an adapter to be added at run time."""
    # vLLM writes its log to standard output, which is for results, and reports its use to its
    # makers. Both are settled when it is imported.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if steering is not None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine, in this process
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # its logits processors have another interface
    import torch
    from transformers import AutoConfig
    from vllm import LLM
    from vllm.exceptions import VLLMError

    processors: list[type[LogitsProcessor]] | None = None
    if steering is not None:
        from kbqa.engine.writing.vllm_steering import in_process

        processors = [in_process(steering.rows, steering.starts)]
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
            logits_processors=processors,
        )
    except (OSError, ValueError, RuntimeError, VLLMError) as error:
        raise ModelError(f"vLLM cannot load {model}: {' '.join(str(error).split())}") from error


def _lora_request(adapter: Path) -> "LoRARequest":
    from vllm.lora.request import LoRARequest

    return LoRARequest(adapter.name, 1, str(adapter))


def _vllm_rank(adapter: Path) -> int:
    """Read an adapter's rank, rounded up to one that vLLM supports."""
    try:
        rank = int(adapter_config(adapter)["r"])
        return next(known for known in _RANKS if known >= rank)
    except (KeyError, StopIteration) as error:
        path = adapter / "adapter_config.json"
        raise ModelError(f"{path} has no rank that vLLM supports: {error!r}") from None
