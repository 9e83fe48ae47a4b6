"""What writes CRPs for questions: n candidates each, best first.

`Generator` is the seam behind which the back ends stand: transformers, vLLM in this process, or a
server that speaks OpenAI's protocol.

Source: RouterKGQA §3.2; appendix A.1 for what the model was trained on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import EndpointDown, GraphError, ModelError

DEFAULT_ADAPTER = Path(__file__).parent / "adapter"
DEFAULT_BEAMS = 5
MAX_NEW_TOKENS = 256
"""The longest text, in tokens; the published CRPs have under 250."""


@dataclass(frozen=True, slots=True)
class Request:
    """A question to write CRPs for.

    Attributes:
        question: In natural language.
        topics: Entities that the path may start from, best first, each with its mid and name; empty
            where nothing is known of them. Only decoding that the graph constrains looks at them.
    """

    question: str
    topics: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A CRP as the model wrote it.

    Attributes:
        text: The text, unread; it may not be a CRP at all.
        logprob: Sum of its tokens' log-probabilities, natural log, end of text included.
        tokens: Number of tokens, end of text included.
    """

    text: str
    logprob: float
    tokens: int


def rank_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Sort candidates by their mean log-probability per token, the likeliest first.

    That is how Hugging Face's beam search, and so RouterKGQA, ranks finished texts. By the sum a
    path without its constraints would mostly win, because it is shorter.

    >>> short, long = Candidate("a", -1.2, 10), Candidate("b", -2.0, 40)
    >>> [candidate.text for candidate in rank_candidates([short, long])]
    ['b', 'a']
    """
    return sorted(candidates, key=lambda candidate: -candidate.logprob / candidate.tokens)


def best_distinct(candidates: Iterable[Candidate], n: int) -> list[Candidate]:
    """Rank candidates, leave out texts that a better one has already, and keep the best n.

    >>> texts = [Candidate("a", -1.0, 10), Candidate("b", -2.0, 10), Candidate("a", -1.0, 10)]
    >>> [candidate.text for candidate in best_distinct(texts, 5)]
    ['a', 'b']
    """
    best: dict[str, Candidate] = {}
    for candidate in rank_candidates(candidates):
        best.setdefault(candidate.text, candidate)
    return list(best.values())[:n]


class Generator(Protocol):
    """What writes CRPs."""

    @property
    def name(self) -> str:
        """The model and adapter, for reports."""

    def generate(
        self, requests: Sequence[Request], n: int = DEFAULT_BEAMS
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request, best first.

        Args:
            requests: Written for together; how many fit is the caller's to know.
            n: Candidates a question.

        Raises:
            ModelError: The model failed.
            GraphError: The graph that decoding asks does not answer.
        """


def write_apart(
    generate: Callable[[Sequence[Request]], Sequence[Sequence[Candidate]]],
    requests: Sequence[Request],
) -> list[Sequence[Candidate] | GraphError]:
    """Have CRPs written for requests together, or apart where the graph fails for one of them.

    Returns:
        For each request its candidates, or why the graph, which decoding asks, failed for it.

    Raises:
        EndpointDown: The graph is gone.
        ModelError: The model failed.
    """
    try:
        return list(generate(requests))
    except EndpointDown:
        raise
    except GraphError as error:
        if len(requests) == 1:
            return [error]
        return [written for request in requests for written in write_apart(generate, [request])]


class NoPaths:
    """Stands in where paths are found without a small model: it writes none."""

    name = "no small model"

    def generate(
        self, requests: Sequence[Request], n: int = DEFAULT_BEAMS
    ) -> list[list[Candidate]]:
        """Write nothing."""
        return [[] for _ in requests]


@dataclass(frozen=True, slots=True)
class SavedBeams:
    """Stands in where every candidate was written before; it writes none."""

    name: str

    def generate(
        self, requests: Sequence[Request], n: int = DEFAULT_BEAMS
    ) -> list[list[Candidate]]:
        """Refuse to write, unless nothing is asked for."""
        if requests:
            raise ModelError(f"{self.name} holds no paths for {requests[0].question!r}")
        return []
