"""Execute candidates: which is reachable, which answers, and how far it must be relaxed for that.

Candidates are tried in the model's order. The first whose main path exists and whose full query has
answers wins; only when none has are the reachable ones relaxed, one after the other. A query that
fails costs its candidate, not the question.

Source: RouterKGQA §3.2 (reachability) and §3.4 (execution).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbqa.engine.answer import Beam, Result
from kbqa.engine.clock import Clock
from kbqa.engine.generate import Candidate
from kbqa.engine.ground import Grounder, Grounding, ungrounded_entities
from kbqa.kb.graph import Graph, Table
from kbqa.sparql.compile import compile_crp, compile_skeleton
from kbqa.sparql.errors import GraphError, InputError
from kbqa.sparql.relax import Relaxation, relaxations
from kbqa.sparql.routerkgqa import parse_routerkgqa

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


class Executor:
    """Executes the candidates of one question."""

    def __init__(self, graph: Graph, grounder: Grounder, clock: Clock, timeout_s: float) -> None:
        self._graph, self._grounder, self._clock = graph, grounder, clock
        self._timeout_s = timeout_s

    def execute(self, candidates: Sequence[Candidate]) -> Execution:
        """Try candidates until one answers; see the module's docstring for the order."""
        beams: list[Beam] = []
        reachable: list[tuple[int, Grounding]] = []
        for number, candidate in enumerate(candidates):
            beam, grounding = self._reach(candidate)
            beams.append(beam)
            if grounding is None:
                continue
            reachable.append((number, grounding))
            if not grounding.unlinked:
                full = next(relaxations(grounding.crp))
                if (execution := self._run(number, grounding, full, beams)) is not None:
                    return execution
        for number, grounding in reachable:
            for relaxation in _relaxed(grounding):
                if (execution := self._run(number, grounding, relaxation, beams)) is not None:
                    return execution
        return Execution(None, _NO_ROWS, tuple(beams))

    def _reach(self, candidate: Candidate) -> tuple[Beam, Grounding | None]:
        """Ground a candidate and find the first reading whose main path exists."""
        text, logprob = candidate.text, candidate.logprob
        try:
            crp, problems = parse_routerkgqa(text)
            with self._clock.stage("ground"):
                groundings = self._grounder.ground(crp)
            if not groundings:
                return Beam(text, logprob, "unlinked", f"no entity for {crp.topic}"), None
            unknown = (f"no entity is called {name!r}" for name in groundings[0].unlinked)
            problem = "; ".join((*problems, *unknown)) or None
            with self._clock.stage("reach"):
                for grounding in groundings:
                    query = compile_skeleton(grounding.crp)
                    if self._graph.ask(query, timeout_s=self._timeout_s):
                        return Beam(text, logprob, "reachable", problem), grounding
            return Beam(text, logprob, "unreachable", problem), None
        except InputError as error:
            return Beam(text, logprob, "unreadable", str(error)), None
        except GraphError as error:
            return Beam(text, logprob, "failed", str(error)), None

    def _run(
        self, number: int, grounding: Grounding, relaxation: Relaxation, beams: list[Beam]
    ) -> Execution | None:
        try:
            with self._clock.stage("execute"):
                sparql = compile_crp(relaxation.crp)
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
    steps = relaxations(grounding.crp)
    next(steps)
    for step in steps:
        if not ungrounded_entities(step.crp):
            yield step
