"""The seam of methods: what belongs to one question goes in, its answer comes out.

Every front end (the terminal, evaluation, Python, a server) makes an `Asked` for each question by a
`kbqa.engine.engine.Engine`, and every method turns it into an `Answer`. Nothing else passes between
them.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Usage
from kbqa.kb.deadline import Deadline, check_deadline, keep_to
from kbqa.sparql.crp import Entity

if TYPE_CHECKING:
    from kbqa.engine.chat.cache import CountedChat
    from kbqa.engine.linking.linker import LinkedEntity
    from kbqa.engine.writing.generate import Candidate, Progress

logger = logging.getLogger(__name__)

Watcher = Callable[[str], object]
"""Called with the name of each stage as it begins, such as ``link``, ``write`` or ``execute``."""

ChooserName = Literal["llm", "embedder", "random"]
"""Who takes the decisions of a method: the general model, the embedder, or chance."""


class Clock:
    """Adds up the seconds of each stage of a question, and ends it at its deadline.

    Args:
        deadline_s: Seconds that the question may take in all, from now; None for any time.
        watch: Called with each stage as it begins.
    """

    def __init__(self, deadline_s: float | None = None, watch: Watcher | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.deadline = None if deadline_s is None else Deadline.after(deadline_s)
        self._watch = watch

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what happens inside the block towards a stage, errors included.

        The question's deadline ends it.

        Raises:
            DeadlineExceeded: The deadline has passed before the block begins.
        """
        with keep_to(self.deadline):
            check_deadline()
            if self._watch is not None:
                self._watch(name)
            started = time.perf_counter()
            try:
                yield
            finally:
                self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """Count seconds towards a stage that was timed elsewhere, such as a share of a batch."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def resumed(self) -> "Clock":
        """Return a clock that goes on from here: waiting since the last stage does not count."""
        if self.deadline is None:
            return self
        clock = Clock(self.deadline.seconds, self._watch)
        clock.seconds = dict(self.seconds)
        left_s = self.deadline.seconds - sum(self.seconds.values())
        clock.deadline = replace(self.deadline, ends_at=time.monotonic() + left_s)
        return clock

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and self.deadline.left_s <= 0


class Budget:
    """Counts the decisions of a question by any chooser; the last is kept for the answer.

    Args:
        limit: How many may be taken, at least 1; None for any number.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.spent = 0
        self.is_exhausted = False
        """Whether a decision was refused."""

    def narrow(self, left: int) -> None:
        """Allow at most so many more decisions."""
        most = self.spent + left
        self.limit = most if self.limit is None else min(self.limit, most)

    def take(self, wanted: int = 1) -> int:
        """Take some decisions together.

        Returns:
            How many of them may be taken: they are counted.
        """
        taken = wanted
        if self.limit is not None:
            taken = min(wanted, max(self.limit - 1 - self.spent, 0))
        self.is_exhausted = self.is_exhausted or taken < wanted
        self.spent += taken
        return taken

    def take_last(self) -> bool:
        """Take the decision that answers; return whether it may be taken."""
        if self.limit is not None and self.spent >= self.limit:
            self.is_exhausted = True
            return False
        self.spent += 1
        return True


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that is linked and is to be answered.

    Attributes:
        question: In natural language.
        given: Topic entities that came with the question, each with its name; mostly none.
        linked: Entities that the question mentions, best first.
        clock: Times its stages and knows its deadline.
        chat: The general model, which counts what this question takes; None if there is none.
        candidates: Paths that were written for it before; None if the method is to write them.
        budget: The decisions that may be taken for it.
        calls_left: Returns how many calls of the general model the run has left for it, and may
            wait for other questions to know it; None if there is no limit to them.
        typed: What the asker typed, where `question` says more: it names the given topics.
        carried: A path of an earlier question that this one goes on from; mostly none.
    """

    question: str
    given: tuple[Entity, ...] = ()
    linked: "tuple[LinkedEntity, ...]" = ()
    clock: Clock = field(default_factory=Clock)
    chat: "CountedChat | None" = None
    candidates: "Sequence[Candidate] | None" = None
    budget: Budget = field(default_factory=Budget)
    calls_left: Callable[[], int] | None = None
    typed: str = ""
    carried: "Candidate | None" = None

    def written_by(self, method: "Method") -> "Sequence[Candidate]":
        """Return the paths that were written before, or have a method write them now."""
        if self.candidates is not None:
            return self.candidates
        with self.clock.stage("write"):
            [candidates] = method.write([self])
        for each in candidates:
            logger.info("wrote %r (%.2f)", each.text, each.logprob)
        return candidates

    @property
    def usage(self) -> Usage:
        """What the question has taken of the general model so far."""
        return Usage() if self.chat is None else self.chat.usage


class Method(Protocol):
    """A way from a question to its answer. Any number of threads may use one.

    A method that writes paths with the small model does so in three steps, which a server or an
    evaluation can drive for many questions at once: `Asked` holds what is known of a question,
    `write` writes for several of them, and `answer` finishes each.
    """

    name: str
    general_calls: float | None
    """Calls of the general model a question, on average, that a run may take; None for any
    number."""

    def settings(self) -> Mapping[str, object]:
        """Return what decides its answers, for manifests."""

    def write(
        self, asked: Sequence[Asked], progress: "Progress | None" = None
    ) -> "list[list[Candidate]]":
        """Write the candidates of many questions at once; none if the method writes no paths.

        Args:
            asked: The questions.
            progress: Told of each question as soon as it is written for, as `Generator.generate`
                does. It decides which questions are dropped; no deadline ends the others.

        Raises:
            ModelError: The small model failed.
            GraphError: The graph, which constrains the writing, does not answer.
            DeadlineExceeded: The deadline of one of them has passed.
        """

    def answer(self, asked: Asked) -> Answer:
        """Answer a question.

        Returns:
            The answer. If none was found it has no answers, and its `problem` says why.

        Raises:
            ModelError: A model failed.
            GraphError: The graph does not answer at all.
            DeadlineExceeded: The question's deadline has passed.
        """
