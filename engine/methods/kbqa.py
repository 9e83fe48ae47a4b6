"""kbqa's own method: what RouterKGQA writes and repairs, a search of the graph, and a judge.

1. A small language model writes paths, as in the paper. If it was trained so, it is shown relations
   that a retriever finds around the topics: that is ours (`kbqa.engine.retrieval.retriever`).
2. All of them are run, and relaxed if need be (`kbqa.engine.running.run`). The paper takes the
   first that answers. What cannot answer the question by its words or by the graph's schema is left
   out: that is ours.
3. A search of the graph adds paths that were not written: ours (`kbqa.engine.running.pool`).
4. A judge reads the candidates with their answers, chooses among them, and says how sure it is:
   ours (`kbqa.engine.running.judge`). A path that exists may still be the wrong one, which the
   paper names as its limitation.
5. Where the judge is not sure, a general model repairs, if there is one: it chooses a path as in
   the paper (`kbqa.engine.running.repair`), which the judge reads beside the others. The paper
   repairs where the written path does not exist; here the graph constrains the writing, so that
   nearly all exist.

`kbqa.engine.methods.routerkgqa` is the paper alone.

Source: RouterKGQA §3 and "Limitations".
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kbqa.engine.answer import Answer, Trace
from kbqa.engine.asked import Asked
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.linking.linker import likely_topics
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.methods import MethodMaker, Resources
from kbqa.engine.questions.objections import missing_aggregate
from kbqa.engine.running.evidence import PathTrace, WordCoverage, path_answer
from kbqa.engine.running.judge import SHIPPED_JUDGE, Judge
from kbqa.engine.running.pool import PathPool, add_up
from kbqa.engine.running.repair import (
    OF_REPAIR,
    GuidedRepairer,
    PathSettings,
    Repair,
    Repairer,
    check_unused,
    make_repairer,
)
from kbqa.engine.running.run import Runner
from kbqa.engine.running.tried import SHIPPED_CONFIDENCE, ConfidenceModel, Execution, Tried
from kbqa.engine.writing.checkpoint import require_embedding_packages
from kbqa.engine.writing.generate import Candidate, Generator, NoPaths, Progress, Request
from kbqa.kb.deadline import keep_to
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.errors import DeadlineExceeded, EndpointDown, GraphError, InputError, ModelError

if TYPE_CHECKING:
    from kbqa.engine.retrieval.retriever import RelationSuggester

logger = logging.getLogger(__name__)

CALLS_A_REPAIR = 2.5
"""On average: a blueprint, and a choice for each of one or two steps."""


SEARCHED_LIMIT_S = 5.0
"""Seconds for a query of what a search adds: the answer must not wait long for it."""


@dataclass(frozen=True, slots=True)
class KbqaSettings(PathSettings):
    """How kbqa answers; each setting says its meaning."""

    general_calls: Annotated[
        float | None,
        "Calls of the general model a question that a run may take on average: it repairs the "
        "least sure answers, until they are spent. By default all that --unsure-below calls "
        "unsure.",
    ] = None
    judge: Annotated[
        str | None,
        "What reads the candidates and chooses among them, also among paths that a search of the "
        "graph adds: kbqa's judge by default, the folder of one that kbqa train-judge wrote, or "
        "confidence, which chooses by the confidence model alone.",
    ] = None
    asker: Annotated[
        bool,
        "Whether the judge, where it is in doubt, asks its asker, a small language model, how "
        "likely the question is, given each of the best paths.",
    ] = True
    search: Annotated[bool, "Whether the judge's candidates include searched paths."] = True
    confidence: Annotated[
        Path | None, "Confidence model that tools/fit/confidence.py fitted, instead of a judge."
    ] = None

    @property
    def judge_folder(self) -> Path | None:
        """Where the judge is; None if candidates are not read."""
        if self.judge is not None:
            return None if self.judge == "confidence" else Path(self.judge)
        return None if self.confidence is not None or not self.write else SHIPPED_JUDGE

    def __post_init__(self) -> None:
        PathSettings.__post_init__(self)
        if self.general_calls is not None and not 0 <= self.general_calls < math.inf:
            raise InputError(f"general_calls is {self.general_calls}: use 0 or more")
        if self.judge not in (None, "confidence") and self.confidence is not None:
            raise InputError("judge chooses: leave out confidence")
        if self.judge_folder is None:
            for name in ("search", "asker"):
                if not getattr(self, name):
                    raise InputError(f"{name} is about the candidates of a judge; there is none")


class Kbqa:
    """Answers questions by all five steps. Any number of threads may use one.

    Args:
        resources: Graph, names, limits and models.
        settings: How to answer.
        generator: Writes paths.
        judge: Chooses.
        pool: Searches for further candidates; None if only written ones count.
        repairer: Repairs questions; None if nothing does.
        suggester: Finds relations to show to the writer; None if it is shown none.
        coverage: Finds the words that the answer leaves out; None if they are not looked for.

    Raises:
        ModelError: Calls are limited, and the judge cannot tell which questions are least sure.
    """

    name = "kbqa"
    general_calls: float | None

    def __init__(
        self,
        resources: Resources,
        settings: KbqaSettings,
        generator: Generator,
        judge: Judge,
        pool: PathPool | None = None,
        repairer: Repairer | None = None,
        suggester: "RelationSuggester | None" = None,
        coverage: WordCoverage | None = None,
    ) -> None:
        self._resources, self._settings, self._generator = resources, settings, generator
        self._judge, self._pool, self._suggester = judge, pool, suggester
        self._repairer, self._schema = repairer, GraphSchema(resources.graph)
        self._coverage = coverage
        self.general_calls, self._repair_below = settings.general_calls, resources.unsure_below
        if self.general_calls is not None:  # The least sure, as many as the calls will do for.
            least = judge.model.threshold(self.general_calls / CALLS_A_REPAIR)
            self._repair_below = min(self._repair_below, least)

    def settings(self) -> Mapping[str, object]:
        """Return what decides the answers, for manifests."""
        judge, repair = {}, None
        if self._judge.reads:  # Runs without a judge do not name one, now as in older versions.
            searched = None if self._pool is None else self._pool.settings()
            judge = {"judge": {"reader": self._judge.revision, "search": searched}}
        if self._repairer is not None:
            calls = self.general_calls
            repair = {
                **({} if calls is None else {"general_calls": calls}),
                "threshold": self._repair_below,
                **self._repairer.settings(),
            }
        suggested = 0 if self._suggester is None else self._generator.suggested_relations
        return {
            **judge,
            **({"suggested_relations": suggested} if suggested else {}),
            "write": not isinstance(self._generator, NoPaths),
            "order": "confidence",
            "confidence_model": self._judge.model.digest(),
            "without": sorted(self._settings.without),
            "repair": repair,
        }

    def write(
        self, asked: Sequence[Asked], progress: Progress | None = None
    ) -> list[list[Candidate]]:
        """Write the candidates of many questions at once; see `Method.write`."""
        requests = list(map(self._request, asked))
        return self._generator.generate(requests, self._resources.n, progress=progress)

    def answer(self, asked: Asked) -> Answer:
        """Answer a question; see `Method.answer`."""
        resources, without = self._resources, self._settings.without
        graph, names, timeout_s = resources.graph, resources.names, resources.timeout_s
        runner = Runner(asked, graph, names, timeout_s, schema=self._schema, without=without)

        def run(candidates: Sequence[Candidate]) -> list[Tried]:
            return runner.check(runner.run(candidates))

        if not isinstance(self._generator, NoPaths):
            asked.budget.take_last()  # Writing is a decision, too, even under a budget of one.
        carried = () if asked.carried is None else (asked.carried,)
        tried = run([*carried, *asked.written_by(self)])  # 1 and 2
        said = (each.proven for each in tried if each.table is not None)
        form = missing_aggregate(asked.question, filter(None, said))
        if form is not None:
            with asked.clock.stage("search"):
                added_up = add_up(asked, form, tried, graph, self._schema)
            tried = run(added_up)
        if self._pool is not None:
            tried += runner.check(run_searched(asked, tried, self._pool, runner))  # 3
        execution = runner.explain(self._judged(asked, tried))  # 4
        repair = self._repair(asked, execution)  # 5
        if repair is not None and repair.candidate is not None:
            repaired = run([repair.candidate])
            # It was not written for the question: no or 0 would only say that it does not fit.
            tried += [each for each in repaired if each.terms and each.boolean is not False]
            execution = runner.explain(self._judged(asked, tried))
        answer = path_answer(
            asked, execution, repair, graph=graph, names=names, timeout_s=timeout_s
        )
        return replace(answer, not_used=self._left_over(asked, answer.trace))

    def _left_over(self, asked: Asked, trace: Trace) -> tuple[str, ...]:
        """Return the words of the question that the path of its answer says nothing about."""
        tried = trace.answering if isinstance(trace, PathTrace) else None
        if self._coverage is None or tried is None or tried.relaxation is None:
            return ()
        mentions = {each.mid: each.mention for each in reversed(asked.linked)}
        return self._coverage.left_over(asked.question, tried.relaxation.crp, mentions)

    def _judged(self, asked: Asked, tried: Sequence[Tried]) -> Execution:
        """Have the judge choose among candidates."""
        if self._judge.reads:
            with asked.clock.stage("read"):
                tried = self._judge.read(asked.question, tried, self._resources.graph)
        return self._judge.choose(tried)

    def _request(self, asked: Asked) -> Request:
        """Return what is written for: question, topics and, if the graph finds them, relations."""
        request = Request(asked.question, asked.given or likely_topics(asked.linked))
        if self._suggester is None:
            return request
        graph = self._resources.graph
        try:
            with keep_to(asked.clock.deadline):
                suggested = self._suggester.suggest(request.question, request.topics, graph)
        except EndpointDown:
            raise
        except DeadlineExceeded:
            return request  # The writer drops questions out of time; the others of the batch go on.
        except GraphError as error:
            logger.warning("no relations are suggested: %s", error)
            return request
        return replace(request, relations=suggested)

    def _repair(self, asked: Asked, execution: Execution) -> Repair | None:
        """Look for another path if the judge is not sure."""
        best = execution.answering
        confidence = 0.0 if best is None else best.confidence or 0.0
        if self._repairer is None or (best is not None and confidence >= self._repair_below):
            return None
        unsure = f"a confidence of {confidence:.2f} is below {self._repair_below:.2f}"
        reason = execution.why_unreachable or unsure
        if self.general_calls is not None and asked.calls_left is not None:
            asked.budget.narrow(asked.calls_left())  # Waits until the run knows them.
        with asked.clock.stage("repair"):
            return self._repairer.repair(asked, reason, execution)


def run_searched(
    asked: Asked, tried: Sequence[Tried], pool: PathPool, runner: Runner
) -> list[Tried]:
    """Run what a search finds beside the candidates; a graph that fails at it does no harm.

    A path that was narrowed by a condition is left out unless all of it can be satisfied.
    """
    with asked.clock.stage("search"):
        try:
            found = pool.find(asked, tried)
        except EndpointDown:
            raise
        except GraphError as error:
            logger.warning("only written paths are candidates: %s", error)
            return []
    ran = runner.within(SEARCHED_LIMIT_S).run(found)
    return [each for each in ran if _is_whole(each) or not each.candidate.narrows]


def _is_whole(tried: Tried) -> bool:
    return tried.relaxation is not None and not tried.relaxation.dropped


def _make(resources: Resources, settings: KbqaSettings) -> Kbqa:
    """Make the method ready to answer: first what is quick to check, the small model last."""
    graph, chat = resources.graph, resources.chat
    repairer = make_repairer(settings, graph, chat, resources.chosen_chooser, GuidedRepairer)
    if repairer is not None and repairer.by != "llm" and settings.general_calls is not None:
        raise InputError("general_calls is about a general model: add --llm URL")
    if repairer is None:  # The search of a judge uses the embedder, too.
        unused = ("general_calls", *OF_REPAIR)
        check_unused(settings, unused if settings.judge_folder else (*unused, "embedder"))
    judge, missing = load_judge(settings, resources)
    pool = make_pool(settings, resources) if judge.reads else None
    generator: Generator = resources.generator if settings.write else NoPaths()
    if missing is not None:  # Said last: without a model that writes, there is nothing to judge.
        logger.warning("candidates are not read, and chosen by the confidence model: %s", missing)
    suggester = make_suggester(generator, resources.graph)
    coverage = None
    if pool is not None:
        coverage = WordCoverage(Embedder.load(settings.embedder), LinkingModel.load())
    return Kbqa(resources, settings, generator, judge, pool, repairer, suggester, coverage)


def load_judge(settings: KbqaSettings, resources: Resources) -> tuple[Judge, ModelError | None]:
    """Load the judge; where kbqa's own cannot be loaded, the confidence model, and say why."""
    schema, folder = GraphSchema(resources.graph), settings.judge_folder
    if settings in resources.judges:  # for an earlier graph
        return resources.judges[settings].over(schema), None
    is_own, missing = settings.judge is None, None
    try:
        if folder is not None:
            asks, threads = settings.asker, resources.threads
            loaded = Judge.load(folder, schema, asks=asks, may_lack_asker=is_own, threads=threads)
            resources.judges[settings] = loaded
            return loaded, None
    except ModelError as error:
        if not is_own:
            raise
        missing = error
    model = ConfidenceModel.load(settings.confidence or SHIPPED_CONFIDENCE)
    resources.judges[settings] = Judge(schema, model)
    return resources.judges[settings], missing


def make_pool(settings: KbqaSettings, resources: Resources) -> PathPool | None:
    """Return what finds further candidates for a judge; None if nothing does."""
    if settings.judge_folder is None or not settings.search:
        return None
    return PathPool(resources.graph, Embedder.load(settings.embedder), LinkingModel.load())


def make_suggester(generator: Generator, graph: Graph) -> "RelationSuggester | None":
    """Return what suggests relations to a model; None if it was trained without.

    A model also writes without suggestions, though less well. So if the retriever, its embedder or
    a package is missing, there is a warning, and None.
    """
    if not generator.suggested_relations:
        return None
    try:
        require_embedding_packages("suggesting relations")
        from kbqa.engine.retrieval.retriever import RelationSuggester

        return RelationSuggester(graph, generator.suggested_relations)
    except ModelError as error:
        logger.warning("no relations are suggested to the small model: %s", error)
        return None


KBQA = MethodMaker(KbqaSettings, _make)
