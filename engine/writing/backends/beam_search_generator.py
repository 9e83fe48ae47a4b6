"""Write CRPs by beam search with a causal language model that runs in this process."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from kbqa.engine.deadline import held
from kbqa.engine.writing.backends.batch_reader import ReadableModel
from kbqa.engine.writing.backends.beam_search import Hypothesis, State, Unsteered, beam_search
from kbqa.engine.writing.constraints.crp_grammar import Steps, start
from kbqa.engine.writing.constraints.decoding import Decoding, walked_topics
from kbqa.engine.writing.constraints.steering import Pieces, SteeredText
from kbqa.engine.writing.generate import (
    DEFAULT_BEAMS,
    MAX_NEW_TOKENS,
    Candidate,
    Progress,
    Request,
    best_distinct,
)
from kbqa.engine.writing.prompt import PromptFormat
from kbqa.engine.writing.tokenizer import Tokenizer


class BeamSearchGenerator:
    """A causal language model, its tokenizer and what constrains its texts.

    Args:
        model: The model; one thread at a time reads with it.
        tokenizer: Its tokenizer.
        prompt: The prompt that it was trained with.
        name: What it is called in reports.
        decoding: How far its texts are constrained.
    """

    def __init__(
        self,
        model: ReadableModel,
        tokenizer: Tokenizer,
        prompt: PromptFormat,
        name: str,
        decoding: Decoding,
    ) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._prompt, self._name = prompt, name
        self._decoding = decoding
        # Tokenizers and the tries of `Pieces` are not safe for several threads at once.
        self._lock = threading.Lock()
        self._pieces = None if decoding.level == "none" else Pieces(tokenizer)

    @property
    def name(self) -> str:
        """The model, adapter, hash of its weights and level of decoding, for reports."""
        return self._name

    @property
    def suggested_relations(self) -> int:
        """How many relations its prompts suggest, at most."""
        return self._prompt.relations

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        ends_at: float | None = None,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request by beam search; see `Generator.generate`."""
        if not requests:
            return []
        with held(self._lock, ends_at, self._name):
            return self._generate(requests, n, ends_at, progress)

    def _generate(
        self,
        requests: Sequence[Request],
        n: int,
        ends_at: float | None,
        progress: Progress | None,
    ) -> list[list[Candidate]]:
        prompts = [
            self._tokenizer.encode(
                self._prompt.render(request.question, request.relations), add_special_tokens=False
            )
            for request in requests
        ]
        form = self._prompt.crp_format
        steps = [self._decoding.steps(request, form) for request in requests]
        written: list[list[Candidate]] = [[] for _ in requests]

        def take(row: int, texts: Sequence[Hypothesis]) -> None:
            written[row] = [
                replace(candidate, topics=walked_topics(steps[row], candidate.text))
                for candidate in best_distinct(map(self._candidate, texts), n)
            ]
            if progress is not None:
                progress.written(row, written[row])

        beam_search(
            self._model,
            prompts,
            n=n,
            end=self._tokenizer.eos_token_id,
            max_new_tokens=MAX_NEW_TOKENS,
            ends_at=ends_at,
            starts=[self._start(walk) for walk in steps],
            done=take,
            is_wanted=None if progress is None else progress.is_wanted,
        )
        return written

    def _start(self, steps: Steps | None) -> State:
        if steps is None or self._pieces is None:
            return Unsteered()
        return SteeredText.begin(self._pieces, start(steps))

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        text = self._tokenizer.decode(hypothesis.tokens, skip_special_tokens=True)
        return Candidate(text, hypothesis.logprob, len(hypothesis.tokens) + 1)
