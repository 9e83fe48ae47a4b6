"""Write CRPs for questions: n candidates each, best first.

`Generator` is the seam. Its back ends are transformers, vLLM in this process, and a server that
speaks OpenAI's protocol.

Source: RouterKGQA §3.2; appendix A.1 for what the model was trained on.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeVar

from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import EndpointDown, ModelError, PromptTooLong

DecodingLevel = Literal["none", "schema", "graph"]
"""How far texts are constrained; `kbqa.engine.writing.constraints.decoding` has the meanings."""

LEVELS: tuple[DecodingLevel, ...] = ("none", "schema", "graph")
DEFAULT_LEVEL: DecodingLevel = "graph"

DEFAULT_ADAPTER = Path(__file__).parent / "adapter"
DEFAULT_BEAMS = 5
MAX_NEW_TOKENS = 256
"""The longest text, in tokens; the published CRPs have under 250."""

DEFAULT_SEED = 42
TEMPERATURE = 1.0
"""Back ends that sample instead of searching follow the model's own distribution. A question gets
its greedy text and n samples; samples repeat, so fewer than n different texts may be left. Equal
seeds give equal texts on one back end, not across them."""

LEAST_LOGPROB = -9999.0
"""Stands for a log-probability that is no finite number, as servers send −∞ and NaN: very unlikely.
"""

_Asked = TypeVar("_Asked")
_Written = TypeVar("_Written")


@dataclass(frozen=True, slots=True)
class Request:
    """A question to write CRPs for.

    Attributes:
        question: In natural language. Lone surrogates, which no tokenizer or server takes, are
            replaced.
        topics: Entities that the path may start from, best first, each with its mid and name; empty
            if none are known. Only level ``graph`` uses them.
        relations: To suggest to a model that was trained with suggestions, best first.
    """

    question: str
    topics: tuple[Entity, ...] = ()
    relations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "question", self.question.encode(errors="replace").decode())


@dataclass(frozen=True, slots=True)
class Candidate:
    """A CRP as the model wrote it, or as a search of the graph found it.

    Attributes:
        text: The text, unread; it may not be a CRP at all.
        logprob: Sum of its tokens' log-probabilities, natural log, end of text included; 0 if it
            was not written. Always finite.
        tokens: Number of tokens, end of text included.
        topics: Mids of the request's topics from which the written main path leads to an answer, in
            the order of the request. Only level ``graph`` knows them; else they are empty.
        rank: Its place among the paths that a search of the graph found, from 0, or that of the
            path which it narrows, among these; None if the model wrote it.
        narrows: Whether the search added a condition, an order or a comparison to a path.
    """

    text: str
    logprob: float
    tokens: int
    topics: tuple[str, ...] = ()
    rank: int | None = None
    narrows: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.logprob):
            object.__setattr__(self, "logprob", LEAST_LOGPROB)

    @property
    def is_searched(self) -> bool:
        """Whether it was found in the graph, and not written."""
        return self.rank is not None


def rank_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Sort candidates by their mean log-probability per token, the likeliest first.

    Hugging Face's beam search, and so RouterKGQA, ranks finished texts like this. By the sum, a
    path without its constraints would usually win, because it is shorter.

    >>> short, long = Candidate("a", -1.2, 10), Candidate("b", -2.0, 40)
    >>> [candidate.text for candidate in rank_candidates([short, long])]
    ['b', 'a']
    """
    return sorted(candidates, key=lambda candidate: -candidate.logprob / candidate.tokens)


def best_distinct(candidates: Iterable[Candidate], n: int) -> list[Candidate]:
    """Rank candidates, drop repeated texts, and keep the best n.

    >>> texts = [Candidate("a", -1.0, 10), Candidate("b", -2.0, 10), Candidate("a", -1.0, 10)]
    >>> [candidate.text for candidate in best_distinct(texts, 5)]
    ['a', 'b']
    """
    best: dict[str, Candidate] = {}
    for candidate in rank_candidates(candidates):
        best.setdefault(candidate.text, candidate)
    return list(best.values())[:n]


@dataclass(frozen=True, slots=True)
class Progress:
    """Follows the writing for several requests, which are numbered from 0.

    Both are called by the thread that writes, between steps of the model, so they must be quick.

    Attributes:
        written: Called with a request's number and candidates as soon as these are final.
        is_wanted: Asked whether a request is still wanted. If not, it is dropped: it takes no more
            of the model's time, and gets no candidates.
    """

    written: Callable[[int, list[Candidate]], object]
    is_wanted: Callable[[int], bool]


class Generator(Protocol):
    """Writes CRPs."""

    @property
    def name(self) -> str:
        """The model and adapter, for reports."""

    @property
    def suggested_relations(self) -> int:
        """How many relations its prompts suggest, at most; see `PromptFormat`."""

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        ends_at: float | None = None,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request, best first. Threads take turns.

        Args:
            requests: Generated as one batch; the caller chooses its size.
            n: Most candidates for each question.
            ends_at: When the deadline passes, as `time.monotonic` counts.
            progress: Told of each request as soon as it is written. A back end that writes for all
                at once ignores it.

        Raises:
            ModelError: The model failed.
            GraphError: The graph that constrains decoding does not answer.
            DeadlineExceeded: The deadline passed.
        """


def write_apart(
    generate: Callable[[Sequence[_Asked]], Sequence[_Written]],
    requests: Sequence[_Asked],
) -> list[_Written | Exception]:
    """Write CRPs for requests together, or one by one if that fails for one of them.

    Returns:
        What was written for each request, or why nothing was.

    Raises:
        EndpointDown: The graph is gone.
        ModelError: The model failed.
    """
    try:
        return list(generate(requests))
    except Exception as error:
        if fails_all(error):
            raise
        if len(requests) == 1:
            return [error]
        return [written for request in requests for written in write_apart(generate, [request])]


def fails_all(error: Exception) -> bool:
    """Return whether no request can be written for after an error, as the graph or model is gone.

    Any other error is that of one request.
    """
    is_of_model = isinstance(error, ModelError) and not isinstance(error, PromptTooLong)
    return is_of_model or isinstance(error, EndpointDown)


class NoPaths:
    """A generator that writes no paths, for runs without a small model."""

    name = "no small model"
    suggested_relations = 0

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        ends_at: float | None = None,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Write nothing."""
        return [[] for _ in requests]


@dataclass(frozen=True, slots=True)
class SavedBeams:
    """A generator for runs whose candidates were all written before."""

    name: str
    suggested_relations: ClassVar[int] = 0

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        ends_at: float | None = None,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Raise `ModelError` if there is any request."""
        if requests:
            raise ModelError(f"{self.name} holds no paths for {requests[0].question!r}")
        return []
