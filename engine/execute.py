"""Execute candidates: which is reachable, which answers, and how far it must be relaxed for that.

Candidates are tried in the model's order, and of each its readings in the grounder's. The first
whose main path exists and whose full query has answers wins. Only when none has are the candidates
relaxed, one after the other, each in its first reading that is reachable. Where none answers even
so, the unreachable ones are told where they break. A query that fails costs its candidate, not the
question.

Source: RouterKGQA §3.2 (reachability) and §3.4 (execution).
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from kbqa.engine.answer import Beam, Fate, Result
from kbqa.engine.clock import Clock
from kbqa.engine.generate import Candidate
from kbqa.engine.ground import Grounder, Grounding, ungrounded_entities
from kbqa.engine.join_start import choose_start
from kbqa.engine.reach import find_break, is_reachable
from kbqa.kb.graph import Graph, Table
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import Crp, Entity
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


class _Found(NamedTuple):
    """A query that answered, and its rows."""

    grounding: Grounding
    relaxation: Relaxation
    sparql: str
    table: Table


class _Attempt(NamedTuple):
    """What became of a candidate.

    Attributes:
        beam: For the trace.
        grounding: Its first reachable reading, or its best where none is; None where it has none.
        found: What answered in full, if anything did.
    """

    beam: Beam
    grounding: Grounding | None = None
    found: _Found | None = None


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
            beam, grounding, found = self._attempt(candidate)
            beams.append(beam)
            if found is not None:
                return _answered(number, found, beams)
            if grounding is not None:
                group = unreachable if beam.fate == "unreachable" else reachable
                group.append((number, grounding))
        for number, grounding in reachable if relax else ():
            for relaxation in _relaxed(grounding):
                try:
                    found = self._run(grounding, relaxation)
                except (GraphError, InputError) as error:
                    beams[number] = replace(beams[number], fate="failed", problem=str(error))
                    continue
                if found is not None:
                    return _answered(number, found, beams)
        self._tell_breaks(unreachable, beams)
        return Execution(None, _NO_ROWS, tuple(beams))

    def _attempt(self, candidate: Candidate) -> _Attempt:
        """Ground a candidate and run its reachable readings, one after the other, in full."""
        beam = Beam(candidate.text, candidate.logprob, "unlinked")
        grounding: Grounding | None = None
        try:
            crp, problems = read_crp(candidate.text)
            readings = self._readings(crp)
            if (best := next(readings, None)) is None:
                return _Attempt(replace(beam, problem=f"no entity for {crp.topic}"))
            beam = replace(beam, fate="unreachable")
            for reading in self._reachable(chain([best], readings)):
                beam = replace(beam, fate="reachable", readings=beam.readings + 1)
                grounding = grounding or reading
                if reading.unlinked:
                    break  # The other readings hold the same unknown names.
                full = next(relaxations(reading.crp))
                if (found := self._run(reading, full)) is not None:
                    return _Attempt(_told(beam, reading, problems), reading, found)
            grounding = grounding or best
            return _Attempt(_told(beam, grounding, problems), grounding)
        except InputError as error:
            fate: Fate = "failed" if grounding else "unreadable"
            return _Attempt(replace(beam, fate=fate, problem=str(error)), grounding)
        except GraphError as error:
            return _Attempt(replace(beam, fate="failed", problem=str(error)), grounding)

    def _readings(self, crp: Crp) -> Iterator[Grounding]:
        readings = self._grounder.ground(crp)
        while True:
            with self._clock.stage("ground"):
                reading = next(readings, None)
            if reading is None:
                return
            yield reading

    def _reachable(self, readings: Iterable[Grounding]) -> Iterator[Grounding]:
        """Yield the readings whose main path exists; a stand-in where no topic's before it does."""
        exists: dict[Entity, bool] = {}
        for reading in readings:
            topic = reading.crp.topic
            if topic not in exists:
                if reading.stands_in and any(exists.values()):
                    continue
                with self._clock.stage("reach"):
                    exists[topic] = is_reachable(self._graph, reading.crp, self._timeout_s)
            if exists[topic]:
                yield reading

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

    def _run(self, grounding: Grounding, relaxation: Relaxation) -> _Found | None:
        """Run the query of a reading, relaxed or not; None where it has no answer."""
        with self._clock.stage("execute"):
            sparql = compile_crp(relaxation.crp, choose_start(self._graph, relaxation.crp))
            table = self._graph.select(sparql, timeout_s=self._timeout_s, limit=MAX_ANSWERS)
        return _Found(grounding, relaxation, sparql, table) if table.rows else None


def _told(beam: Beam, reading: Grounding, problems: Iterable[str]) -> Beam:
    """Add to a beam what was wrong in reading it, and with the names of the reading that counts."""
    unknown = (f"no entity is called {name!r}" for name in reading.unlinked)
    return replace(beam, problem="; ".join((*problems, *reading.replaced, *unknown)) or None)


def _answered(number: int, found: _Found, beams: Sequence[Beam]) -> Execution:
    grounding, relaxation, sparql, table = found
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
