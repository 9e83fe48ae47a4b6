"""RouterKGQA: a small model writes paths, the graph runs them, a general model repairs.

Its stages are the paper's: 1, candidates are written (`Generator`), grounded and looked up in the
graph; 2, a question whose candidates will not do is repaired (`Repairer`); 3, the path is run and,
if nothing satisfies all of it, relaxed. The search of the graph and the judge between them are
ours.

Two policies decide which questions are repaired. By reachability, the paper's: no path that was
written exists in the graph; all of them are tried before anything is paid for. By confidence, ours:
the answers are not sure enough (`kbqa.engine.running.confidence`), as a path that exists may still
be the wrong one.

Source: RouterKGQA §3.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kbqa.engine.answer import Answer, WhyNot
from kbqa.engine.asked import Asked, ChooserName
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import relation_path
from kbqa.engine.linking.ground import Grounder
from kbqa.engine.linking.linker import explain_unlinked, likely_topics
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.methods.repair import (
    ChatChooser,
    Chooser,
    EmbedderChooser,
    Failure,
    RandomChooser,
    Repair,
    Repairer,
    RepairSettings,
    Stop,
)
from kbqa.engine.questions.question_sets import unlike_a_question
from kbqa.engine.resources import MethodMaker, Resources
from kbqa.engine.running.confidence import (
    SHIPPED_CONFIDENCE,
    ConfidenceModel,
    Execution,
    Tried,
    describe_found,
    path_record,
    with_first_answers,
    with_names,
)
from kbqa.engine.running.evidence import prove_answer
from kbqa.engine.running.judge import (
    READER_FOLDER,
    SHIPPED_JUDGE,
    Asker,
    CandidateReader,
    CrossEncoder,
    confidence_file,
)
from kbqa.engine.running.pool import PathPool
from kbqa.engine.running.precedents import Precedents
from kbqa.engine.running.run import Executor, Policy
from kbqa.engine.running.search import SearchWidths, search_topics, without_mentions
from kbqa.engine.writing.checkpoint import require_embedding_packages
from kbqa.engine.writing.generate import Candidate, Generator, NoPaths, Progress, Request
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import Names
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Kind
from kbqa.sparql.errors import EndpointDown, GraphError, InputError, ModelError
from kbqa.sparql.forms import render_crp

if TYPE_CHECKING:
    from kbqa.engine.retrieval.retriever import RelationSuggester


RepairedBy = Literal["off", "embedder", "llm"]
Route = Literal["reachability", "confidence"]
CandidateOrder = Literal["confidence", "full-first", "beam-first"]


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """How RouterKGQA answers; each setting says its meaning."""

    write: Annotated[
        bool, "Whether the small model writes paths. If not, all are searched for in the graph."
    ] = True
    repair: Annotated[
        RepairedBy | None,
        "What chooses among the graph's paths in a repair: the embedder alone, free and offline, "
        "or the general model. By default what --chooser says, else llm with --llm or --llm-model, "
        "else off.",
    ] = None
    route: Annotated[
        Route,
        "What is repaired: questions without any path that exists, or also those whose answers "
        "are unsure, by --unsure-below.",
    ] = "reachability"
    general_calls: Annotated[
        float,
        "Calls of the general model a question, on average, that route=confidence may take: it "
        "repairs the least sure, and a run stops repairing when they are spent.",
    ] = 0.15
    stop: Annotated[
        Stop,
        "How deep a repair searches: as deep as the small model's path, as the blueprint has "
        "steps, or until the general model judges that it is enough.",
    ] = "model"
    width: Annotated[int, "Paths that each step of a repair starts from."] = 3
    embedder: Annotated[str | None, "Embedder instead of the packaged all-MiniLM-L6-v2."] = None
    seed: Annotated[int, "Seed of --chooser random."] = 42
    order: Annotated[
        CandidateOrder,
        "Which written path answers: the one whose answers are likeliest to be right, the first "
        "that answers in full, or the first that answers at all.",
    ] = "confidence"
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
    without: Annotated[
        tuple[Kind, ...], "Classes of constraints that are left out, to see what they are worth."
    ] = ()

    @property
    def judge_folder(self) -> Path | None:
        """Where the judge is; None if candidates are not read."""
        if self.judge is not None:
            return None if self.judge == "confidence" else Path(self.judge)
        is_left_out = self.confidence is not None or self.order != "confidence" or not self.write
        return None if is_left_out else SHIPPED_JUDGE

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InputError(f"width is {self.width}: use 1 or more")
        if not 0 <= self.general_calls < math.inf:
            raise InputError(f"general_calls is {self.general_calls}: use 0 or more")
        is_read = self.judge not in (None, "confidence")
        if is_read and (self.confidence is not None or self.order != "confidence"):
            raise InputError("judge chooses: leave out confidence and order")
        if self.judge_folder is None:
            for name in ("search", "asker"):
                if not getattr(self, name):
                    raise InputError(f"{name} is about the candidates of a judge; there is none")


class Routing:
    """Decides which questions are repaired, and has it done. Any number of threads may use one.

    Args:
        repairer: Searches the paths.
        chat: Chooses among them; None if the embedder alone does.
        route: What is repaired; see the module's docstring.
        threshold: The confidence below which answers are not sure enough, in [0, 1]; only for the
            route ``confidence``.
        general_calls: Calls of the general model a question, on average, that a run may take; None
            for any number.
        chance_seed: Seed by which chance chooses among them instead; None if it does not.
    """

    def __init__(
        self,
        repairer: Repairer,
        chat: ChatModel | None = None,
        route: Route = "reachability",
        threshold: float = 0.0,
        general_calls: float | None = None,
        chance_seed: int | None = None,
    ) -> None:
        self._repairer, self._chat = repairer, chat
        self._route, self._threshold, self.general_calls = route, threshold, general_calls
        self._chance_seed = chance_seed

    def settings(self) -> Mapping[str, object]:
        """Return what decides its repairs, for manifests."""
        chance = {} if self._chance_seed is None else {"chance_seed": self._chance_seed}
        limit = {} if self.general_calls is None else {"general_calls": self.general_calls}
        return {
            **chance,
            **limit,
            "route": self._route,
            "threshold": self._threshold if self._route == "confidence" else None,
            "general_model": None if self._chat is None else self._chat.name,
            **self._repairer.settings(),
        }

    def reason(self, execution: Execution) -> str | None:
        """Return why a question needs repair; None if it needs none."""
        written = [each for each in execution.tried if not each.candidate.is_searched]
        if not written:
            return "no path was written"
        exists = any(each.fate == "reachable" or each.readings for each in written)
        if not exists and not any(each.table is not None for each in written):
            if any(each.fate == "failed" for each in written):
                return "no path that was written could be followed"
            return "no path that was written exists"
        if self._route == "confidence":
            answering = execution.answering
            confidence = 0.0 if answering is None else answering.confidence or 0.0
            if confidence < self._threshold:
                return f"a confidence of {confidence:.2f} is below {self._threshold:.2f}"
        return None

    def claim_calls(self, asked: Asked) -> None:
        """Keep a question to the calls that its run has left for it; wait until that is known."""
        if self.general_calls is not None and asked.calls_left is not None:
            asked.budget.narrow(asked.calls_left())

    def repair(self, asked: Asked, reason: str, execution: Execution) -> Repair | None:
        """Look for another path.

        Args:
            asked: The question. Paths start from its given entities, or else from linked ones.
            reason: Why it needs repair, as `reason` returned it.
            execution: What running the written paths came to.

        Returns:
            None if nothing is known to start from.

        Raises:
            ModelError: The general model failed.
            GraphError: The graph does not answer.
        """
        readings = [each.crp for each in execution.tried if each.crp is not None]
        known = None
        if (answering := execution.answering) is not None and answering.crp is not None:
            # It may be the right one after all, and then its own constraints belong to it.
            readings.insert(0, answering.crp)
            known = relation_path(answering.crp)
        topics = search_topics(asked, readings)
        if not topics:
            return None
        failure = Failure(
            reason=reason,
            question=asked.question,
            asked=without_mentions(asked, topics),
            topics=tuple(topics),
            crp=readings[0] if readings else None,
            known=() if known is None else (known,),
        )
        return self._repairer.repair(failure, self._chooser(asked), asked.clock, asked.budget)

    def _chooser(self, asked: Asked) -> Chooser:
        if self._chance_seed is not None:
            return RandomChooser(self._chance_seed)
        if self._chat is not None and asked.chat is not None:
            return ChatChooser(asked.chat)
        return EmbedderChooser()


Stage = Literal["specialised", "general"]
"""What found the path that answers: the small model, or repair (RouterKGQA's stages 1 and 2)."""


@dataclass(frozen=True, slots=True)
class RouterTrace:
    """How RouterKGQA came to its answers.

    Attributes:
        tried: The candidates that were looked at, best first; a repaired path is the last.
        best: Index of the one that answers; None if none does.
        stage: What found it; None if none answers.
        repair: What repair was asked for and came to; None if none was needed.
        calls: Decisions that were taken, if there was a limit to them: the writing, and those of
            the repair.
    """

    tried: tuple[Tried, ...]
    best: int | None
    stage: Stage | None = None
    repair: Repair | None = None
    calls: int | None = None

    @property
    def answering(self) -> Tried | None:
        """The candidate that answers."""
        return None if self.best is None else self.tried[self.best]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        return {
            **path_record(self.answering),
            "beam": self.best,
            "beams": list(self._candidates()),
            "repair": None if self.repair is None else self.repair.to_dict(),
            **({} if self.calls is None else {"calls": self.calls}),
        }

    def _candidates(self) -> Iterator[dict[str, Any]]:
        for at, each in enumerate(self.tried):
            yield each.to_dict("repair" if self.stage == "general" and at == self.best else None)

    def describe(self) -> list[str]:
        """Return the path that answers in English, or how far each candidate came."""
        answering = self.answering
        lines = list(self._failures() if answering is None else self._path(answering))
        if self.repair is not None and self.repair.is_cut_short:
            lines.append("The call budget was spent before the search was over.")
        return lines

    def _path(self, tried: Tried) -> Iterator[str]:
        assert tried.relaxation is not None
        yield from describe_found(tried, "Of what the model wrote")
        level, repair = tried.relaxation.level, self.repair
        if self.stage != "general" or repair is None:
            assert self.best is not None
            found = (
                "Found by searching the graph, beside what the model wrote"
                if tried.candidate.is_searched
                else f"From path {self.best + 1} of the model"
            )
            yield f"{found}, relaxation: {level}."
            return
        yield f"Found by searching the graph, because {repair.reason}. Relaxation: {level}."
        if repair.lost:
            yield "Lost, because no node of the new path has its relation:"
            yield from (f"  {sentence}" for sentence in repair.lost)

    def _failures(self) -> Iterator[str]:
        yield "Paths that the model wrote:"
        written = [each for each in self.tried if not each.candidate.is_searched]
        for number, tried in enumerate(written, 1):
            lines = filter(None, map(str.strip, tried.candidate.text.splitlines()))
            first = next((line for line in lines if line.lower() != "main path:"), "")
            problem = f" ({tried.problem})" if tried.problem else ""
            yield f"  {number}. {tried.fate}: {first}{problem}"


logger = logging.getLogger(__name__)

_SEARCHED_LIMIT_S = 5.0
"""Seconds for a query of what a search adds: what was written must not wait long for it."""


class RouterKgqa:
    """Answers questions as RouterKGQA does; `kbqa.engine.methods.router` makes one.

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


CALLS_A_REPAIR = 2.5
"""On average: a blueprint, and a choice for each of one or two steps."""


def _make(resources: Resources, settings: RouterSettings) -> RouterKgqa:
    """Make RouterKGQA ready to answer: first what is quick to check, the small model last.

    Raises:
        InputError: The settings contradict each other.
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    repairs_by = _repairs_by(settings, resources)
    _check(settings, repairs_by, resources.chat is not None)
    missing = None
    try:
        reader = make_reader(settings, resources)
    except ModelError as error:
        if settings.judge is not None:
            raise
        reader, missing = None, error
    policy = _policy(settings, reader)
    routing = None
    if repairs_by != "off":
        search = RepairSettings(SearchWidths(beam=settings.width), settings.stop)
        embedder, asking = Embedder.load(settings.embedder), LinkingModel.load()
        repairer = Repairer(resources.graph, embedder, search, asking)
        chat = resources.chat if repairs_by == "llm" else None
        is_limited = chat is not None and settings.route == "confidence"
        general_calls = settings.general_calls if is_limited else None
        threshold = _threshold(settings, policy, resources.unsure_below, general_calls)
        chance_seed = settings.seed if repairs_by == "random" else None
        routing = Routing(repairer, chat, settings.route, threshold, general_calls, chance_seed)
    pool = None if reader is None else make_pool(settings, resources)
    generator: Generator = resources.generator if settings.write else NoPaths()
    if missing is not None:  # Without a model there is nothing to judge, and that is said instead.
        logger.warning("candidates are not read, and chosen by the confidence model: %s", missing)
    suggester = make_suggester(generator, resources.graph)
    return RouterKgqa(resources, generator, policy, routing, pool, reader, suggester)


def _repairs_by(settings: RouterSettings, resources: Resources) -> RepairedBy | ChooserName:
    """Return who repairs: as the setting says, or else `--chooser`, or else what there is."""
    chooser, repair = resources.chosen_chooser, settings.repair
    if chooser is not None:
        if repair is not None and repair != chooser:
            raise InputError(
                f"repair={repair} and --chooser {chooser} contradict each other: give one of them"
            )
        return chooser
    if repair is None:
        repair = "off" if resources.chat is None else "llm"
    return "embedder" if repair == "off" and not settings.write else repair


def _check(settings: RouterSettings, repairs_by: str, has_chat: bool) -> None:
    """Refuse settings that contradict each other, or that would do nothing."""
    if repairs_by == "llm" and not has_chat:
        raise InputError("repair=llm needs a general model: add --llm URL or --llm-model NAME")
    if settings.stop == "judge" and repairs_by != "llm":
        raise InputError("stop=judge needs a general model: add --llm URL or --llm-model NAME")
    if settings.route == "confidence" and settings.order != "confidence":
        raise InputError("route=confidence needs order=confidence")
    if settings.seed != RouterSettings().seed and repairs_by != "random":
        raise InputError("seed is about chance, and nothing is left to it: add --chooser random")
    if repairs_by == "off":
        default = RouterSettings()
        names = ["route", "general_calls", "stop", "width"]
        if settings.judge_folder is None:  # Its search uses the embedder, too.
            names.append("embedder")
        for name in names:
            if getattr(settings, name) != getattr(default, name):
                raise InputError(
                    f"{name} is about repair, and nothing is repaired: "
                    "add --set repair=embedder or --llm URL"
                )


def _policy(settings: RouterSettings, reader: CandidateReader | None) -> Policy:
    without = frozenset(settings.without)
    if settings.order == "confidence":
        path = settings.confidence or SHIPPED_CONFIDENCE
        if reader is not None and settings.judge_folder is not None:
            path = confidence_file(settings.judge_folder, is_asking=reader.is_asking)
        return Policy(ConfidenceModel.load(path), without=without)
    return Policy(order=settings.order, without=without)


def make_pool(settings: RouterSettings, resources: Resources) -> PathPool | None:
    """Return what finds further candidates; None if nothing does.

    Raises:
        ModelError: The embedder is missing or broken.
    """
    if settings.judge_folder is None or not settings.search:
        return None
    return PathPool(resources.graph, Embedder.load(settings.embedder), LinkingModel.load())


def make_reader(settings: RouterSettings, resources: Resources) -> CandidateReader | None:
    """Return what reads candidates; None if nothing does.

    Raises:
        ModelError: A package or a file is missing or broken.
    """
    if settings.judge_folder is None:
        return None
    encoder = CrossEncoder.load(settings.judge_folder / READER_FOLDER)
    precedents = Precedents.load(Embedder.load(), settings.judge_folder)
    asker = None
    if settings.asker:
        asker = _find_asker(settings.judge_folder, settings.judge is None, resources.threads)
    return CandidateReader(encoder, precedents, GraphSchema(resources.graph), asker)


def _find_asker(judge: Path, is_optional: bool, threads: int | None) -> Asker | None:
    """Return the asker of a judge, if it has one; if it is optional, a broken one is left out."""
    try:
        return Asker.of(judge, threads)
    except ModelError as error:
        if not is_optional:
            raise
        logger.warning("the judge does without its asker: %s", error)
        return None


def make_suggester(generator: Generator, graph: Graph) -> "RelationSuggester | None":
    """Return what suggests relations to a model; None if it was trained without.

    A model also writes without suggestions, though less well. So if the retriever, its embedder or
    a package is missing, there is a warning, and None.

    Raises:
        StoreError: The store's schema is missing or broken.
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


def _threshold(
    settings: RouterSettings, policy: Policy, unsure_below: float, general_calls: float | None
) -> float:
    """Return the confidence below which questions are repaired; 0 if confidence is not asked.

    Unsure answers are repaired: all of them, or the least sure, as many as the calls will do for.
    """
    if settings.route == "reachability" or policy.confidence is None:
        return 0.0
    if general_calls is None:
        return unsure_below
    return min(unsure_below, policy.confidence.threshold(general_calls / CALLS_A_REPAIR))


ROUTER = MethodMaker(RouterSettings, _make)
