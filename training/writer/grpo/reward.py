"""The reward of a path: the F1 of what it answers, less a little for relaxation and for length.

Paths are run as `kbqa eval` runs them: their names are grounded, their queries executed, and
constraints relaxed if nothing satisfies all of them. The deductions are shares of the F1, so among
paths that are all wrong none is better than another.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from kbqa.engine.evaluation.scores.by_kind import candidate_f1
from kbqa.engine.linking.ground import Grounder
from kbqa.engine.linking.linker import Linker
from kbqa.engine.method import Clock
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.running.execute import Executor
from kbqa.engine.running.tried import Tried
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import Names
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import DeadlineExceeded, EndpointDown, GraphError
from kbqa.training.writer.grpo.config import GrpoConfig

logger = logging.getLogger(__name__)


class Rewarded(NamedTuple):
    """What a path earns: its reward, and the F1 that it is made from; both in [0, 1]."""

    reward: float
    f1: float


NOTHING = Rewarded(0.0, 0.0)


class RewardFunction:
    """Rewards the paths of questions; each text of a question is run once.

    Args:
        graph: The graph.
        names: Its names.
        linker: Links questions to it, because names in paths are compared with those in questions.
        timeout_s: Seconds for each query, and for each path in all. A slower path earns nothing.
        config: Has the deductions.
    """

    def __init__(
        self, graph: Graph, names: Names, linker: Linker, timeout_s: float, config: GrpoConfig
    ) -> None:
        self._graph, self._names, self._linker = graph, names, linker
        self._timeout_s, self._config = timeout_s, config
        self._known: dict[tuple[str, str], Rewarded] = {}

    def reward(self, question: Question, candidates: Sequence[Candidate | None]) -> list[Rewarded]:
        """Reward the paths written for a question. An unfinished one, None, earns nothing.

        Raises:
            EndpointDown: Nothing answers at the graph's endpoint.
        """
        new = {
            each.text: each
            for each in candidates
            if each is not None and (question.id, each.text) not in self._known
        }
        if new:
            try:
                linked = self._linker.link(question.text)
            except EndpointDown:
                raise
            except GraphError as error:
                logger.warning("no path is run for %s: %s", question.id, error)
                return [NOTHING] * len(candidates)
            grounder = Grounder(self._graph, self._names, linked, question.topics)
            for text, candidate in new.items():
                self._known[question.id, text] = self._run(question, grounder, candidate)
        return [
            NOTHING if each is None else self._known[question.id, each.text] for each in candidates
        ]

    def _run(self, question: Question, grounder: Grounder, candidate: Candidate) -> Rewarded:
        clock = Clock(deadline_s=self._timeout_s)
        executor = Executor(self._graph, grounder, clock, self._timeout_s)
        try:
            [tried] = executor.run_all([candidate])
        except DeadlineExceeded:
            return NOTHING
        f1 = candidate_f1(tried, question)
        return Rewarded(f1 * max(0.0, 1.0 - self._cost(tried)), f1)

    def _cost(self, tried: Tried) -> float:
        """Return the share of its F1 that a path loses."""
        if tried.crp is None or tried.relaxation is None:
            return 0.0
        relaxed = self._config.relaxed_cost if tried.relaxation.level != "full" else 0.0
        return relaxed + self._config.part_cost * _parts(tried.crp)


def _parts(crp: Crp) -> int:
    """Count the hops of the main path, the constraints and the ordering of a CRP."""
    return len(crp.path) + sum(1 for _ in crp.all_constraints()) + (crp.order is not None)
