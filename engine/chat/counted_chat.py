"""Count what one question takes of a general model that all questions share."""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from kbqa.engine.chat.model import (
    DEFAULT_MAX_TOKENS,
    ChatModel,
    Message,
    Reply,
    Usage,
    without_reasoning,
)
from kbqa.engine.chat.stand_in import StandIn

_MOST_THREADS: Final = 64  # Far over what `--llm-concurrency` usually lets through at once.

logger = logging.getLogger(__name__)


class CountedChat:
    """A general model that adds up the usage of its replies; each question has its own.

    Replies are passed on without the model's reasoning.

    A call that fails is not counted, though some of its tries may have been paid for;
    `SpendingLimit` counts those.

    Args:
        model: The model that is asked.
        ends_at: When the question's deadline passes, as `time.monotonic` counts; calls end then.
    """

    def __init__(self, model: ChatModel, ends_at: float | None = None) -> None:
        self._model, self._ends_at = model, ends_at
        self._lock = threading.Lock()
        self._usage = Usage()

    @property
    def name(self) -> str:
        """The name of the model that is counted."""
        return self._model.name

    @property
    def is_stand_in(self) -> bool:
        """Whether prompts are only counted, for an estimate."""
        return isinstance(self._model, StandIn)

    @property
    def usage(self) -> Usage:
        """The usage of all replies so far."""
        return self._usage

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        temperature: float = 0.0,
        seed: int | None = None,
        ends_at: float | None = None,
    ) -> Reply:
        """Ask the model, and count its reply; see `ChatModel.complete`."""
        logger.debug("asking %s: %s", self.name, messages[-1].content)
        ends = [end for end in (ends_at, self._ends_at) if end is not None]
        reply = self._model.complete(
            messages,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            ends_at=min(ends, default=None),
        )
        self._count([reply])
        return _read(reply)

    def complete_all(
        self,
        conversations: Sequence[Sequence[Message]],
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> list[Reply]:
        """Continue several conversations at once, as far as the model takes requests at once.

        Returns:
            The replies, in the order of the conversations.

        Raises:
            ModelError: Some failed; the first of them, once all have ended. The others are counted.
            DeadlineExceeded: The deadline passed.
        """

        def ask(messages: Sequence[Message]) -> Reply:
            return self._model.complete(
                messages,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=seed,
                ends_at=self._ends_at,
            )

        logger.debug("asking %s %d prompts at once", self.name, len(conversations))
        with ThreadPoolExecutor(min(max(len(conversations), 1), _MOST_THREADS)) as pool:
            asked = [pool.submit(ask, messages) for messages in conversations]
        self._count([each.result() for each in asked if each.exception() is None])
        return [_read(each.result()) for each in asked]

    def _count(self, replies: Sequence[Reply]) -> None:
        """Add what replies took, in their order: sums of floats then do not depend on threads."""
        with self._lock:
            for reply in replies:
                self._usage += reply.usage


def _read(reply: Reply) -> Reply:
    return replace(reply, text=without_reasoning(reply.text))
