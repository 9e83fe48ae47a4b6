"""RouterKGQA: a small model writes a path, a general model repairs it, the graph runs it.

1. A small language model, tuned on the training questions, writes constraint-aware reasoning paths,
   the best first (§3.2; `kbqa.engine.writing`). Names are grounded.
2. The graph is asked whether the main path of the best one exists. If not, a general model finds
   another: it breaks the question into steps, and chooses among paths that the graph has (§3.3,
   equations 4 to 11; `Repairer` in `kbqa.engine.running.repair`). The new path gets the constraints
   of the old one (`carry_constraints` in `kbqa.engine.running.search`), and goes first.
3. The paths are run with all of their constraints, as SPARQL, until one answers (equations 1 to 3;
   `kbqa.sparql.compile`). If nothing satisfies the constraints of any, they are relaxed: strings,
   numbers, entities (§3.4; `kbqa.sparql.relax`).

Each setting is the paper's by default, but for the embedder. That worse paths run if the best does
not answer is in the paper's code alone. Without a general model nothing is repaired, unless
``repair=embedder`` says so. docs/papers.md lists what differs. `kbqa.engine.methods.kbqa`, the
default method, is ours.

Source: RouterKGQA §3, Figure 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from kbqa.engine.answer import Answer
from kbqa.engine.asked import Asked
from kbqa.engine.linking.linker import likely_topics
from kbqa.engine.methods import MethodMaker, Resources
from kbqa.engine.running.evidence import path_answer
from kbqa.engine.running.repair import (
    OF_REPAIR,
    PathSettings,
    Repairer,
    check_unused,
    make_repairer,
)
from kbqa.engine.running.run import Runner, TrustOrder
from kbqa.engine.running.tried import Execution, Tried
from kbqa.engine.writing.generate import Candidate, Generator, NoPaths, Progress, Request


@dataclass(frozen=True, slots=True)
class RouterKgqaSettings(PathSettings):
    """How RouterKGQA answers; each setting says its meaning."""

    route: Annotated[
        Literal["first", "all"],
        "What is repaired: questions whose best written path does not exist, as in the paper, or "
        "those of which none exists.",
    ] = "first"
    order: Annotated[
        TrustOrder,
        "Which written path answers: the first that answers in full, as in the paper's code, or "
        "the first that answers at all.",
    ] = "full-first"
    relax: Annotated[
        Literal["class", "constraint"],
        "Whether all strings are dropped at once, then all numbers, then entities one after the "
        "other, as in the paper's code, or as few constraints as possible.",
    ] = "class"


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
            "route": settings.route,
            "order": settings.order,
            "relax": settings.relax,
            "without": sorted(settings.without),
            "repair": None if repairer is None else repairer.settings(),
        }

    def write(
        self, asked: Sequence[Asked], progress: Progress | None = None
    ) -> list[list[Candidate]]:
        """Write the candidates of many questions at once; see `Method.write`."""
        # The model names the topic itself. If it must follow the graph, it begins at one of these.
        topics = [each.given or likely_topics(each.linked) for each in asked]
        requests = [Request(each.question, of) for each, of in zip(asked, topics, strict=True)]
        return self._generator.generate(requests, self._resources.n, progress=progress)

    def answer(self, asked: Asked) -> Answer:
        """Answer a question; see `Method.answer`."""
        resources, settings = self._resources, self._settings
        graph, names, timeout_s = resources.graph, resources.names, resources.timeout_s
        runner = Runner(
            asked,
            graph,
            names,
            timeout_s,
            without=settings.without,
            by_class=settings.relax == "class",
        )

        # 1. The small model writes paths. This is a decision, too, even under a budget of one.
        if settings.write:
            asked.budget.take_last()
        written = asked.written_by(self)

        # 2. If the best does not exist, a general model looks for another in the graph.
        repair, candidates, tested = None, list(written), list[Tried]()
        if self._repairer is not None:
            best = written[:1] if settings.route == "first" else written
            tested = runner.run(best, relax=False)
            if reason := (failed := Execution(tuple(tested))).why_unreachable:
                if len(tested) < len(written):
                    reason = "the best path that was written does not exist"
                with asked.clock.stage("repair"):
                    repair = self._repairer.repair(asked, reason, failed)
        if repair is not None and repair.candidate is not None:
            candidates.insert(0, repair.candidate)

        # 3. Paths are run, and relaxed if need be, until one answers.
        execution = runner.run_first(candidates, settings.order)
        ran = {each.candidate for each in execution.tried}
        unrun = (each for each in tested if each.candidate not in ran)
        execution = replace(execution, tried=(*execution.tried, *unrun))
        return path_answer(asked, execution, repair, graph=graph, names=names, timeout_s=timeout_s)


def _make(resources: Resources, settings: RouterKgqaSettings) -> RouterKgqa:
    """Make the method ready to answer: first what is quick to check, the small model last."""
    repairer = make_repairer(settings, resources.graph, resources.chat, resources.chosen_chooser)
    if repairer is None:
        check_unused(settings, ("route", *OF_REPAIR, "embedder"))
    generator = resources.generator if settings.write else NoPaths()
    return RouterKgqa(resources, settings, generator, repairer)


ROUTERKGQA = MethodMaker(RouterKgqaSettings, _make)
