"""Run a path that a person wrote, whatever the engine's method is, with its proof.

The path is grounded, run and relaxed as a candidate of the small model is, but it is taken at its
word: its names are looked up, and nothing that the question is about stands in for them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kbqa.engine.answer import Answer, WhyNot
from kbqa.engine.linking.ground import Grounder
from kbqa.engine.method import Asked
from kbqa.engine.running.evidence import prove_answer
from kbqa.engine.running.execute import Executor
from kbqa.engine.running.tried import Tried, describe_found, path_record, with_names
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph
from kbqa.kb.names.keys import normalise
from kbqa.kb.names.search import Names
from kbqa.sparql.crp import Crp, CrpReading, Entity
from kbqa.sparql.forms import read_crp, render_crp


@dataclass(frozen=True, slots=True)
class GivenTrace:
    """How a path that a person wrote fared."""

    tried: Tried

    @property
    def _found(self) -> Tried | None:
        return None if self.tried.table is None else self.tried

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record, with the path as the only candidate."""
        return {
            **path_record(self._found),
            "beam": None if self._found is None else 0,
            "beams": [self.tried.to_dict("given")],
        }

    def describe(self) -> list[str]:
        """Return the path in English, and how far it was relaxed."""
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        if self._found is None or self._found.relaxation is None:
            yield "The path as it was read:"
            yield from (f"  {line}" for line in self.tried.candidate.text.splitlines())
            return
        yield from describe_found(self._found, "Of the path that was given")
        yield f"The path was given, relaxation: {self._found.relaxation.level}."


def read_given(path: str | Crp) -> CrpReading:
    """Read a path in either text form, or take a CRP as it is.

    Raises:
        CrpSyntaxError: The text cannot be read.
    """
    return CrpReading(path, ()) if isinstance(path, Crp) else read_crp(path)


def run_given(
    asked: Asked, reading: CrpReading, graph: Graph, names: Names, timeout_s: float, *, relax: bool
) -> Answer:
    """Run a path and return what it says, with its proof.

    Args:
        asked: The question, which may be empty. Where several entities have a name of the path, it
            means one of the given ones, or else the one that the question is likely about.
        reading: The path.
        graph: Where it is run.
        names: The graph's names.
        timeout_s: Seconds for each query.
        relax: Drop constraints if nothing satisfies all of them.

    Raises:
        EndpointDown: Nothing answers at the graph's endpoint.
        DeadlineExceeded: The question's deadline has passed.
    """
    graph = asked.bounded(graph)
    given = {normalise(entity.name): entity.mid for entity in asked.given if entity.name}

    def chosen(entity: Entity) -> Entity:
        return entity if entity.mid else replace(entity, mid=given.get(normalise(str(entity))))

    crp = reading.crp.with_entities(chosen)
    written = {normalise(str(entity)) for entity in crp.entities()}
    linked = [e for e in asked.linked if written & {normalise(e.name), normalise(e.mention)}]
    grounder = Grounder(graph, names, linked)
    executor = Executor(graph, grounder, asked.clock, timeout_s, question=asked.question)
    # What a person writes has no probability.
    candidate = Candidate(render_crp(crp), logprob=0.0, tokens=0)
    execution = with_names(graph, executor.execute([candidate], relax=relax))
    [tried] = execution.tried
    tried = replace(tried, problem=_joined(*reading.problems, tried.problem))
    trace = GivenTrace(tried)
    if execution.answering is None:
        why_not = _why_not(tried)
        return Answer(
            question=asked.question,
            answers=(),
            trace=trace,
            linked=asked.linked,
            problem=why_not.problem,
            reason=why_not.reason,
            seconds=asked.clock.seconds,
        )
    answer = prove_answer(asked, graph, tried, trace, "given", timeout_s)
    return replace(answer, problem=_joined(tried.problem, answer.problem))


def _joined(*problems: str | None) -> str | None:
    return "; ".join(filter(None, problems)) or None


def _why_not(tried: Tried) -> WhyNot:
    """Say why a path has no answer."""
    why = f": {tried.problem}" if tried.problem else ""
    match tried.fate:
        case "failed":
            return WhyNot("graph", f"the graph could not run the path{why}")
        case "reachable":
            return WhyNot("empty", f"the path exists, but nothing on it leads to an answer{why}")
        case "unfit":
            return WhyNot("unfit", f"the path answers another question{why}")
        case "unreachable":
            return WhyNot("unreachable", f"the graph has no such path{why}")
        case "unlinked":
            return WhyNot("unlinked", f"the path cannot start{why}")
        case "unreadable":
            return WhyNot("unreadable", f"the path cannot be written as a query{why}")
