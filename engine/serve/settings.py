"""How the service answers."""

from dataclasses import dataclass

from kbqa.engine.answer import UNSURE_BELOW

MAX_QUESTION = 1000
"""Bytes of a question in UTF-8: the prompt of the shipped model takes no more. A rare character may
be as many tokens as it has bytes."""

MAX_PATH = 8000
"""Characters of a path."""

MAX_HOPS = 20
"""Hops of a path, those of its conditions included: no known question takes more than 7."""

MAX_QUERY = 20_000
"""Characters of somebody's SPARQL query."""

MAX_CONVERTED = 4000
"""Characters of a query that is to become a path: the parser takes up to a millisecond for each."""

MAX_ROWS = 10_000
"""Rows of its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the service answers.

    Attributes:
        queue: Questions that may be under way besides those of a batch; more are refused.
        batch_size: Questions that are written for at once, at most.
        answer_threads: Questions whose paths are run at once.
        deadline_s: Seconds that a question may take in all, waiting included.
        query_timeout_s: Seconds that somebody's own SPARQL query or path may take.
        query_workers: Such queries and paths that run at once.
        unsure_below: The confidence below which an answer is a guess, for `/api/v1/info`.
        cached_answers: Answers that are remembered.
    """

    queue: int = 12
    batch_size: int = 8
    answer_threads: int = 4
    deadline_s: float = 60.0
    query_timeout_s: float = 10.0
    query_workers: int = 1
    unsure_below: float = UNSURE_BELOW
    cached_answers: int = 500
