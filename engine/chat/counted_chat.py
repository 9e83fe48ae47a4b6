"""Count what one question takes of a general model that all questions share."""

import logging
import threading
from collections.abc import Sequence

from kbqa.engine.chat.model import DEFAULT_MAX_TOKENS, ChatModel, Message, Reply, Usage

logger = logging.getLogger(__name__)


class CountedChat:
    """A general model that adds up the usage of its replies; each question has its own.

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
    def usage(self) -> Usage:
        """The usage of all replies so far."""
        return self._usage

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        ends_at: float | None = None,
    ) -> Reply:
        """Ask the model, and count its reply; see `ChatModel.complete`."""
        logger.debug("asking %s: %s", self.name, messages[-1].content)
        ends = [end for end in (ends_at, self._ends_at) if end is not None]
        reply = self._model.complete(
            messages, max_tokens=max_tokens, ends_at=min(ends, default=None)
        )
        with self._lock:
            self._usage += reply.usage
        return reply
