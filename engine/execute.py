"""Execute candidates: which is reachable, which answers, and how far it must be relaxed for that.

A candidate's readings are tried in the grounder's order; the first whose main path exists and whose
full query has answers counts. Where none has, its first reading that is reachable is relaxed step
by step. Where no candidate answers even so, the unreachable ones are told where they break. A query
that fails costs its candidate, not the question; only a graph that is gone ends it.

Which candidate answers is a matter of the rules. With a confidence model every candidate is run,
and the one whose answers are likeliest to be right wins; of its answers, those come first that
other sure candidates lead to as well. Without one they are trusted in their order: `full-first`, as
the paper's code does, the first that answers in full wins, and only when none does are they
relaxed, one after the other; `beam-first`, a better candidate that must be relaxed wins over a
worse one that answers in full.

Source: RouterKGQA §3.2 (reachability) and §3.4 (execution).
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal as Choice
from typing import NamedTuple

from kbqa.engine.answer import Beam, Fate, Result
from kbqa.engine.clock import Clock
from kbqa.engine.confidence import ConfidenceModel, Outcome, rank_outcomes
from kbqa.engine.generate import Candidate
from kbqa.engine.ground import Grounder, Grounding, ungrounded_entities
from kbqa.engine.join_start import choose_start
from kbqa.engine.reach import find_break, is_reachable
from kbqa.kb.graph import Graph, Table
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import Crp, Entity, Kind
from kbqa.sparql.errors import EndpointDown, GraphError, InputError
from kbqa.sparql.relax import Relaxation, drop_kinds, relaxations
from kbqa.sparql.terms import Term
from kbqa.sparql.text import read_crp

MAX_ANSWERS = 10_000

Order = Choice["full-first", "beam-first"]


@dataclass(frozen=True, slots=True)
class Rules:
    """How candidates are executed.

    Attributes:
        confidence: Chooses among them; see the module's docstring.
        order: In which they are trusted without it.
        by_class: Relax strings, and then numbers, only all at once, as the paper does.
        without: Classes of constraints that are left out, for ablations.
    """

    confidence: ConfidenceModel | None = None
    order: Order = "full-first"
    by_class: bool = False
    without: frozenset[Kind] = frozenset()


DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Execution:
    """What executing a question's candidates came to.

    Attributes:
        result: The CRP that answered, or None.
        table: Its rows, of one column.
        beams: The candidates looked at, in order.
        readings: For each of these its first reachable reading, or its best where none is; None
            where it has none.
    """

    result: Result | None
    table: Table
    beams: tuple[Beam, ...]
    readings: tuple[Crp | None, ...]


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


class _Runs(NamedTuple):
    """What became of all candidates.

    Attributes:
        beams: For the trace.
        groundings: As in `_Attempt`.
        found: What each answered, in full or relaxed.
    """

    beams: list[Beam]
    groundings: list[Grounding | None]
    found: list[_Found | None]

    def add(self, attempt: _Attempt) -> None:
        """Append what became of the next candidate."""
        self.beams.append(attempt.beam)
        self.groundings.append(attempt.grounding)
        self.found.append(attempt.found)

    def execution(self, best: int | None) -> Execution:
        """Say what they come to if one of them is the answer, or none."""
        readings = tuple(None if each is None else each.crp for each in self.groundings)
        found = None if best is None else self.found[best]
        if best is None or found is None:
            return Execution(None, _NO_ROWS, tuple(self.beams), readings)
        result = Result(
            beam=best,
            crp=found.grounding.crp,
            executed=found.relaxation.crp,
            level=found.relaxation.level,
            dropped=found.relaxation.dropped,
            sparql=found.sparql,
        )
        return Execution(result, found.table, tuple(self.beams), readings)


class Executor:
    """Executes the candidates of one question.

    Args:
        graph: The graph.
        grounder: Of the question.
        clock: Takes the time.
        timeout_s: Seconds for each query.
        rules: Which candidate answers, and how.
    """

    def __init__(
        self,
        graph: Graph,
        grounder: Grounder,
        clock: Clock,
        timeout_s: float,
        rules: Rules = DEFAULT_RULES,
    ) -> None:
        self._graph, self._grounder, self._clock = graph, grounder, clock
        self._timeout_s, self._rules = timeout_s, rules

    def execute(self, candidates: Sequence[Candidate], *, relax: bool = True) -> Execution:
        """Find the candidate that answers; see the module's docstring for which that is.

        Args:
            candidates: Best first.
            relax: Drop constraints where nothing satisfies all; otherwise that is no answer.

        Raises:
            EndpointDown: Nobody answers at the graph's endpoint.
        """
        if self._rules.confidence is not None:
            return self._likeliest(candidates, relax, self._rules.confidence)
        return self._first(candidates, relax)

    def outcomes(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Run every candidate, relaxed where need be, and tell what became of it."""
        runs = self._run_all(candidates, relax=True)
        return [
            self._outcome(candidate, beam.fate, found)
            for candidate, beam, found in zip(candidates, runs.beams, runs.found, strict=True)
        ]

    def _likeliest(
        self, candidates: Sequence[Candidate], relax: bool, model: ConfidenceModel
    ) -> Execution:
        runs = self._run_all(candidates, relax)
        fates = [beam.fate for beam in runs.beams]
        outcomes = list(map(self._outcome, candidates, fates, runs.found))
        confidences = model.judge(outcomes)
        for number, confidence in enumerate(confidences):
            runs.beams[number] = replace(runs.beams[number], confidence=confidence)
        ranked = rank_outcomes(outcomes, confidences)
        best = next((number for number in ranked if runs.found[number] is not None), None)
        if best is None:
            self._tell_breaks(runs)
        return _ranked(runs.execution(best), outcomes, confidences)

    def _run_all(self, candidates: Sequence[Candidate], relax: bool) -> _Runs:
        runs = _Runs([], [], [])
        for number, candidate in enumerate(candidates):
            runs.add(self._attempt(candidate))
            if relax:
                self._relax(number, runs)
        return runs

    def _outcome(self, candidate: Candidate, fate: Fate, found: _Found | None) -> Outcome:
        if found is None:
            return Outcome(candidate, fate)
        grounding, relaxation, _, table = found
        return Outcome(
            candidate,
            fate,
            grounding.crp,
            relaxation.level,
            len(relaxation.dropped),
            frozenset(row[0] for row in table.rows if row[0] is not None),
            self._grounder.topic_score(grounding.crp.topic),
            self._grounder.count_mentioned(relaxation.crp),
            is_replaced=bool(grounding.replaced or grounding.unlinked),
        )

    def _first(self, candidates: Sequence[Candidate], relax: bool) -> Execution:
        runs = _Runs([], [], [])
        for number, candidate in enumerate(candidates):
            runs.add(self._attempt(candidate))
            if relax and self._rules.order == "beam-first":
                self._relax(number, runs)
            if runs.found[number] is not None:
                return runs.execution(number)
        for number in range(len(candidates)) if relax else ():
            self._relax(number, runs)
            if runs.found[number] is not None:
                return runs.execution(number)
        self._tell_breaks(runs)
        return runs.execution(None)

    def _relax(self, number: int, runs: _Runs) -> None:
        """Relax a reachable reading without answers until it has some.

        A query that fails is told of in its beam.
        """
        grounding = runs.groundings[number]
        if (
            grounding is None
            or runs.found[number] is not None
            or runs.beams[number].fate == "unreachable"
        ):
            return
        for relaxation in _relaxed(grounding, self._rules.by_class):
            try:
                runs.found[number] = self._run(grounding, relaxation)
            except EndpointDown:
                raise
            except (GraphError, InputError) as error:
                beam = runs.beams[number]
                runs.beams[number] = replace(beam, fate="failed", problem=str(error))
                continue
            if runs.found[number] is not None:
                return

    def _attempt(self, candidate: Candidate) -> _Attempt:
        """Ground a candidate and run its reachable readings, one after the other, in full."""
        beam = Beam(candidate.text, candidate.logprob, "unlinked")
        grounding: Grounding | None = None
        try:
            crp, problems = read_crp(candidate.text)
            crp = drop_kinds(crp, self._rules.without)
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
        except EndpointDown:
            raise
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

    def _tell_breaks(self, runs: _Runs) -> None:
        """Add to the beams where their paths break, in the time that one query has."""
        ends_at = time.monotonic() + self._timeout_s
        with self._clock.stage("reach"):
            for number, (beam, grounding) in enumerate(
                zip(runs.beams, runs.groundings, strict=True)
            ):
                if (left_s := ends_at - time.monotonic()) <= 0:
                    return
                if grounding is not None and beam.fate == "unreachable":
                    where = find_break(self._graph, grounding.crp, left_s)
                    problem = "; ".join(filter(None, (where, beam.problem)))
                    runs.beams[number] = replace(beam, problem=problem)

    def _run(self, grounding: Grounding, relaxation: Relaxation) -> _Found | None:
        """Run the query of a reading, relaxed or not; None where it has no answer."""
        with self._clock.stage("execute"):
            sparql = compile_crp(relaxation.crp, choose_start(self._graph, relaxation.crp))
            table = self._graph.select(sparql, timeout_s=self._timeout_s, limit=MAX_ANSWERS)
        return _Found(grounding, relaxation, sparql, table) if table.rows else None


def _ranked(
    execution: Execution, outcomes: Sequence[Outcome], confidences: Sequence[float]
) -> Execution:
    """Put the answers first that sure candidates lead to together, unless the query orders them."""
    result, table = execution.result, execution.table
    if result is None or result.executed.order is not None:
        return execution
    support: dict[Term, float] = {}
    for outcome, confidence in zip(outcomes, confidences, strict=True):
        for term in outcome.answers:
            support[term] = support.get(term, 0.0) + confidence

    def rank(row: tuple[Term | None, ...]) -> float:
        return 0.0 if row[0] is None else -support.get(row[0], 0.0)

    return replace(execution, table=replace(table, rows=tuple(sorted(table.rows, key=rank))))


def _told(beam: Beam, reading: Grounding, problems: Iterable[str]) -> Beam:
    """Add to a beam what was wrong in reading it, and with the names of the reading that counts."""
    unknown = (f"no entity is called {name!r}" for name in reading.unlinked)
    return replace(beam, problem="; ".join((*problems, *reading.replaced, *unknown)) or None)


def _relaxed(grounding: Grounding, by_class: bool) -> Iterator[Relaxation]:
    """Yield the relaxed forms in which every entity is grounded."""
    steps = relaxations(grounding.crp, grounding.trust, by_class=by_class)
    next(steps)
    for step in steps:
        if not ungrounded_entities(step.crp):
            yield step
