"""The seam of methods: what belongs to one question goes in, its answer comes out.

Every front end (the terminal, evaluation, Python, a server) makes an `Asked` for each question by a
`kbqa.engine.engine.Engine`, and every method turns it into an `Answer`. Nothing else passes between
them.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Usage
from kbqa.kb.graph import (
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT_S,
    Direction,
    Edges,
    Graph,
    GraphIdentity,
    Neighbours,
    Schema,
    Table,
)
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import DeadlineExceeded
from kbqa.sparql.terms import Term

if TYPE_CHECKING:
    from kbqa.engine.chat.cache import CountedChat
    from kbqa.engine.linking.linker import LinkedEntity
    from kbqa.engine.writing.generate import Candidate, Progress
    from kbqa.kb.names import Names

Watcher = Callable[[str], object]
"""Called with the name of each stage as it begins, such as ``link``, ``write`` or ``execute``."""

ChooserName = Literal["llm", "embedder", "random"]
"""Who takes the decisions of a method: the general model, the embedder, or chance."""

_SHORTEST_S = 0.001


class Clock:
    """Adds up the seconds of each stage of a question, and ends it at its deadline.

    Args:
        deadline_s: Seconds that the question may take in all, from now; None for any time.
        watch: Called with each stage as it begins.
    """

    def __init__(self, deadline_s: float | None = None, watch: Watcher | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.ends_at = None if deadline_s is None else time.monotonic() + deadline_s
        """When the question must end, as `time.monotonic` counts; None without a deadline."""
        self._deadline_s, self._watch = deadline_s, watch

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what happens inside the block towards a stage, errors included.

        Raises:
            DeadlineExceeded: The deadline has passed before the block begins.
        """
        self.check()
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
        if self._deadline_s is None:
            return self
        clock = Clock(self._deadline_s, self._watch)
        clock.seconds = dict(self.seconds)
        clock.ends_at = time.monotonic() + self._deadline_s - sum(self.seconds.values())
        return clock

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.ends_at is not None and time.monotonic() >= self.ends_at

    def check(self) -> None:
        """Raise `DeadlineExceeded` if the deadline has passed."""
        if self.is_over:
            raise DeadlineExceeded(f"no answer within {self._deadline_s:g} s. Raise --deadline.")

    def bound(self, timeout_s: float) -> float:
        """Return the seconds that a query may take: its own limit, or what is left if that is less.

        Raises:
            DeadlineExceeded: Nothing is left.
        """
        self.check()
        if self.ends_at is None:
            return timeout_s
        return max(min(timeout_s, self.ends_at - time.monotonic()), _SHORTEST_S)


class BoundedGraph(Graph):
    """A graph that searches for as long as the question has time.

    Args:
        graph: The graph.
        bound: Takes the seconds that a query may take and returns those that it has; raises if the
            deadline has passed.
    """

    def __init__(self, graph: Graph, bound: Callable[[float], float]) -> None:
        self._graph, self._bound = graph, bound

    @property
    def description(self) -> str:
        """The graph's own."""
        return self._graph.description

    @property
    def _in_time(self) -> Graph:
        """The graph, if there is time for another search."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph

    def identity(self) -> GraphIdentity:
        """The graph's own."""
        return self._graph.identity()

    def select(
        self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, limit: int | None = None
    ) -> Table:
        """Run a SELECT query within the time that is left."""
        return self._graph.select(query, timeout_s=self._bound(timeout_s), limit=limit)

    def ask(self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> bool:
        """Run an ASK query within the time that is left."""
        return self._graph.ask(query, timeout_s=self._bound(timeout_s))

    def relations_of_each(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Sequence[str]]:
        """Map entities to relations if there is time."""
        return self._in_time.relations_of_each(entities, direction, limit)

    def neighbours_of_each(
        self,
        starts: Iterable[tuple[str, str]],
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Mapping[tuple[str, str], Sequence[Term]]:
        """Map entities with relations to neighbours if there is time."""
        return self._in_time.neighbours_of_each(starts, direction, limit)

    def first_neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Neighbours:
        """List the first neighbours of an entity if there is time."""
        return self._in_time.first_neighbours(entity, relation, direction, limit)

    def frontier_relations(
        self, entities: Sequence[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List relations of entities if there is time."""
        return self._in_time.frontier_relations(entities, direction, limit)

    def frontier_neighbours(
        self,
        entities: Sequence[str],
        relation: str,
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Sequence[Term]:
        """List neighbours of entities if there is time."""
        return self._in_time.frontier_neighbours(entities, relation, direction, limit)

    def edges(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Edges]:
        """Map entities to edges if there is time."""
        return self._in_time.edges(entities, direction, limit)

    def labels(self, mids: Iterable[str]) -> Mapping[str, str]:
        """Map entities to names if there is time."""
        return self._in_time.labels(mids)

    def all_relations(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> set[str]:
        """Collect all relations within the time that is left."""
        return self._graph.all_relations(self._bound(timeout_s))

    def schema(self) -> Schema | None:
        """The graph's own."""
        return self._graph.schema()

    def names(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> "Names":
        """Open the names within the time that is left."""
        return self._graph.names(self._bound(timeout_s))

    def close(self) -> None:
        """Do nothing: the graph is shared by all questions."""


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

    @property
    def usage(self) -> Usage:
        """What the question has taken of the general model so far."""
        return Usage() if self.chat is None else self.chat.usage

    def bounded(self, graph: Graph) -> Graph:
        """Return a graph as the question sees it: searches end at the deadline, if it has one."""
        return graph if self.clock.ends_at is None else BoundedGraph(graph, self.clock.bound)


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
