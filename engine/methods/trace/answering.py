"""From trajectories to paths that are run: which of them compete, in what order, what is joined.

Every trajectory that ended competes, by its relevance. The first whose path has answers when it is
run is the one that answers.

If a question has several topics, the answer should be reached from all of them. So the most
relevant trajectory from each other topic that reaches an end of this one becomes a constraint of
its path: the answer has a way back to the other topic. A constraint that nothing satisfies is
dropped. Topics that are readings of the same words are not joined.

Without a language model, nothing says where a trajectory should end. So every beginning of a
trajectory competes, unless it ends at mediators. The embedder compares its relations with the
question, and each hop has a cost, since similarity alone favours long paths. By chance, the order
is drawn.

Source: TRACE algorithm 1, line 14, and equation 4. The paper does not say what is answered but the
ends of a trajectory, though its example is one end of many; the constraints are ours.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbqa.engine.deciding.answering import HOP_COST
from kbqa.engine.deciding.choice import Step
from kbqa.engine.deciding.choosers import draw
from kbqa.engine.deciding.session import Session
from kbqa.engine.embedding.embedder import Embedder, relation_words
from kbqa.engine.exploring.frontiers import Frontiers, RelationPath
from kbqa.engine.exploring.path_ends import MAX_NODES
from kbqa.engine.methods.trace.search import Explored
from kbqa.engine.methods.trace.settings import TraceSettings
from kbqa.engine.methods.trace.trajectories import drawn_path
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity, IsNotEntity
from kbqa.sparql.forms import render_crp

_LEAST = 1e-4
"""Of a relevance, so that its logarithm is a number that JSON has."""


class RankedPath(NamedTuple):
    """A path that may answer, and how relevant it is; at most 1."""

    path: RelationPath
    relevance: float


def rank_paths(
    explored: Explored,
    session: Session,
    frontiers: Frontiers,
    settings: TraceSettings,
    embedder: Embedder | None,
) -> list[RankedPath]:
    """Sort the paths that may answer, the most relevant first, the older of equals.

    Args:
        explored: What the search came to.
        session: Of the question.
        frontiers: Of the question.
        settings: Of the method.
        embedder: Compares paths with the question if no language model decides; None if chance
            does.
    """
    if session.has_language_model:
        trajectories = [ended.trajectory for ended in explored.ended]
        ranked = [RankedPath(t.path, t.relevance(settings.path_score)) for t in trajectories]
        return sorted(ranked, key=lambda each: -each.relevance)
    paths = [path for path in _beginnings(explored) if not frontiers.ends_at_mediator(path)]
    if not paths or not session.asked.budget.take_last():
        return []
    if embedder is None:
        drawn = draw(len(paths), len(paths), settings.seed, session.question, "answer")
        ranked = [RankedPath(paths[at], 1.0) for at in drawn]
    else:
        words = [[relation_words(hop.relation) for hop in path.hops] for path in paths]
        cosines = embedder.sum_similarity(session.question, words)
        costs = [HOP_COST * _counted_hops(path, frontiers) for path in paths]
        scores = [round(cos - cost, 6) for cos, cost in zip(cosines, costs, strict=True)]
        ranked = sorted(map(RankedPath, paths, scores), key=lambda each: -each.relevance)
    session.steps.append(Step("answer", chosen=(drawn_path(ranked[0].path),)))
    return ranked


def write_candidates(
    ranked: Sequence[RankedPath],
    session: Session,
    frontiers: Frontiers,
    settings: TraceSettings,
) -> list[Candidate]:
    """Write paths as candidates, in their order, each joined with those from other topics.

    Raises:
        GraphError: The graph does not answer.
        DeadlineExceeded: The question's deadline has passed.
    """
    candidates = []
    joining = _Joining(session, frontiers, ranked, settings.keep)
    for path, relevance in ranked:
        constraints = tuple(joining.constraints(path)) if settings.answer == "joined" else ()
        text = render_crp(Crp(path.topic, path.hops, constraints))
        assert path.topic.mid is not None
        logprob = math.log(max(relevance, _LEAST))
        candidates.append(Candidate(text, logprob, tokens=1, topics=(path.topic.mid,)))
    return candidates


class _Joining:
    """Finds the paths from other topics that meet a path at its end."""

    def __init__(
        self, session: Session, frontiers: Frontiers, ranked: Sequence[RankedPath], keep: float
    ) -> None:
        self._frontiers = frontiers
        mentions = {each.mid: each.mention for each in session.asked.linked}
        self._words = {topic: mentions.get(topic.mid or "") for topic in session.topics}
        least = keep if session.has_language_model else 0.0
        self._paths = [each.path for each in ranked if each.relevance >= least]

    def constraints(self, path: RelationPath) -> Iterator[Constraint]:
        """Yield constraints for each other topic that has a path to an end of this one."""
        if path not in self._paths:
            return
        for topic in self._words:
            if topic.mid == path.topic.mid or self._are_readings(topic, path.topic):
                continue
            from_there = (each for each in self._paths if each.topic == topic)
            meeting = next((each for each in from_there if self._may_meet(path, each)), None)
            if meeting is not None:
                end, way = len(path.hops), reversed(meeting.hops)
                way_back = tuple(Hop(hop.relation, not hop.inverse) for hop in way)
                # As no path answers with its own topic. What comes last is dropped first.
                yield Constraint(end, (), IsNotEntity(topic))
                yield Constraint(end, way_back, IsEntity(topic))

    def _are_readings(self, one: Entity, other: Entity) -> bool:
        """Return whether two topics are what the same words of the question may mean."""
        return self._words[one] is not None and self._words[one] == self._words[other]

    def _may_meet(self, path: RelationPath, other: RelationPath) -> bool:
        """Return whether two paths share an end, as far as their ends are known."""
        ends, others = self._frontiers.nodes(path), self._frontiers.nodes(other)
        if not ends or not others:
            return False
        is_cut = max(len(ends), len(others)) >= MAX_NODES
        return is_cut or bool(set(ends) & set(others) - {path.topic.mid, other.topic.mid})


def _beginnings(explored: Explored) -> list[RelationPath]:
    """List every path that was followed or kept, each once, the oldest first."""
    trajectories = [*(ended.trajectory for ended in explored.ended), *explored.pending]
    paths: dict[RelationPath, None] = {}
    for path in (each.path for each in trajectories):
        for at in range(1, len(path.hops) + 1):
            paths[RelationPath(path.topic, path.hops[:at])] = None
    return list(paths)


def _counted_hops(path: RelationPath, frontiers: Frontiers) -> int:
    """Count the hops of a path that do not end at mediators."""
    beginnings = (RelationPath(path.topic, path.hops[:at]) for at in range(1, len(path.hops) + 1))
    return sum(not frontiers.ends_at_mediator(each) for each in beginnings)
