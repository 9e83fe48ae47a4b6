"""Run CRPs that are already written on a graph, without a model.

Grounding, linking and relaxation are those of `kbqa eval`. Where all entities of a row's CRPs are
known by their mids, its question is not linked.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from kbqa.engine.answer import Beam, term_text
from kbqa.engine.clock import Clock
from kbqa.engine.crp_records import written_text
from kbqa.engine.crp_tools import Row, RowTool
from kbqa.engine.execute import Execution, Executor
from kbqa.engine.generate import Candidate
from kbqa.engine.ground import Grounder, name_topics, ungrounded_entities
from kbqa.engine.linker import LinkedEntity, Linker
from kbqa.engine.questions import topic_entities
from kbqa.kb.entity_search import Names
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import CrpSyntaxError, InputError
from kbqa.sparql.text import read_crp
from kbqa.sparql.words import describe_dropped


@dataclass(frozen=True, slots=True)
class CrpRunner:
    """Runs the CRPs of rows.

    Attributes:
        graph: The graph.
        names: Its names.
        linker: Links the rows' questions to it.
        timeout_s: Seconds for each query.
        gold_entities: Bind names to the row's topic entities first.
        relax: Drop constraints where nothing satisfies all.
    """

    graph: Graph
    names: Names
    linker: Linker
    timeout_s: float
    gold_entities: bool = False
    relax: bool = True

    @property
    def tool(self) -> RowTool:
        """The tool that answers rows by running their CRPs."""
        blank = {
            "answers": (),
            "truncated": False,
            "level": None,
            "dropped": (),
            "sparql": None,
            "beam": None,
            "problems": (),
        }
        return RowTool(blank, self._answer)

    def _answer(self, row: Row, answered: dict[str, object]) -> None:
        texts = _texts(row)
        execution = self._execute(row, texts)
        answered["problems"] = [
            _problem(number, beam)
            for number, beam in enumerate(execution.beams, 1)
            if beam.problem is not None or beam.fate != "reachable"
        ]
        result = execution.result
        if result is None:
            answered["error"] = _failure(execution.beams)
            return
        terms = (cells[0] for cells in execution.table.rows)
        answered["answers"] = [term_text(term) for term in terms if term is not None]
        answered["truncated"] = execution.table.truncated
        answered["level"] = result.level
        answered["dropped"] = describe_dropped(result.dropped, result.crp)
        answered["sparql"] = result.sparql
        answered["beam"] = result.beam

    def _execute(self, row: Row, texts: Sequence[str]) -> Execution:
        linked: list[LinkedEntity] = []
        if isinstance(question := row.get("question"), str) and any(map(_has_names, texts)):
            linked = self.linker.link(question)
        gold = name_topics(self.graph, _topics(row)) if self.gold_entities else []
        grounder = Grounder(self.graph, self.names, linked, gold)
        executor = Executor(self.graph, grounder, Clock(), self.timeout_s)
        # What is handed in is not doubted.
        candidates = [Candidate(text, logprob=0.0, tokens=0) for text in texts]
        return executor.execute(candidates, relax=self.relax)


def _texts(row: Row) -> list[str]:
    """Take the CRPs from a row: texts, or records as `kbqa crp generate` writes them."""
    crps = row["crps"] if "crps" in row else [row.get("crp")]
    if isinstance(crps, list):
        with suppress(AttributeError, TypeError):
            return [crp if isinstance(crp, str) else written_text(crp) for crp in crps]
    raise InputError('the row has neither a text "crp" nor a list of texts or records "crps"')


def _topics(row: Row) -> Sequence[Entity]:
    try:
        return topic_entities(row)
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f'"topic_entities" is no list of {{"mid", "name"}} ({error!r})') from None


def _has_names(text: str) -> bool:
    try:
        return bool(ungrounded_entities(read_crp(text).crp))
    except CrpSyntaxError:
        return False


def _problem(number: int, beam: Beam) -> str:
    return f"path {number}, {beam.fate}" + (f": {beam.problem}" if beam.problem else "")


def _failure(beams: Sequence[Beam]) -> str | None:
    """Say what kept the CRPs from being tried; that those tried have no answers is a result."""
    fates = {beam.fate for beam in beams}
    if "failed" not in fates and not fates.isdisjoint({"reachable", "unreachable"}):
        return None
    problems = (
        _problem(number, beam)
        for number, beam in enumerate(beams, 1)
        if beam.fate == "failed" or "failed" not in fates
    )
    return next(problems, None)
