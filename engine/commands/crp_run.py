"""Run given CRPs on a graph, without a model.

Grounding, linking and relaxation are those of `kbqa eval`. If all entities of a row's CRPs are
given by their mids, its question is not linked.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from kbqa.engine.answer import term_text
from kbqa.engine.asked import Clock
from kbqa.engine.commands.crp import Row, RowTool
from kbqa.engine.linking.ground import Grounder, name_topics, ungrounded_entities
from kbqa.engine.linking.linker import LinkedEntity, Linker
from kbqa.engine.questions.question_sets import topic_entities
from kbqa.engine.running.confidence import Execution, Tried
from kbqa.engine.running.run import Executor
from kbqa.engine.writing.generate import Candidate, written_text
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import Names
from kbqa.sparql.crp import Entity
from kbqa.sparql.english import describe_dropped
from kbqa.sparql.errors import CrpSyntaxError, InputError
from kbqa.sparql.forms import read_crp


@dataclass(frozen=True, slots=True)
class CrpRunner:
    """Runs the CRPs of rows.

    Attributes:
        graph: The graph.
        names: Its names.
        linker: Links the rows' questions to it.
        timeout_s: Seconds for each query.
        gold_entities: Match names to the row's topic entities first.
        relax: Drop constraints if nothing satisfies all of them.
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
            "boolean": None,
            "count": None,
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
            _problem(number, tried)
            for number, tried in enumerate(execution.tried, 1)
            if tried.problem is not None or tried.fate != "reachable"
        ]
        found = execution.answering
        if found is None or found.crp is None or found.relaxation is None or found.table is None:
            answered["error"] = _failure(execution.tried)
            return
        if found.boolean is None:
            answered["answers"] = [term_text(term) for term in found.terms]
            answered["truncated"] = found.table.truncated
        answered["boolean"] = found.boolean
        answered["count"] = found.count
        answered["level"] = found.relaxation.level
        answered["dropped"] = describe_dropped(found.relaxation.dropped, found.crp)
        answered["sparql"] = found.sparql
        answered["beam"] = execution.best

    def _execute(self, row: Row, texts: Sequence[str]) -> Execution:
        linked: list[LinkedEntity] = []
        if isinstance(question := row.get("question"), str) and any(map(_has_names, texts)):
            linked = self.linker.link(question)
        gold = name_topics(self.graph, _topics(row)) if self.gold_entities else []
        grounder = Grounder(self.graph, self.names, linked, gold)
        executor = Executor(self.graph, grounder, Clock(), self.timeout_s)
        # Given CRPs have no probabilities.
        candidates = [Candidate(text, logprob=0.0, tokens=0) for text in texts]
        return executor.execute(candidates, relax=self.relax)


def _texts(row: Row) -> list[str]:
    """Return the CRPs of a row: texts, or records as `kbqa crp generate` writes them."""
    crps = row["crps"] if "crps" in row else [row.get("crp")]
    if isinstance(crps, list):
        with suppress(AttributeError, TypeError):
            return [crp if isinstance(crp, str) else written_text(crp) for crp in crps]
    raise InputError('the row needs a text "crp", or a list "crps" of texts or records')


def _topics(row: Row) -> Sequence[Entity]:
    try:
        return topic_entities(row)
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f'"topic_entities" is not a list of {{"mid", "name"}}: {error}') from None


def _has_names(text: str) -> bool:
    try:
        return bool(ungrounded_entities(read_crp(text).crp))
    except CrpSyntaxError:
        return False


def _problem(number: int, tried: Tried) -> str:
    return f"path {number}, {tried.fate}" + (f": {tried.problem}" if tried.problem else "")


def _failure(paths: Sequence[Tried]) -> str | None:
    """Return why no CRP could be tried; None if one was, even if it had no answers."""
    fates = {tried.fate for tried in paths}
    if "failed" not in fates and not fates.isdisjoint({"reachable", "unreachable"}):
        return None
    problems = (
        _problem(number, tried)
        for number, tried in enumerate(paths, 1)
        if tried.fate == "failed" or "failed" not in fates
    )
    return next(problems, None)
