"""Find what the gold query of a question matches in a graph."""

from dataclasses import dataclass

from kbqa.engine.running.evidence import Triple, find_matches
from kbqa.kb.graph import Graph
from kbqa.sparql.compiler.compile import compile_crp
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import GraphError, InputError, KbqaError
from kbqa.sparql.terms import Term

MAX_ANSWERS = 50
"""Gold answers whose triples are looked up; few questions have more."""

_MAX_MATCHES = 1000
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Gold:
    """What a gold query matches.

    Attributes:
        answers: Its first answers, at most `MAX_ANSWERS`.
        matches: The ways in which it matches them, each as its triples.
    """

    answers: tuple[Term, ...]
    matches: tuple[tuple[Triple, ...], ...]


class NoGold(KbqaError):
    """A gold query finds nothing; the message is the reason, the same for all such queries."""


def find_gold(graph: Graph, crp: Crp) -> Gold:
    """Run a gold query, and find the triples that it matches.

    Raises:
        NoGold: It fails, or it has no answers in the graph.
    """
    try:
        table = graph.select(compile_crp(crp), timeout_s=_TIMEOUT_S, limit=MAX_ANSWERS)
        answers = [row[0] for row in table.rows if row[0] is not None]
        matches = find_matches(graph, crp, answers, _TIMEOUT_S, _MAX_MATCHES) if answers else []
    except (GraphError, InputError) as error:
        raise NoGold(f"its query fails: {type(error).__name__}") from error
    matches = [match for match in dict.fromkeys(matches) if match]
    if not matches:
        raise NoGold("its query finds nothing in the graph")
    return Gold(tuple(answers), tuple(matches))
