"""Wrappers of a general model: a cache of its replies, a counter, and a stand-in for it.

`CachedChat` writes each reply to a file before it is used, so a process that is killed loses none,
and a damaged file is one reply. (`TextCache` removes a file that fails, which is right only for
what can be computed again for free.) Only the user can read the files: questions may be private.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, Unpack
from weakref import WeakValueDictionary

from pydantic import BaseModel, NonNegativeInt, ValidationError

from kbqa.engine.chat.model import (
    DEFAULT_MAX_TOKENS,
    ChatModel,
    Message,
    Price,
    Reply,
    ReplySampling,
    Usage,
    count_tokens,
    without_reasoning,
)
from kbqa.kb.deadline import held
from kbqa.kb.layout import write_safely
from kbqa.kb.open import cache_directory

SCHEMA_VERSION: Final = 1

logger = logging.getLogger(__name__)


class CachedChat:
    """A general model that is asked the same question only once. Threads may share it.

    A name for changing versions, such as ``gpt-4o-mini``, is one model: name a version to ask it.
    The identity is `OpenAIChat.identity`; the price is for cached replies. The directory is by
    default ``chat`` in kbqa's cache folder.
    """

    def __init__(
        self,
        model: ChatModel,
        identity: Mapping[str, str],
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
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Reply:
        """Return the reply from the cache, or ask; see `ChatModel.complete`."""
        key = self._key(messages, max_tokens, temperature, seed)
        # For replies of a server that takes no temperature.
        without = self._path(self._key(messages, max_tokens, None, seed))
        with held(self._lock(key), self.name):
            kept = self._read(self._path(key)) or self._read(without)
            if kept is not None:
                return kept
            reply = self._model.complete(
                messages, max_tokens=max_tokens, temperature=temperature, seed=seed
            )
            self._write(self._path(key) if reply.at_temperature else without, reply)
        return reply

    def _path(self, key: str) -> Path:
        return self._directory / key[:2] / f"{key[2:]}.json"

    def _key(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float | None,
        seed: int | None,
    ) -> str:
        # As it was when every call was at temperature 0, so that those replies are still found.
        warmth = None if temperature is None else float(temperature) or 0
        sampling = {"temperature": warmth, "seed": seed}
        request = {
            "schema_version": SCHEMA_VERSION,
            "model": {**self._identity, **sampling},
            "messages": [[message.role, message.content] for message in messages],
            "max_tokens": max_tokens,
        }
        canonical = json.dumps(request, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def _lock(self, key: str) -> threading.Lock:
        """Return the lock of a request: one thread sends it, the others wait for the reply."""
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())

    def _read(self, path: Path) -> Reply | None:
        try:
            kept = _Kept.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("cannot be read from the cache, so the model is asked", path, str(error))
            return None
        except ValidationError:
            self._warn("is damaged in the cache, so the model is asked", path, "not as written")
            return None
        usage = count_tokens(self._price, kept.input_tokens, kept.output_tokens)
        return Reply(kept.text, replace(usage, cached_calls=1), kept.is_truncated)

    def _write(self, path: Path, reply: Reply) -> None:
        kept = _Kept(
            schema_version=SCHEMA_VERSION,
            text=reply.text,
            input_tokens=reply.usage.input_tokens,
            output_tokens=reply.usage.output_tokens,
            is_truncated=reply.is_truncated,
        )
        try:
            _make_private(self._directory)
            _make_private(path.parent)
            write_safely(path, json.dumps(kept.model_dump()) + "\n")
            path.chmod(0o600)
        except OSError as error:
            self._warn("cannot be cached", path, str(error))

    def _warn(self, what: str, path: Path, why: str) -> None:
        """Warn once of each problem: a full disk is full for every later reply, too."""
        level = logging.DEBUG if what in self._warned else logging.WARNING
        logger.log(level, "a reply of %s %s (%s): %s", self.name, what, path, why)
        self._warned.add(what)


def _make_private(directory: Path) -> None:
    """Make a folder that only the user may enter; close one of an older version to others."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


class _Kept(BaseModel):
    schema_version: Literal[1]
    text: str
    input_tokens: NonNegativeInt
    output_tokens: NonNegativeInt
    is_truncated: bool = False  # Files of older versions do not say.


# As in English text. Names of relations have fewer, so tokens are rather more than estimated.
LETTERS_A_TOKEN: Final = 4


class StandIn:
    """A stand-in for a general model in an estimate; it replies ``none``. Thread-safe.

    A prompt counts a token for each four letters, and a reply as many tokens as are allowed.
    """

    def __init__(self, name: str, price: Price | None = None) -> None:
        self._name, self._price = name, price

    @property
    def name(self) -> str:
        """The name of the model that it stands in for."""
        return self._name

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Reply:
        """Count a prompt."""
        letters = sum(len(message.content) for message in messages)
        return Reply("none", count_tokens(self._price, -(-letters // LETTERS_A_TOKEN), max_tokens))


_MOST_THREADS: Final = 64  # Far over what `--llm-concurrency` usually lets through at once.


class CountedChat:
    """A general model for one question, which adds up its usage and removes its reasoning.

    A call that fails is not counted here, though some of its tries may have been paid for;
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
    def is_stand_in(self) -> bool:
        """Whether prompts are only counted, for an estimate."""
        return isinstance(self._model, StandIn)

    @property
    def usage(self) -> Usage:
        """The usage of all replies so far."""
        return self._usage

    def complete(self, messages: Sequence[Message], **sampling: Unpack[ReplySampling]) -> Reply:
        """Ask the model, and count its reply; see `ChatModel.complete`."""
        logger.debug("asking %s: %s", self.name, messages[-1].content)
        return self._count([self._model.complete(messages, **sampling)])[0]

    def complete_all(
        self, conversations: Sequence[Sequence[Message]], **sampling: Unpack[ReplySampling]
    ) -> list[Reply]:
        """Continue several conversations at once.

        If some fail, the first error is raised once all have ended; the others are counted.
        """

        def ask(messages: Sequence[Message]) -> Reply:
            return self._model.complete(messages, **sampling)

        logger.debug("asking %s %d prompts at once", self.name, len(conversations))
        with ThreadPoolExecutor(min(max(len(conversations), 1), _MOST_THREADS)) as pool:
            asked = [pool.submit(copy_context().run, ask, messages) for messages in conversations]
        replies = self._count([each.result() for each in asked if each.exception() is None])
        for each in asked:
            each.result()  # Raises the first error.
        return replies

    def _count(self, replies: Sequence[Reply]) -> list[Reply]:
        """Add up replies in their order: sums of floats then do not depend on threads."""
        read = [replace(reply, text=without_reasoning(reply.text)) for reply in replies]
        with self._lock:
            for reply, without in zip(replies, read, strict=True):
                self._usage += replace(reply.usage, reasoned_calls=int(reply.text != without.text))
        return read
