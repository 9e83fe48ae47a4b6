"""Find a path for a question whose written paths will not do: blueprint, then beam search.

The graph proposes, the chooser disposes: every path that is looked at exists. The broken path is
never offered back. The depth is how far is searched at most; shorter paths stay in the choice, as
the small model's depth is often wrong where its path is. At most one call for the blueprint and one
for each step of the search are made, and one more a step where the model itself judges how far to
go.

Source: RouterKGQA §3.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from typing import Literal as Choice

from kbqa.engine.embedder import Embedder
from kbqa.engine.linking_features import stems
from kbqa.engine.linking_model import LinkingModel
from kbqa.engine.repair.carry import carry_constraints
from kbqa.engine.repair.chooser import Chooser
from kbqa.engine.repair.frontiers import Frontiers, RelationPath
from kbqa.engine.repair.path_search import Guide, PathSearch, ScoredPath, SearchWidths
from kbqa.engine.repair.prompts import written_path
from kbqa.kb.graph import Graph
from kbqa.kb.graph_schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.words import describe_dropped

Stop = Choice["model", "blueprint", "judge"]
"""What says how deep to search: the small model's path, the number of the blueprint's steps, or the
general model after each step. Source: RouterKGQA §3.3, "Stopping criterion", and Table 3."""

MAX_DEPTH = 4
"""Hops that are searched at most, and one more where the last leads through a mediator.

The benchmarks' gold paths have no more but in a handful of questions."""

_UNKNOWN_DEPTH = 2

_HOP_COST = 0.05
"""Of a cosine; see `Guide.hop_cost`. On held-out questions 0.03 to 0.1 did alike."""


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """How paths are searched.

    Attributes:
        widths: How much each step keeps.
        stop: What says how deep to search.
    """

    widths: SearchWidths = field(default_factory=SearchWidths)
    stop: Stop = "model"


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a question whose written paths will not do.

    Attributes:
        reason: Why they will not do, in a few words.
        question: As asked.
        asked: The question without its mention of the topic, to liken paths to.
        topics: Where to start from, each with its mid; one at least.
        crp: The small model's CRP that answers, or else its best, grounded: its constraints are
            carried over, and its depth says how deep to search; None where it wrote none that could
            be read and grounded.
        known: Paths that were written and exist, but are not trusted: the last choice is also
            between these.
    """

    reason: str
    question: str
    asked: str
    topics: tuple[Entity, ...]
    crp: Crp | None
    known: tuple[RelationPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair came to.

    Attributes:
        reason: Why the written paths will not do, in a few words.
        crp: The path that was found, with the constraints that it could carry; None where the graph
            has no path from the topics.
        blueprint: The steps that the general model named.
        depth: Hops that were searched at most.
        candidates: What the last choice was made from, most like the question first.
        chosen: The candidate that was chosen, by its index; None where there is none.
        lost: Constraints of the failed CRP that the new path could not carry, in words.
        queries: Searches that the graph was asked for.
        is_known: The chosen path is the one that answered before; `crp` is its own, as it was.
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

    def to_dict(self) -> dict[str, Any]:
        """Make a JSON record."""
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
        }


class Repairer:
    """Repairs the paths of any number of questions. Any number of threads may use one.

    Args:
        graph: The graph.
        embedder: Likens paths to questions.
        settings: How paths are searched.
        asking: Knows which relations words ask for; None to go by the embedder alone.

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
        """Say for a manifest what decides its paths."""
        settings = self._settings
        return {**asdict(settings.widths), "stop": settings.stop, "embedder": self._embedder.name}

    def repair(self, failure: Failure, chooser: Chooser) -> Repair:
        """Find a path for a question.

        Raises:
            ModelError: The general model failed.
            GraphError: The graph does not answer.
        """
        question, settings = failure.question, self._settings
        blueprint = chooser.plan(question)
        depth = _depth(settings.stop, failure.crp, blueprint)
        frontiers = Frontiers(self._graph, self._schema)
        search = self._search(failure.asked, blueprint, frontiers)

        beam = [RelationPath(topic) for topic in failure.topics]
        found: list[ScoredPath] = []
        for _ in range(depth):
            longer = search.extend(beam)
            found += longer
            unfinished = search.best(each for each in longer if len(each.path.hops) < depth)
            if not unfinished:
                break
            beam = chooser.choose(question, blueprint, unfinished, settings.widths.beam)
            if settings.stop == "judge" and chooser.is_enough(question, beam):
                found = [each for each in found if each.path in beam]
                break
        candidates = search.best(found, failure.known)
        if not candidates:
            return Repair(failure.reason, None, blueprint, depth, (), None, (), frontiers.queries)

        [best] = chooser.choose(question, blueprint, candidates, 1)
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
        )

    def _search(self, asked: str, blueprint: Sequence[str], frontiers: Frontiers) -> PathSearch:
        relations = {} if self._asking is None else self._asking.asked_relations(stems(asked))
        guide = Guide(asked, (*blueprint, asked), relations, _HOP_COST)
        return PathSearch(frontiers, self._schema, self._embedder, guide, self._settings.widths)


def _depth(stop: Stop, failed: Crp | None, blueprint: Sequence[str]) -> int:
    """Tell how many hops a path may have."""
    if stop == "judge":
        return MAX_DEPTH
    if stop == "model" and failed is not None:
        return min(len(failed.path), MAX_DEPTH)
    return min(len(blueprint), MAX_DEPTH) or _UNKNOWN_DEPTH
