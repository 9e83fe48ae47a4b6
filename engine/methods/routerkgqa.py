"""RouterKGQA: a small model writes paths, the graph runs them, a general model repairs.

1. A small language model, tuned on the training questions, writes constraint-aware reasoning paths.
2. Where none of them exists in the graph, a general model finds another: it breaks the question
   into steps, and chooses among paths that the graph has (`kbqa.engine.running.repair`).
3. The path is run with all of its constraints. If nothing satisfies them, it is relaxed step by
   step (`kbqa.sparql.relax`).

There is nothing else here: `kbqa.engine.methods.kbqa`, the default method, adds a search of the
graph, and a judge that chooses among all that is found.

Source: RouterKGQA §3, Figure 2.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from kbqa.engine.answer import Answer
from kbqa.engine.asked import Asked, ChooserName, Method
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.linking.linker import likely_topics
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.resources import MethodMaker, Resources
from kbqa.engine.running.evidence import Stage, path_answer
from kbqa.engine.running.repair import (
    Repair,
    RepairedBy,
    Repairer,
    Stop,
)
from kbqa.engine.running.run import Runner, TrustOrder
from kbqa.engine.running.search import SearchWidths
from kbqa.engine.running.tried import Tried
from kbqa.engine.writing.generate import Candidate, Generator, NoPaths, Progress, Request
from kbqa.sparql.crp import Kind
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import render_crp

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PathSettings:
    """What `routerkgqa` and `kbqa` let a user set alike."""

    write: Annotated[
        bool, "Whether the small model writes paths. If not, all are searched for in the graph."
    ] = True
    repair: Annotated[
        RepairedBy | None,
        "What chooses among the graph's paths in a repair: the embedder alone, free and offline, "
        "or the general model. By default what --chooser says, else llm with --llm or --llm-model, "
        "else off.",
    ] = None
    stop: Annotated[
        Stop,
        "How deep a repair searches: as deep as the small model's path, as the blueprint has "
        "steps, or until the general model judges that it is enough.",
    ] = "model"
    width: Annotated[int, "Paths that each step of a repair starts from."] = 3
    embedder: Annotated[str | None, "Embedder instead of the packaged all-MiniLM-L6-v2."] = None
    seed: Annotated[int, "Seed of --chooser random."] = 42
    without: Annotated[
        tuple[Kind, ...], "Classes of constraints that are left out, to see what they are worth."
    ] = ()

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InputError(f"width is {self.width}: use 1 or more")


@dataclass(frozen=True, slots=True)
class RouterKgqaSettings(PathSettings):
    """How RouterKGQA answers; each setting says its meaning."""

    order: Annotated[
        TrustOrder,
        "Which written path answers: the first that answers in full, as in the paper's code, or "
        "the first that answers at all.",
    ] = "full-first"


class RouterKgqa:
    """Answers questions as the paper does. Any number of threads may use one.

    Args:
        resources: Graph, names, limits and models.
        settings: How to answer.
        generator: Writes paths.
        repairer: Repairs questions without a path that exists; None if nothing does.
    """

    name = "routerkgqa"
    general_calls: float | None = None

    def __init__(
        self,
        resources: Resources,
        settings: RouterKgqaSettings,
        generator: Generator,
        repairer: Repairer | None = None,
    ) -> None:
        self._resources, self._settings = resources, settings
        self._generator, self._repairer = generator, repairer

    def settings(self) -> Mapping[str, object]:
        """Return what decides the answers, for manifests."""
        settings, repairer = self._settings, self._repairer
        return {
            "write": not isinstance(self._generator, NoPaths),
            "order": settings.order,
            "without": sorted(settings.without),
            "repair": None if repairer is None else repairer.settings(),
        }

    def write(
        self, asked: Sequence[Asked], progress: Progress | None = None
    ) -> list[list[Candidate]]:
        """Write the candidates of many questions at once; see `Method.write`."""
        topics = [each.given or likely_topics(each.linked) for each in asked]
        requests = [Request(each.question, of) for each, of in zip(asked, topics, strict=True)]
        return self._generator.generate(requests, self._resources.n, progress=progress)

    def answer(self, asked: Asked) -> Answer:
        """Answer a question; see `Method.answer`."""
        resources, settings = self._resources, self._settings
        graph, names, timeout_s = resources.graph, resources.names, resources.timeout_s
        runner = Runner(asked, graph, names, timeout_s, without=settings.without)

        # Stage 1: the small model writes paths, and the first that answers is taken.
        if settings.write:
            asked.budget.take_last()  # The writing is one call: the only one, if there is but one.
        execution = runner.run_first(written_paths(self, asked), settings.order)
        stage: Stage = "specialised"

        # Stage 2: if none of them exists, a general model looks for another in the graph.
        repair = None
        if self._repairer is not None and (reason := unreachable(execution.tried)) is not None:
            with asked.clock.stage("repair"):
                repair = self._repairer.repair(asked, reason, execution)

        # Stage 3: the repaired path is run, and relaxed if nothing satisfies all of it.
        if repair is not None and (repaired := run_repair(repair, runner.run)) is not None:
            execution, stage = execution.with_answer(repaired), "general"
        return path_answer(
            asked, execution, stage, repair, graph=graph, names=names, timeout_s=timeout_s
        )


def written_paths(method: Method, asked: Asked) -> Sequence[Candidate]:
    """Return what was written for a question before, or have it written now."""
    if asked.candidates is not None:
        return asked.candidates
    with asked.clock.stage("write"):
        [candidates] = method.write([asked])
    for each in candidates:
        logger.info("wrote %r (%.2f)", each.text, each.logprob)
    return candidates


def unreachable(tried: Sequence[Tried]) -> str | None:
    """Return why written paths need repair; None if one of them exists."""
    written = [each for each in tried if not each.candidate.is_searched]
    if not written:
        return "no path was written"
    if any(e.fate == "reachable" or e.readings or e.table is not None for e in written):
        return None
    if any(each.fate == "failed" for each in written):
        return "no path that was written could be followed"
    return "no path that was written exists"


def run_repair(repair: Repair, run: Callable[[Sequence[Candidate]], list[Tried]]) -> Tried | None:
    """Run the path that a repair found; None if it is no new one, or does not answer.

    It was not written for the question, so no or 0 would only say that it does not fit.
    """
    if repair.crp is None or repair.is_known:
        return None
    [tried] = run([Candidate(render_crp(repair.crp), logprob=0.0, tokens=1)])
    return tried if tried.terms and tried.boolean is not False else None


def make_repairer(
    settings: PathSettings, resources: Resources, *, asking: LinkingModel | None = None
) -> Repairer | None:
    """Return what repairs; None if nothing does."""
    by = repaired_by(settings, resources)
    if by == "off":
        return None
    return Repairer(
        resources.graph,
        Embedder.load(settings.embedder),
        by,
        model=resources.chat if by == "llm" else None,
        stop=settings.stop,
        widths=SearchWidths(beam=settings.width),
        asking=asking,
        seed=settings.seed,
    )


def repaired_by(settings: PathSettings, resources: Resources) -> RepairedBy | ChooserName:
    """Return who repairs: as the setting says, or else `--chooser`, or else what there is.

    Raises:
        InputError: Settings contradict each other, or would do nothing.
    """
    chooser, repair = resources.chosen_chooser, settings.repair
    if repair is not None and chooser not in (None, repair):
        raise InputError(
            f"repair={repair} and --chooser {chooser} contradict each other: give one of them"
        )
    by: RepairedBy | ChooserName = chooser or repair or ("off" if resources.chat is None else "llm")
    if by == "off" and chooser is None and not settings.write:
        by = "embedder"
    if by == "llm" and resources.chat is None:
        raise InputError("repair=llm needs a general model: add --llm URL or --llm-model NAME")
    if settings.stop == "judge" and by != "llm":
        raise InputError("stop=judge needs a general model: add --llm URL or --llm-model NAME")
    if settings.seed != PathSettings().seed and by != "random":
        raise InputError("seed is about chance, and nothing is left to it: add --chooser random")
    return by


def _make(resources: Resources, settings: RouterKgqaSettings) -> RouterKgqa:
    """Make the method ready to answer: first what is quick to check, the small model last."""
    repairer = make_repairer(settings, resources)
    if repairer is None:
        check_unused(settings, ("stop", "width", "embedder"))
    generator = resources.generator if settings.write else NoPaths()
    return RouterKgqa(resources, settings, generator, repairer)


def check_unused(settings: PathSettings, names: Iterable[str]) -> None:
    """Refuse settings of repair that were changed although nothing is repaired."""
    defaults = type(settings)()
    for name in names:
        if getattr(settings, name) != getattr(defaults, name):
            raise InputError(
                f"{name} is about repair, and nothing is repaired: "
                "add --set repair=embedder or --llm URL"
            )


ROUTERKGQA = MethodMaker(RouterKgqaSettings, _make)
