"""Count what one question takes of a general model that all questions share."""

import threading
from collections.abc import Sequence

from kbqa.engine.chat.model import DEFAULT_MAX_TOKENS, ChatModel, Message, Reply, Usage


class CountedChat:
    """A general model that adds up the usage of its replies; for one question each is made.

    A call that fails in the end is not in it, though a part of its tries may have been paid for;
    `SpendingLimit` counts those.
    """

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._usage = Usage()

    @property
    def name(self) -> str:
        """The name of the model that is counted."""
        return self._model.name

    @property
    def usage(self) -> Usage:
        """Of all replies so far."""
        return self._usage

    def complete(
        self, messages: Sequence[Message], *, max_tokens: int = DEFAULT_MAX_TOKENS
    ) -> Reply:
        """Ask the model, and count its reply; see `ChatModel.complete`."""
        reply = self._model.complete(messages, max_tokens=max_tokens)
        with self._lock:
            self._usage += reply.usage
        return reply
