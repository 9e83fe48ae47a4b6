"""RouterKGQA: a small model writes paths, the graph runs them, a general model repairs.

Its stages are the paper's: 1, candidates are written (`Generator`), grounded and looked up in the
graph; 2, a question whose candidates will not do is repaired (`Repairer`); 3, the path is run and,
if nothing satisfies all of it, relaxed.

Source: RouterKGQA §3.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kbqa.engine.answer import Answer, WhyNot
from kbqa.engine.linking.ground import Grounder
from kbqa.engine.linking.linker import explain_unlinked
from kbqa.engine.linking.starts import likely_topics
from kbqa.engine.method import Asked
from kbqa.engine.methods.router.repair import Repair
from kbqa.engine.methods.router.routing import Routing
from kbqa.engine.methods.router.search.pool import PathPool
from kbqa.engine.methods.router.trace import RouterTrace, Stage
from kbqa.engine.questions.language import unlike_a_question
from kbqa.engine.resources import Resources
from kbqa.engine.running.evidence import prove_answer
from kbqa.engine.running.execute import Executor, Policy
from kbqa.engine.running.reading import CandidateReader
from kbqa.engine.running.tried import Execution, Tried, with_first_answers, with_names
from kbqa.engine.writing.generate import Candidate, Generator, NoPaths, Progress, Request
from kbqa.kb.names.search import Names
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.errors import EndpointDown, GraphError
from kbqa.sparql.forms import render_crp

if TYPE_CHECKING:  # It needs packages that a model without suggestions does not.
    from kbqa.engine.retrieval.suggesting import RelationSuggester

logger = logging.getLogger(__name__)

_SEARCHED_LIMIT_S = 5.0
"""Seconds for a query of what a search adds: what was written must not wait long for it."""


class RouterKgqa:
    """Answers questions as RouterKGQA does; `kbqa.engine.methods.router.make` makes one.

    Args:
        resources: Graph, names and limits.
        generator: Writes the candidates.
        policy: Which of the candidates answers, and how they are run.
        routing: Repairs what the small model got wrong; None if nothing does.
        pool: Finds further candidates in the graph; None if only written ones count.
        reader: Reads how well candidates fit the question; None if they are not read.
        suggester: Finds relations to suggest to the writer; None if it is shown none.
    """

    name = "router"

    def __init__(
        self,
        resources: Resources,
        generator: Generator,
        policy: Policy,
        routing: Routing | None = None,
        pool: PathPool | None = None,
        reader: CandidateReader | None = None,
        suggester: "RelationSuggester | None" = None,
    ) -> None:
        self._resources, self._generator = resources, generator
        self._policy, self._routing = policy, routing
        self._pool, self._reader, self._suggester = pool, reader, suggester
        # Without a judge the algorithm is the paper's: what was written is run as it is.
        self._schema = GraphSchema(resources.graph) if policy.confidence else None
        self.general_calls = None if routing is None else routing.general_calls

    def settings(self) -> Mapping[str, object]:
        """Return what decides the answers, for manifests."""
        policy, judge = self._policy, {}
        if self._reader is not None:  # Older runs do not have it, and stay comparable without it.
            searched = None if self._pool is None else self._pool.settings()
            judge = {"judge": {"reader": self._reader.revision, "search": searched}}
        suggested = 0 if self._suggester is None else self._generator.suggested_relations
        return {
            **judge,
            **({"suggested_relations": suggested} if suggested else {}),
            "write": not isinstance(self._generator, NoPaths),
            "order": policy.order if policy.confidence is None else "confidence",
            "confidence_model": policy.confidence and policy.confidence.digest(),
            "without": sorted(policy.without),
            "repair": None if self._routing is None else self._routing.settings(),
        }

    def write(
        self, asked: Sequence[Asked], progress: Progress | None = None
    ) -> list[list[Candidate]]:
        """Write the candidates of many questions at once; see `Method.write`."""
        requests, n = [self._request(each) for each in asked], self._resources.n
        if progress is not None:
            return self._generator.generate(requests, n, progress=progress)
        ends = [each.clock.ends_at for each in asked if each.clock.ends_at is not None]
        return self._generator.generate(requests, n, ends_at=min(ends, default=None))

    def answer(self, asked: Asked) -> Answer:
        """Answer a question; see `Method.answer`."""
        if not isinstance(self._generator, NoPaths):
            # The writing is one call: the only one, if there is but one.
            asked.budget.take() or asked.budget.take_last()
        candidates = self._candidates(asked)
        execution = self._execute(asked, candidates)
        stage: Stage = "specialised"
        repair = self._repair(asked, execution)
        if repair is not None and repair.is_new:
            repaired = _run(repair, self._executor(asked))
            # It was not written for the question, so no or 0 would only say that it does not fit.
            if repaired.terms and repaired.boolean is not False:
                tried = (*execution.tried, repaired)
                execution, stage = Execution(tried, len(tried) - 1), "general"
        return self._proven(asked, execution, stage, repair)

    def try_all(self, asked: Asked, candidates: Sequence[Candidate]) -> list[Tried]:
        """Run what was written, and what a search adds to it, and have it all read.

        Raises:
            EndpointDown: Nothing answers at the graph's endpoint.
            DeadlineExceeded: The question's deadline has passed.
        """
        executor = self._executor(asked)
        tried = executor.run_all(candidates)
        if self._pool is not None:
            found = self._searched(asked, tried, self._pool)
            searched = self._executor(asked, _SEARCHED_LIMIT_S).run_all(found)
            tried += [each for each in searched if not _narrows_nothing(each)]
        if self._reader is not None:
            tried = with_first_answers(asked.bounded(self._resources.graph), tried)
            with asked.clock.stage("read"):
                tried = self._reader.read(asked.question, tried)
        return tried

    def _execute(self, asked: Asked, candidates: Sequence[Candidate]) -> Execution:
        """Find the candidate that answers."""
        model = self._policy.confidence
        if model is None:
            return self._executor(asked).execute(candidates)
        return self._executor(asked).choose(self.try_all(asked, candidates), model)

    def _executor(self, asked: Asked, limit_s: float = math.inf) -> Executor:
        graph = asked.bounded(self._resources.graph)
        timeout_s = min(self._resources.timeout_s, limit_s)
        grounder = Grounder(graph, self._resources.names, asked.linked, asked.given)
        policy, question = self._policy, asked.question
        return Executor(graph, grounder, asked.clock, timeout_s, policy, question, self._schema)

    def _searched(
        self, asked: Asked, tried: Sequence[Tried], pool: PathPool
    ) -> Sequence[Candidate]:
        """Search for further candidates; a graph that fails at it does no harm."""
        with asked.clock.stage("search"):
            try:
                return pool.find(asked, tried)
            except EndpointDown:
                raise
            except GraphError as error:
                logger.warning("only written paths are candidates: %s", error)
                return ()

    def _request(self, asked: Asked) -> Request:
        """Return what is written for: question, topics and, if the graph finds them, relations."""
        request = Request(asked.question, asked.given or likely_topics(asked.linked))
        if self._suggester is None:
            return request
        graph = asked.bounded(self._resources.graph)
        try:
            suggested = self._suggester.suggest(request.question, request.topics, graph)
        except EndpointDown:
            raise
        except GraphError as error:
            logger.warning("no relations are suggested: %s", error)
            return request
        return replace(request, relations=suggested)

    def _candidates(self, asked: Asked) -> Sequence[Candidate]:
        """Return what was written before, or write it now."""
        if asked.candidates is not None:
            return asked.candidates
        with asked.clock.stage("write"):
            [candidates] = self.write([asked])
        for each in candidates:
            logger.info("wrote %r (%.2f)", each.text, each.logprob)
        return candidates

    def _repair(self, asked: Asked, execution: Execution) -> Repair | None:
        """Look for another path if the candidates will not do."""
        if self._routing is None or (reason := self._routing.reason(execution)) is None:
            return None
        self._routing.claim_calls(asked)
        with asked.clock.stage("repair"):
            return self._routing.repair(asked, reason, execution)

    def _proven(
        self, asked: Asked, execution: Execution, stage: Stage, repair: Repair | None
    ) -> Answer:
        """Fetch names and evidence for what was found, and put the answer together."""
        graph = asked.bounded(self._resources.graph)
        calls = None if asked.budget.limit is None else asked.budget.spent
        if (found := execution.answering) is None:
            why_not = _why_not(asked, execution.tried, self._resources.names)
            return Answer(
                question=asked.question,
                answers=(),
                trace=RouterTrace(execution.tried, None, None, repair, calls),
                linked=asked.linked,
                problem=why_not.problem,
                reason=why_not.reason,
                usage=asked.usage,
                seconds=asked.clock.seconds,
            )
        execution = with_names(graph, execution)
        trace = RouterTrace(execution.tried, execution.best, stage, repair, calls)
        return prove_answer(asked, graph, found, trace, stage, self._resources.timeout_s)


def _narrows_nothing(tried: Tried) -> bool:
    """Return whether a condition was added to a path that nothing satisfies."""
    relaxed = tried.relaxation is None or bool(tried.relaxation.dropped)
    return tried.candidate.narrows and relaxed


def _run(repair: Repair, executor: Executor) -> Tried:
    """Run a repaired path; it is not judged, as confidence is about written ones."""
    assert repair.crp is not None
    written = Candidate(render_crp(repair.crp), logprob=0.0, tokens=1)
    [tried] = executor.run_all([written])
    return tried


def _why_not(asked: Asked, tried: Sequence[Tried], names: Names) -> WhyNot:
    """Say why a question has no answer, by its words or the candidate that came furthest."""
    fates = [each.fate for each in tried]  # of searched paths, too: they exist
    if "failed" in fates:
        failed = "the graph did not answer in time, or gave a malformed result; see the paths below"
        return WhyNot("graph", failed)
    if (why := unlike_a_question(asked.question)) is not None:
        return WhyNot("no-question", why)
    if not fates:
        return WhyNot("none-written", "no path was written, and none was found in the graph")
    if "unfit" in fates:
        unfit = next(each for each in tried if each.fate == "unfit")
        return WhyNot("unfit", f"no path that was found fits the question: {unfit.problem}")
    if "reachable" in fates:
        reached = next(each for each in tried if each.fate == "reachable")
        why = f": {reached.problem}" if reached.problem else ""
        return WhyNot("empty", f"the path exists, but nothing on it leads to an answer{why}")
    if "unreachable" in fates:
        return WhyNot("unreachable", "none of the model's paths exists in the graph")
    if "unlinked" in fates:
        hint = "" if asked.linked else f"; {explain_unlinked(names)}"
        return WhyNot("unlinked", f"no entity was found for the model's topics{hint}")
    return WhyNot("unreadable", "the model wrote nothing that can be read as a path")
