"""Execute candidates: which is reachable, which answers, and how far it must be relaxed for that.

Candidates are tried in the model's order. The first whose main path exists and whose full query has
answers wins; only when none has are the reachable ones relaxed, one after the other. Where none
answers even so, the unreachable ones are told where they break. A query that fails costs its
candidate, not the question.

Source: RouterKGQA §3.2 (reachability) and §3.4 (execution).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kbqa.engine.answer import Beam, Result
from kbqa.engine.clock import Clock
from kbqa.engine.generate import Candidate
from kbqa.engine.ground import Grounder, Grounding, ungrounded_entities
from kbqa.engine.join_start import choose_start
from kbqa.engine.reach import find_break, is_reachable
from kbqa.kb.graph import Graph, Table
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.errors import GraphError, InputError
from kbqa.sparql.relax import Relaxation, relaxations
from kbqa.sparql.text import read_crp

MAX_ANSWERS = 10_000


@dataclass(frozen=True, slots=True)
class Execution:
    """What executing a question's candidates came to.

    Attributes:
        result: The CRP that answered, or None.
        table: Its rows, of one column.
        beams: The candidates looked at, in order.
    """

    result: Result | None
    table: Table
    beams: tuple[Beam, ...]


_NO_ROWS = Table(("x",), ())


class _Attempt(NamedTuple):
    """What became of a candidate, and its first reachable reading, or its best where none is."""

    beam: Beam
    grounding: Grounding | None = None


class Executor:
    """Executes the candidates of one question."""

    def __init__(self, graph: Graph, grounder: Grounder, clock: Clock, timeout_s: float) -> None:
        self._graph, self._grounder, self._clock = graph, grounder, clock
        self._timeout_s = timeout_s

    def execute(self, candidates: Sequence[Candidate], *, relax: bool = True) -> Execution:
        """Try candidates until one answers; see the module's docstring for the order.

        Args:
            candidates: Best first.
            relax: Drop constraints where nothing satisfies all; otherwise that is no answer.
        """
        beams: list[Beam] = []
        reachable: list[tuple[int, Grounding]] = []
        unreachable: list[tuple[int, Grounding]] = []
        for number, candidate in enumerate(candidates):
            beam, grounding = self._reach(candidate)
            beams.append(beam)
            if grounding is None:
                continue
            if beam.fate == "unreachable":
                unreachable.append((number, grounding))
                continue
            reachable.append((number, grounding))
            if not grounding.unlinked:
                full = next(relaxations(grounding.crp))
                if (execution := self._run(number, grounding, full, beams)) is not None:
                    return execution
        for number, grounding in reachable if relax else ():
            for relaxation in _relaxed(grounding):
                if (execution := self._run(number, grounding, relaxation, beams)) is not None:
                    return execution
        self._tell_breaks(unreachable, beams)
        return Execution(None, _NO_ROWS, tuple(beams))

    def _reach(self, candidate: Candidate) -> _Attempt:
        """Ground a candidate and find the first reading whose main path exists."""
        text, logprob = candidate.text, candidate.logprob
        try:
            crp, problems = read_crp(text)
            with self._clock.stage("ground"):
                groundings = self._grounder.ground(crp)
            if not groundings:
                return _Attempt(Beam(text, logprob, "unlinked", f"no entity for {crp.topic}"))
            unknown = (f"no entity is called {name!r}" for name in groundings[0].unlinked)
            problem = "; ".join((*problems, *unknown)) or None
            with self._clock.stage("reach"):
                for grounding in groundings:
                    if is_reachable(self._graph, grounding.crp, self._timeout_s):
                        return _Attempt(Beam(text, logprob, "reachable", problem), grounding)
            return _Attempt(Beam(text, logprob, "unreachable", problem), groundings[0])
        except InputError as error:
            return _Attempt(Beam(text, logprob, "unreadable", str(error)))
        except GraphError as error:
            return _Attempt(Beam(text, logprob, "failed", str(error)))

    def _tell_breaks(self, unreachable: Sequence[tuple[int, Grounding]], beams: list[Beam]) -> None:
        """Add to the beams where their paths break, in the time that one query has."""
        ends_at = time.monotonic() + self._timeout_s
        with self._clock.stage("reach"):
            for number, grounding in unreachable:
                if (left_s := ends_at - time.monotonic()) <= 0:
                    return
                where = find_break(self._graph, grounding.crp, left_s)
                problem = "; ".join(filter(None, (where, beams[number].problem)))
                beams[number] = replace(beams[number], problem=problem)

    def _run(
        self, number: int, grounding: Grounding, relaxation: Relaxation, beams: list[Beam]
    ) -> Execution | None:
        try:
            with self._clock.stage("execute"):
                sparql = compile_crp(relaxation.crp, choose_start(self._graph, relaxation.crp))
                table = self._graph.select(sparql, timeout_s=self._timeout_s, limit=MAX_ANSWERS)
        except (GraphError, InputError) as error:
            beam = beams[number]
            beams[number] = Beam(beam.text, beam.logprob, "failed", str(error))
            return None
        if not table.rows:
            return None
        result = Result(
            beam=number,
            crp=grounding.crp,
            executed=relaxation.crp,
            level=relaxation.level,
            dropped=relaxation.dropped,
            sparql=sparql,
        )
        return Execution(result, table, tuple(beams))


def _relaxed(grounding: Grounding) -> Iterator[Relaxation]:
    """Yield the relaxed forms in which every entity is grounded."""
    steps = relaxations(grounding.crp, grounding.trust)
    next(steps)
    for step in steps:
        if not ungrounded_entities(step.crp):
            yield step
