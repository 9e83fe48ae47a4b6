"""Find a path for a question whose written paths will not do: blueprint, then beam search.

The graph proposes and the chooser decides, so every path that is considered exists. The broken path
is never offered again. The depth bounds the search; shorter paths stay in the choice, because the
small model's depth is often wrong when its path is. There is at most one call for the blueprint and
one for each step of the search, and one more for each step if the model itself judges how far to
go.

Source: RouterKGQA §3.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.exploring.bounded_graph import BoundedGraph
from kbqa.engine.exploring.frontiers import Frontiers, RelationPath
from kbqa.engine.linking.features import stems
from kbqa.engine.linking.model import LinkingModel
from kbqa.engine.method import Budget, Clock
from kbqa.engine.methods.router.chooser import Chooser
from kbqa.engine.methods.router.prompts import written_path
from kbqa.engine.methods.router.search.carry import carry_constraints
from kbqa.engine.methods.router.search.path_search import (
    HOP_COST,
    Guide,
    PathSearch,
    ScoredPath,
    SearchWidths,
)
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.forms.english import describe_dropped

Stop = Literal["model", "blueprint", "judge"]

MAX_DEPTH = 4
"""Hops that are searched at most, and one more if the last leads through a mediator.

Only a handful of the benchmarks' gold paths have more."""

_UNKNOWN_DEPTH = 2


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """How paths are searched.

    Attributes:
        widths: How much each step keeps.
        stop: What decides how deep to search: the small model's path, the number of the
            blueprint's steps, or the general model after each step.

    Source: RouterKGQA §3.3, "Stopping criterion", and Table 3.
    """

    widths: SearchWidths = field(default_factory=SearchWidths)
    stop: Stop = "model"


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a question whose written paths will not do.

    Attributes:
        reason: Why they will not do, in a few words.
        question: As asked.
        asked: The question without its mention of the topic; paths are compared with it.
        topics: Where to start from, each with its mid; at least one.
        crp: The small model's CRP that answers, or else its best, grounded: its constraints are
            carried over, and its depth decides how deep to search. None if it wrote none that could
            be read and grounded.
        known: Paths that were written and exist, but are not trusted: the last choice is also
            among these.
    """

    reason: str
    question: str
    asked: str
    topics: tuple[Entity, ...]
    crp: Crp | None
    known: tuple[RelationPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair.

    Attributes:
        reason: Why the written paths will not do, in a few words.
        crp: The path that was found, with the constraints that it could carry; None if the graph
            has no path from the topics.
        blueprint: The steps that the general model named.
        depth: Hops that were searched at most.
        candidates: What the last choice was made from, most similar to the question first.
        chosen: The candidate that was chosen, by its index; None if there is none.
        lost: Constraints of the failed CRP that the new path could not carry, in words.
        queries: Searches of the graph.
        is_known: The chosen path is the one that answered before; `crp` is its own, unchanged.
        is_cut_short: The call budget was spent before the search was over.
    """

    reason: str
    crp: Crp | None
    blueprint: tuple[str, ...]
    depth: int
    candidates: tuple[ScoredPath, ...]
    chosen: int | None
    lost: tuple[str, ...]
    queries: int
    is_known: bool = False
    is_cut_short: bool = False

    @property
    def is_new(self) -> bool:
        """Whether it found a path that did not answer before."""
        return self.crp is not None and not self.is_known

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        return {
            "reason": self.reason,
            "blueprint": list(self.blueprint),
            "depth": self.depth,
            "candidates": [
                {"path": written_path(each.path), "score": round(each.score, 4)}
                for each in self.candidates
            ],
            "chosen": self.chosen,
            "lost": list(self.lost),
            "queries": self.queries,
            "is_known": self.is_known,
            **({"is_cut_short": True} if self.is_cut_short else {}),
        }


class Repairer:
    """Repairs the paths of any number of questions. Any number of threads may use one.

    Args:
        graph: The graph.
        embedder: Compares paths with questions.
        settings: How paths are searched.
        asking: Knows which relations words ask for; None to use the embedder alone.

    Raises:
        StoreError: The store's schema is missing or broken.
    """

    def __init__(
        self,
        graph: Graph,
        embedder: Embedder,
        settings: RepairSettings | None = None,
        asking: LinkingModel | None = None,
    ) -> None:
        self._graph, self._embedder, self._asking = graph, embedder, asking
        self._settings = settings or RepairSettings()
        self._schema = GraphSchema(graph)

    def settings(self) -> Mapping[str, object]:
        """Return what decides its paths, for manifests."""
        settings = self._settings
        return {**asdict(settings.widths), "stop": settings.stop, "embedder": self._embedder.name}

    def repair(
        self,
        failure: Failure,
        chooser: Chooser,
        clock: Clock | None = None,
        budget: Budget | None = None,
    ) -> Repair:
        """Find a path for a question.

        Each blueprint, choice and judgement is one call. Once the budget refuses one, the search
        ends, and the last call chooses among what it has found.

        Args:
            failure: What is known of the question.
            chooser: Makes the decisions.
            clock: Of the question; None for any time.
            budget: The calls that are left for it; None for any number.

        Raises:
            ModelError: The general model failed.
            GraphError: The graph does not answer.
            DeadlineExceeded: The question's deadline has passed.
        """
        question, settings = failure.question, self._settings
        calls = _Calls(budget or Budget())
        blueprint = chooser.plan(question) if chooser.plans and calls.take() else ()
        depth = _depth(settings.stop, failure.crp, blueprint)
        graph = self._graph if clock is None else BoundedGraph(self._graph, clock.bound)
        frontiers = Frontiers(graph, self._schema)
        search = self._search(failure.asked, blueprint, frontiers)

        beam = [RelationPath(topic) for topic in failure.topics]
        found: list[ScoredPath] = []
        for _ in range(depth):
            longer = search.extend(beam)
            found += longer
            unfinished = search.best(each for each in longer if len(each.path.hops) < depth)
            if not unfinished:
                break
            beam = [each.path for each in unfinished]
            if len(beam) > settings.widths.beam:
                if not calls.take():
                    break
                beam = chooser.choose(question, blueprint, unfinished, settings.widths.beam)
            if settings.stop == "judge":
                if not calls.take():
                    break
                if chooser.is_enough(question, beam):
                    found = [each for each in found if each.path in beam]
                    break
        candidates = search.best(found, failure.known)
        if len(candidates) > 1 and calls.take_last():
            [best] = chooser.choose(question, blueprint, candidates, 1)
        elif len(candidates) == 1:
            best = candidates[0].path
        else:
            return Repair(
                reason=failure.reason,
                crp=None,
                blueprint=blueprint,
                depth=depth,
                candidates=tuple(candidates),
                chosen=None,
                lost=(),
                queries=frontiers.queries,
                is_cut_short=calls.are_spent,
            )

        crp, lost = Crp(best.topic, best.hops), list[str]()
        is_known = best in failure.known
        if is_known and failure.crp is not None:
            crp = failure.crp
        elif failure.crp is not None:
            carried = carry_constraints(failure.crp, best, frontiers)
            crp, lost = carried.crp, describe_dropped(carried.lost, failure.crp)
        return Repair(
            reason=failure.reason,
            crp=crp,
            blueprint=blueprint,
            depth=depth,
            candidates=tuple(candidates),
            chosen=[each.path for each in candidates].index(best),
            lost=tuple(lost),
            queries=frontiers.queries,
            is_known=is_known,
            is_cut_short=calls.are_spent,
        )

    def _search(self, asked: str, blueprint: Sequence[str], frontiers: Frontiers) -> PathSearch:
        relations = {} if self._asking is None else self._asking.asked_relations(stems(asked))
        guide = Guide(asked, (*blueprint, asked), relations, HOP_COST)
        return PathSearch(frontiers, self._schema, self._embedder, guide, self._settings.widths)


class _Calls:
    """The calls of one repair, which remembers whether one was refused."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.are_spent = False

    def take(self) -> bool:
        return self._noted(self._budget.take() == 1)

    def take_last(self) -> bool:
        return self._noted(self._budget.take_last())

    def _noted(self, is_taken: bool) -> bool:
        self.are_spent = self.are_spent or not is_taken
        return is_taken


def _depth(stop: Stop, failed: Crp | None, blueprint: Sequence[str]) -> int:
    """Return how many hops a path may have."""
    if stop == "judge":
        return MAX_DEPTH
    if stop == "model" and failed is not None:
        return min(len(failed.path), MAX_DEPTH)
    return min(len(blueprint), MAX_DEPTH) or _UNKNOWN_DEPTH
