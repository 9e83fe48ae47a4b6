"""The way of a question: link, generate, ground, reach, repair if need be, execute, prove."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kbqa.engine.answer import Answer, AnswerEntity, EvidenceTriple, Stage, term_text
from kbqa.engine.chat.counted_chat import CountedChat
from kbqa.engine.chat.model import Usage
from kbqa.engine.clock import Clock
from kbqa.engine.confidence import ConfidenceModel
from kbqa.engine.evidence import find_evidence, name_terms
from kbqa.engine.execute import Execution, Executor, Rules
from kbqa.engine.generate import DEFAULT_BEAMS, Candidate, Generator, Request
from kbqa.engine.ground import Grounder, name_topics
from kbqa.engine.linker import LinkedEntity, Linker
from kbqa.engine.repair.repair import Repair
from kbqa.engine.router import Router
from kbqa.kb.entity_search import open_names
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import GraphError
from kbqa.sparql.terms import Term
from kbqa.sparql.text import render_crp

_UNLIKELY = 0.001
"""Of the likeliest entity's probability: those below it start no path. On samples of webqsp.train
and cwq.dev this leaves 4.0 and 3.4 of the ten entities that the linker lists, and the gold one, if
it is among these, in 100 % and 98.5 % of the questions (n = 691 and 649)."""


class Engine:
    """Answers questions over one graph with one small model.

    Args:
        graph: The graph.
        generator: What writes CRPs.
        n: Candidates a question.
        timeout_s: Seconds for each query.
        rules: Which of the candidates answers, and how; by default the shipped confidence
            model chooses.
        router: Repairs what the small model got wrong; by default nothing does.

    Raises:
        StoreError: The store has no name index.
        ModelError: The linker's or the confidence model cannot be read.
    """

    def __init__(
        self,
        graph: Graph,
        generator: Generator,
        *,
        n: int = DEFAULT_BEAMS,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        rules: Rules | None = None,
        router: Router | None = None,
    ) -> None:
        self._graph, self._generator = graph, generator
        self._rules = rules or Rules(ConfidenceModel.load())
        self._router = router
        self._names = open_names(graph, timeout_s)
        self._linker = Linker(graph, self._names)
        self._n, self._timeout_s = n, timeout_s

    def ask(self, question: str, topics: Sequence[Entity] = ()) -> Answer:
        """Answer a question.

        Args:
            question: In natural language.
            topics: What it is about, if that is known; names in the CRPs are bound to these first.

        Returns:
            The answer; without answers where no path or nothing on it was found, which
            `Answer.problem` then tells.

        Raises:
            ModelError: The model failed.
            GraphError: The graph does not answer at all.
        """
        clock = Clock()
        given = name_topics(self._graph, topics)
        with clock.stage("link"):
            linked = self._linker.link(question)
        request = Request(question, tuple(given) or _as_topics(linked))
        with clock.stage("generate"):
            [candidates] = self._generator.generate([request], self._n)
        return self._answer(question, candidates, given, linked, clock, self.new_chat())

    def generate(self, requests: Sequence[Request]) -> list[list[Candidate]]:
        """Write the candidates of many questions at once, for `answer`.

        Args:
            requests: Where one names no topics, those that its question mentions are taken.
        """
        return self._generator.generate([self._with_topics(r) for r in requests], self._n)

    def new_chat(self) -> CountedChat | None:
        """Make the general model that one question asks; None where none repairs."""
        return None if self._router is None else self._router.new_chat()

    def answer(
        self,
        question: str,
        candidates: Sequence[Candidate],
        topics: Sequence[Entity] = (),
        chat: CountedChat | None = None,
    ) -> Answer:
        """Answer a question whose candidates have been written before; otherwise as `ask`.

        Args:
            question: In natural language.
            candidates: Best first.
            topics: As for `ask`.
            chat: From `new_chat`, for who must know what was paid for even where this raises.
        """
        clock = Clock()
        with clock.stage("link"):
            linked = self._linker.link(question)
        given = name_topics(self._graph, topics)
        return self._answer(question, candidates, given, linked, clock, chat or self.new_chat())

    def close(self) -> None:
        """Close the graph's names, but not the graph; the engine is not used afterwards."""
        self._names.close()

    def _with_topics(self, request: Request) -> Request:
        given = name_topics(self._graph, request.topics)
        topics = tuple(given) or _as_topics(self._linker.link(request.question))
        return replace(request, topics=topics)

    def _answer(
        self,
        question: str,
        candidates: Sequence[Candidate],
        topics: Sequence[Entity],
        linked: Sequence[LinkedEntity],
        clock: Clock,
        chat: CountedChat | None,
    ) -> Answer:
        grounder = Grounder(self._graph, self._names, linked, topics)
        executor = Executor(self._graph, grounder, clock, self._timeout_s, self._rules)
        execution = executor.execute(candidates)
        routed = self._route(question, execution, grounder, topics, linked, clock, chat)
        execution = routed.execution
        terms = [row[0] for row in execution.table.rows if row[0] is not None]
        evidence: tuple[EvidenceTriple, ...] = ()
        names: Mapping[Term, str] = {}
        problem = None
        if execution.result is None:
            problem = _why_not([beam.fate for beam in execution.beams], bool(linked))
        else:
            with clock.stage("prove"):
                try:
                    names = name_terms(self._graph, terms)
                    evidence = find_evidence(
                        self._graph, execution.result.executed, terms, self._timeout_s
                    )
                except GraphError as error:
                    problem = f"the proof could not be fetched: {error}"
        return Answer(
            question=question,
            answers=tuple(AnswerEntity(term, names.get(term, term_text(term))) for term in terms),
            result=execution.result,
            evidence=evidence,
            linked=tuple(linked),
            beams=execution.beams,
            seconds=clock.seconds,
            problem=problem,
            truncated=execution.table.truncated,
            stage=None if execution.result is None else routed.stage,
            repair=routed.repair,
            usage=Usage() if chat is None else chat.usage,
        )

    def _route(
        self,
        question: str,
        execution: Execution,
        grounder: Grounder,
        topics: Sequence[Entity],
        linked: Sequence[LinkedEntity],
        clock: Clock,
        chat: CountedChat | None,
    ) -> "_Routed":
        """Repair what was executed, if need be; what cannot be bettered stays as it is."""
        router = self._router
        if router is None or (reason := router.reason(execution)) is None:
            return _Routed(execution)
        with clock.stage("repair"):
            repair = router.repair(question, reason, execution, topics, linked, chat)
        if repair is None or repair.crp is None or repair.is_known:
            return _Routed(execution, "specialised", repair)
        written = Candidate(render_crp(repair.crp), logprob=0.0, tokens=1)
        rules = replace(self._rules, confidence=None)
        executor = Executor(self._graph, grounder, clock, self._timeout_s, rules)
        repaired = executor.execute([written])
        if repaired.result is None:
            return _Routed(execution, "specialised", repair)
        return _Routed(_appended(execution, repaired), "general", repair)


class _Routed(NamedTuple):
    """What a question came to after routing."""

    execution: Execution
    stage: Stage = "specialised"
    repair: Repair | None = None


def _appended(execution: Execution, repaired: Execution) -> Execution:
    """Put the repaired path behind those that were written; it is the one that answers."""
    assert repaired.result is not None
    return Execution(
        result=replace(repaired.result, beam=len(execution.beams)),
        table=repaired.table,
        beams=(*execution.beams, *repaired.beams),
        readings=(*execution.readings, *repaired.readings),
    )


def _as_topics(linked: Sequence[LinkedEntity]) -> tuple[Entity, ...]:
    least = _UNLIKELY * linked[0].score if linked else 0.0
    return tuple(Entity(entity.name, entity.mid) for entity in linked if entity.score >= least)


def _why_not(fates: Sequence[str], is_linked: bool) -> str:
    """Say why a question has no answer, by the candidate that came furthest."""
    if "failed" in fates:
        return "the graph did not answer in time or in form; see the beams' problems"
    if "reachable" in fates:
        return "the path exists, but nothing on it leads to an answer"
    if "unreachable" in fates:
        return "none of the model's paths exists in the graph"
    if "unlinked" in fates:
        hint = "" if is_linked else "; no name in the question is known to the graph"
        return f"no entity could be found for the model's topics{hint}. Give one with --topic MID"
    return "the model wrote nothing that can be read as a path"
