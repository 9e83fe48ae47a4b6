"""Keep what a general model said, so that nothing is paid for twice.

A reply is a file of its own, on the disk before anyone uses it: a process that is killed loses no
reply that it got, and a file that breaks is one reply. (`TextCache` would not do: where its file
fails it gives up, and removes what is broken, which for what is made again at no price is right.)
A disk that is full or forbidden costs a warning, never the reply.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal
from weakref import WeakValueDictionary

from pydantic import BaseModel, NonNegativeInt, ValidationError

from kbqa.engine.chat.model import DEFAULT_MAX_TOKENS, ChatModel, Message, Reply, Usage
from kbqa.engine.chat.prices import Price
from kbqa.kb.cache import cache_directory
from kbqa.kb.durable import write_safely

SCHEMA_VERSION: Final = 1

logger = logging.getLogger(__name__)


class CachedChat:
    """A general model that is asked the same only once. Any number of threads may ask it.

    A name by which a server offers ever newer versions, such as ``gpt-4o-mini``, is one model here:
    to have them asked anew, name the version, or turn the cache off.

    Args:
        model: Asked for what is not kept.
        identity: What, besides the conversation, can change what it says: `OpenAIChat.identity`.
        price: Of its tokens today, for the cost of replies that are kept; None where unknown.
        directory: Where replies are kept; by default ``chat`` in kbqa's cache folder.
    """

    def __init__(
        self,
        model: ChatModel,
        identity: Mapping[str, str | int | None],
        price: Price | None = None,
        directory: Path | None = None,
    ) -> None:
        self._model, self._identity, self._price = model, dict(identity), price
        self._directory = directory or cache_directory() / "chat"
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._warned: set[str] = set()

    @property
    def name(self) -> str:
        """The name of the model that is asked."""
        return self._model.name

    def complete(
        self, messages: Sequence[Message], *, max_tokens: int = DEFAULT_MAX_TOKENS
    ) -> Reply:
        """Return what was said before, or ask; see `ChatModel.complete`."""
        key = self._key(messages, max_tokens)
        path = self._directory / key[:2] / f"{key[2:]}.json"
        with self._lock(key):
            kept = self._read(path)
            if kept is not None:
                return kept
            reply = self._model.complete(messages, max_tokens=max_tokens)
            self._write(path, reply)
        return reply

    def _key(self, messages: Sequence[Message], max_tokens: int) -> str:
        request = {
            "schema_version": SCHEMA_VERSION,
            "model": self._identity,
            "messages": [[message.role, message.content] for message in messages],
            "max_tokens": max_tokens,
        }
        canonical = json.dumps(request, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def _lock(self, key: str) -> threading.Lock:
        """Let one thread ask, and the others that would ask the same wait for its reply."""
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())

    def _read(self, path: Path) -> Reply | None:
        try:
            kept = _Kept.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("cannot be read, and is asked for again", path, str(error))
            return None
        except ValidationError:
            self._warn("is broken, and is asked for again", path, "not what kbqa wrote")
            return None
        cost_usd = None
        if self._price is not None:
            cost_usd = self._price.cost_usd(kept.input_tokens, kept.output_tokens)
        return Reply(
            kept.text,
            Usage(
                calls=1,
                cached_calls=1,
                input_tokens=kept.input_tokens,
                output_tokens=kept.output_tokens,
                cost_usd=cost_usd,
            ),
        )

    def _write(self, path: Path, reply: Reply) -> None:
        kept = _Kept(
            schema_version=SCHEMA_VERSION,
            text=reply.text,
            input_tokens=reply.usage.input_tokens,
            output_tokens=reply.usage.output_tokens,
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_safely(path, json.dumps(kept.model_dump()) + "\n")
        except OSError as error:
            self._warn("is not kept", path, str(error))

    def _warn(self, what: str, path: Path, why: str) -> None:
        """Warn once: a disk that is full is so for every reply that follows."""
        level = logging.DEBUG if what in self._warned else logging.WARNING
        logger.log(level, "a reply of %s %s (%s): %s", self.name, what, path, why)
        self._warned.add(what)


class _Kept(BaseModel):
    schema_version: Literal[1]
    text: str
    input_tokens: NonNegativeInt
    output_tokens: NonNegativeInt
