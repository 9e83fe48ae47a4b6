"""Steer the texts of a batch that something else samples, by masking its logits.

vLLM chooses the tokens, and moves texts between the rows of its batch while they come and go. Here
each row knows how its text may go on. Of the logits of the next token only some of those that may
follow are left; `Keep` says which. They keep their values, so that log-probabilities that are read
before the masking are the model's own.

``best`` is the greedy form of `beam_search`: the text is that of one beam.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from kbqa.engine.deadline import check_deadline
from kbqa.engine.writing.backends.beam_search import CONSIDERED, HOPELESS, State, forced_run
from kbqa.engine.writing.tokenizer import Tokenizer
from kbqa.sparql.errors import DeadlineExceeded, GraphError, ModelError

if TYPE_CHECKING:
    from torch import Tensor

ROW = "kbqa_row"
"""The argument of a request to an engine in this process: the number of the text's start."""

Keep = Literal["best", "likely", "all"]
"""Which of the tokens that may follow are left: the likeliest from which the text can be finished;
those among them that are not hopeless beside it; or all, dead ends included, of free text those
among the `CONSIDERED` likeliest. ``all`` is what training by reward draws from."""

logger = logging.getLogger(__name__)


def dead_end_token(tokenizer: Tokenizer) -> int:
    """Return a token that no steered text holds, to write where a text cannot go on.

    Raises:
        ModelError: The tokenizer has no special token but the end of text.
    """
    special = set(tokenizer.all_special_ids) - {tokenizer.eos_token_id}
    if not special:
        raise ModelError(
            "the model's tokenizer has no special token but the end of text, so vLLM cannot "
            "follow the graph. Use --decoding schema."
        )
    return min(special)


@dataclass(slots=True)
class _Row:
    """A text of the batch: its state after `read` of its tokens, None if it cannot go on."""

    state: State | None
    tokens: Sequence[int]
    keep: Keep
    read: int = 0


class _Likely(NamedTuple):
    token: int
    logit: float


class SteeredRows:
    """The texts of a batch that are steered, by the number of their row.

    Args:
        end: The end-of-text token.
        dead_end: What a text that cannot go on gets as each further token; see `dead_end_token`.
            So the text is not taken for a finished one.

    Attributes:
        ends_at: When a deadline passes, as `time.monotonic` counts. From then on no text goes on.
        failure: Why a text cannot go on: the graph failed, or the deadline passed. None if neither.
    """

    def __init__(self, end: int, dead_end: int) -> None:
        self._end, self._dead_end = end, dead_end
        self._rows: dict[int, _Row] = {}
        self.ends_at: float | None = None
        self.failure: GraphError | DeadlineExceeded | None = None

    def put(self, at: int, start: State | None, tokens: Sequence[int], keep: Keep) -> None:
        """Steer the text of a row from now on.

        Args:
            at: The row.
            start: The state before its first token; None if the text cannot be begun.
            tokens: The tokens written so far. The sampler appends to this list.
            keep: Which of the tokens that may follow are left.
        """
        self._rows[at] = _Row(start, tokens, keep)

    def drop(self, at: int) -> None:
        """Steer the text of a row no more, if it was steered."""
        self._rows.pop(at, None)

    def move(self, source: int, target: int, *, swap: bool) -> None:
        """Move a text to another row, or swap two of them. Either row may not be steered."""
        moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
        if moved is not None:
            self._rows[target] = moved
        if swap and replaced is not None:
            self._rows[source] = replaced

    def mask(self, logits: "Tensor") -> None:
        """Set the logits of all tokens that may not follow to minus infinity, in place.

        Args:
            logits: Of the next tokens, in shape (rows, vocabulary). The tokens before them must be
                known by now.
        """
        for at, row in self._rows.items():
            kept = self._kept(row, logits[at]) or [self._dead_end]
            values = logits[at, kept].clone()
            logits[at] = float("-inf")
            logits[at, kept] = values

    def _kept(self, row: _Row, logits: "Tensor") -> list[int]:
        """Return the tokens that may follow; none if the text cannot go on."""
        try:
            _read_on(row)
            if row.state is None:
                return []
            check_deadline(self.ends_at, "writing paths")
            return list(self._following(row, row.state, logits))
        except (GraphError, DeadlineExceeded) as error:  # raised, it would end vLLM's engine
            logger.warning("A path is given up: %s", error)
            row.state, self.failure = None, error
            return []

    def _following(self, row: _Row, state: State, logits: "Tensor") -> Iterator[int]:
        """Yield the tokens that are left of those that may follow.

        Whether a token leads on may take a query, so it is only asked of tokens that may be taken.
        """
        if state.tokens is not None and len(state.tokens) == 1:
            yield from state.tokens  # within a run of tokens that was found to lead on
            return
        if row.keep == "all":
            yield from (one.token for one in _likeliest(state, logits) if _follows(state, one))
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


def _follows(state: State, likely: _Likely) -> bool:
    return state.tokens is not None or state.follow(likely.token) is not None


def _likeliest(state: State, logits: "Tensor") -> Iterator[_Likely]:
    """Yield the tokens that may follow, the likeliest first; of free text, the first of all."""
    if state.tokens is None:
        top = logits.topk(min(CONSIDERED, len(logits)))
        return map(_Likely, top.indices.tolist(), top.values.tolist())
    if not state.tokens:
        return iter(())
    listed = logits[list(state.tokens)].sort(descending=True, stable=True)
    tokens = [state.tokens[at] for at in listed.indices.tolist()]
    return map(_Likely, tokens, listed.values.tolist())
