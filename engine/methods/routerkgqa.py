"""RouterKGQA: a small model writes paths, the graph runs them, a general model repairs.

1. A small language model, tuned on the training questions, writes constraint-aware reasoning paths
   (§3.2; `kbqa.engine.writing`).
2. Their names are grounded, and the graph is asked whether their main paths exist. If none does, a
   general model finds another: it breaks the question into steps, and chooses among paths that the
   graph has (§3.3, equations 4 to 11; `kbqa.engine.running.repair`, `search` and `graph_walk`). It
   gets the constraints of the written path (`carry_constraints` in `kbqa.engine.running.pool`).
3. The path is run with all of its constraints, as SPARQL (equations 1 to 3; `kbqa.sparql.compile`).
   If nothing satisfies them, it is relaxed step by step (§3.4; `kbqa.sparql.relax`).

The `Runner` does the second half of 3 for written paths together with the first half of 2, because
it stops at the first path that answers. The paper writes one path; here several may be written, and
repair is for questions of which none exists. Without a general model nothing is repaired, unless
``repair=embedder`` says so. docs/methods.md lists what else differs from the paper.

`kbqa.engine.methods.kbqa`, the default method, adds a search of the graph and a judge.

Source: RouterKGQA §3, Figure 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from kbqa.engine.answer import Answer
from kbqa.engine.asked import Asked
from kbqa.engine.linking.linker import likely_topics
from kbqa.engine.methods import MethodMaker, Resources
from kbqa.engine.running.evidence import Stage, path_answer
from kbqa.engine.running.repair import (
    PathSettings,
    Repairer,
    check_unused,
    make_repairer,
    run_repair,
)
from kbqa.engine.running.run import Runner, TrustOrder
from kbqa.engine.writing.generate import Candidate, Generator, NoPaths, Progress, Request


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
        # The model names the topic itself. If it must follow the graph, it begins at one of these.
        topics = [each.given or likely_topics(each.linked) for each in asked]
        requests = [Request(each.question, of) for each, of in zip(asked, topics, strict=True)]
        return self._generator.generate(requests, self._resources.n, progress=progress)

    def answer(self, asked: Asked) -> Answer:
        """Answer a question; see `Method.answer`."""
        resources, settings = self._resources, self._settings
        graph, names, timeout_s = resources.graph, resources.names, resources.timeout_s
        runner = Runner(asked, graph, names, timeout_s, without=settings.without)

        # The small model writes paths. Writing is a decision, too, even under a budget of one.
        if settings.write:
            asked.budget.take_last()
        written = asked.written_by(self)

        # Each that exists is run, relaxed if need be, until one answers.
        execution = runner.run_first(written, settings.order)
        stage: Stage = "specialised"

        # If none exists, a general model looks for another in the graph, which is run in its place.
        repair = None
        if self._repairer is not None and (reason := execution.why_unreachable):
            with asked.clock.stage("repair"):
                repair = self._repairer.repair(asked, reason, execution)
        if repair is not None and (repaired := run_repair(repair, runner.run)) is not None:
            execution, stage = execution.with_answer(repaired), "general"
        return path_answer(
            asked, execution, stage, repair, graph=graph, names=names, timeout_s=timeout_s
        )


def _make(resources: Resources, settings: RouterKgqaSettings) -> RouterKgqa:
    """Make the method ready to answer: first what is quick to check, the small model last."""
    repairer = make_repairer(settings, resources.graph, resources.chat, resources.chosen_chooser)
    if repairer is None:
        check_unused(settings, ("stop", "width", "embedder"))
    generator = resources.generator if settings.write else NoPaths()
    return RouterKgqa(resources, settings, generator, repairer)


ROUTERKGQA = MethodMaker(RouterKgqaSettings, _make)
