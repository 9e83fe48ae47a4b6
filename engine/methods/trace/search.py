"""The search of TRACE: trajectories are followed to their end, one after the other, best first.

An iteration takes the most relevant trajectory that has not ended, the oldest of equals, and
follows it to its end: at each hop relations are proposed and ranked, the best is followed, and the
others that are good enough wait for a later iteration. So later trajectories can use what earlier
ones taught. Each topic's own first trajectory comes before all others.

A trajectory is a path of relations and stands at the set of all nodes that these lead to, not at
one of them. It ends when it has `depth` hops, where no relation leads on, where none is proposed,
or where none is good enough.

Without a language model there is no narrative and no ranking: the relations that the embedder finds
most similar to the question, or that chance draws, are all followed, at the embedder's scores.

Source: TRACE §3.6 and algorithm 1, whose two loops are read as above.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kbqa.engine.deciding.choice import Choice, Picked
from kbqa.engine.deciding.reading import clip_unread, read_choice, read_record, read_scores
from kbqa.engine.deciding.session import Session
from kbqa.engine.deciding.trace import Stop
from kbqa.engine.embedding.embedder import Embedder, relation_words
from kbqa.engine.exploring.frontiers import Frontiers, RelationPath
from kbqa.engine.methods.trace.priors import Priors
from kbqa.engine.methods.trace.prompts import (
    START,
    narrate_prompt,
    propose_prompt,
    rank_prompt,
    relation_option,
)
from kbqa.engine.methods.trace.settings import TraceSettings
from kbqa.engine.methods.trace.trajectories import Ended, Trajectory
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Hop

_NARRATIVE_TOKENS, _PROPOSAL_TOKENS, _RANKING_TOKENS = 96, 192, 256


@dataclass(frozen=True, slots=True)
class Explored:
    """What a search came to.

    Attributes:
        ended: Trajectories that ended, in that order.
        pending: Those that were kept and not followed to their end.
        stop: Why the search stopped.
        rollouts: How many trajectories were followed.
        priors: The advice after each time that it was written.
    """

    ended: tuple[Ended, ...]
    pending: tuple[Trajectory, ...]
    stop: Stop
    rollouts: int
    priors: tuple[str, ...]


class Search:
    """Searches the trajectories of one question.

    Args:
        session: Of the question.
        frontiers: Of the question.
        schema: Of the graph.
        settings: Of the method.
        embedder: Cuts long lists of relations for a language model; None if none decides.
    """

    def __init__(
        self,
        session: Session,
        frontiers: Frontiers,
        schema: GraphSchema,
        settings: TraceSettings,
        embedder: Embedder | None,
    ) -> None:
        self._session, self._frontiers, self._schema = session, frontiers, schema
        self._settings, self._embedder = settings, embedder
        self._priors = Priors(session, settings)
        self._pending: list[Trajectory] = []

    def explore(self) -> Explored:
        """Follow trajectories from all topics, until none is left or enough were followed.

        Raises:
            ModelError: A model failed.
            GraphError: The graph does not answer.
            DeadlineExceeded: The question's deadline has passed.
        """
        topics = [topic for topic in self._session.topics if topic.mid is not None]
        self._pending = [Trajectory(RelationPath(topic)) for topic in topics]
        ended: list[Ended] = []
        rollouts = 0
        while self._pending and rollouts < self._settings.iterations:
            rollouts += 1
            ended.append(self._follow(self._next()))
            if ended[-1].why == "budget":
                break
            self._priors.learn(ended[-1])
        return Explored(
            tuple(each for each in ended if each.trajectory.path.hops),
            tuple(each for each in self._pending if each.path.hops),
            self._stop(ended),
            rollouts,
            tuple(self._priors.written),
        )

    def _next(self) -> Trajectory:
        """Take the most relevant trajectory that has not ended, topics before all others."""
        by = self._settings.path_score
        best = max(self._pending, key=lambda each: (not each.scores, each.relevance(by)))
        self._pending.remove(best)
        return best

    def _follow(self, trajectory: Trajectory) -> Ended:
        """Follow a trajectory to its end, and keep the branches on the way."""
        while len(trajectory.scores) < self._settings.depth:
            hops, hidden = self._hops(trajectory)
            if not hops:
                return Ended(trajectory, "no relations")
            context = self._context(trajectory)
            if context is None:
                return Ended(trajectory, "budget")
            proposed = self._propose(trajectory, context, hops, hidden)
            if proposed is None:
                return Ended(trajectory, "budget")
            if not proposed.chosen:
                return Ended(trajectory, "none proposed" if proposed.stops else "unreadable")
            branches, is_cut = self._branches(trajectory, hops, proposed)
            if not branches:
                return Ended(trajectory, "none kept")
            trajectory, *others = branches
            self._pending += others
            if is_cut:
                return Ended(trajectory, "budget")
        return Ended(trajectory, "depth")

    def _hops(self, trajectory: Trajectory) -> tuple[Sequence[Hop], int]:
        """Find the relations that lead on, sorted by name; also how many are not shown."""
        with self._session.asked.clock.stage("explore"):
            found = self._frontiers.hops(trajectory.path)
            edges = self._schema.canonical(found)
        # An edge that can be followed by two names is offered by the outgoing one.
        named = zip(reversed(edges), reversed(found), strict=True)
        hops = list(dict(named).values())
        most, hidden = self._settings.max_relations, 0
        if self._embedder is not None and len(hops) > most:
            hidden = len(hops) - most
            words = [relation_words(hop.relation) for hop in hops]
            scores = self._embedder.similarity(self._session.question, words)
            order = sorted(range(len(hops)), key=lambda at: (-round(scores[at], 6), at))
            hops = [hops[at] for at in order[:most]]
        return sorted(hops, key=lambda hop: (hop.relation, hop.inverse)), hidden

    def _context(self, trajectory: Trajectory) -> str | None:
        """Return what relations are proposed by; None if no call is left for it."""
        relations, session = self._relations(trajectory), self._session
        if not relations or not session.has_language_model or self._settings.context == "none":
            return START
        if self._settings.context == "relations":
            return ", ".join(relations)
        narrative = session.ask(
            "narrate",
            narrate_prompt(session.question, relations),
            hop=len(relations) + 1,
            at=trajectory.drawn(),
            max_tokens=_NARRATIVE_TOKENS,
        )
        return None if narrative is None else " ".join(narrative.split())

    def _propose(
        self, trajectory: Trajectory, context: str, hops: Sequence[Hop], hidden: int
    ) -> Picked | None:
        """Have some relations proposed as the next; None if no call is left."""
        options, most = self._options(hops), self._settings.candidates
        start = str(trajectory.path.topic)
        return self._session.choose(
            Choice(
                kind="relations",
                hop=len(trajectory.scores) + 1,
                at=trajectory.drawn(),
                options=options,
                meanings=tuple(relation_words(hop.relation) for hop in hops),
                most=most,
                prompt=tuple(propose_prompt(self._session.question, start, context, options, most)),
                read=partial(read_choice, options=options, most=most),
                hidden=hidden,
                max_tokens=_PROPOSAL_TOKENS,
            )
        )

    def _branches(
        self, trajectory: Trajectory, hops: Sequence[Hop], proposed: Picked
    ) -> tuple[list[Trajectory], bool]:
        """Have the proposed relations ranked, and keep those that are good enough, best first.

        Returns:
            The branches, and whether the calls were spent before the relations could be ranked:
            the first that was proposed is then taken alone.
        """
        candidates = [hops[at] for at in proposed.chosen]
        if not self._session.has_language_model:
            scored = zip(candidates, proposed.scores, strict=True)
            return [trajectory.then(hop, score) for hop, score in scored], False
        keep = self._settings.keep
        self._priors.update()
        ranked = self._rank(trajectory, candidates)
        if ranked is None:
            return [trajectory.then(candidates[0], keep)], True
        scores = zip(ranked.chosen, ranked.scores, strict=True)
        return [trajectory.then(candidates[at], s) for at, s in scores if s >= keep], False

    def _rank(self, trajectory: Trajectory, candidates: Sequence[Hop]) -> Picked | None:
        """Have relations scored with what earlier trajectories taught; None if no call is left."""
        options = self._options(candidates)
        prompt = rank_prompt(
            self._session.question,
            str(trajectory.path.topic),
            self._relations(trajectory),
            self._priors.advice,
            options,
        )
        return self._session.choose(
            Choice(
                kind="rank",
                hop=len(trajectory.scores) + 1,
                at=trajectory.drawn(),
                options=options,
                meanings=tuple(relation_words(hop.relation) for hop in candidates),
                most=len(options),
                prompt=tuple(prompt),
                read=partial(read_ranking, options=options, keep=self._settings.keep),
                max_tokens=_RANKING_TOKENS,
            )
        )

    def _options(self, hops: Sequence[Hop]) -> tuple[str, ...]:
        return tuple(relation_option(hop, self._settings.directions) for hop in hops)

    def _relations(self, trajectory: Trajectory) -> tuple[str, ...]:
        return self._options(trajectory.path.hops)

    def _stop(self, ended: Sequence[Ended]) -> Stop:
        if ended and ended[-1].why == "budget":
            return "budget"
        if self._pending:
            return "iterations"
        return "stopped" if any(each.trajectory.path.hops for each in ended) else "nothing"


def read_ranking(reply: str, options: Sequence[str], keep: float) -> Picked:
    """Read a score for each option: 0 for one that the reply leaves out.

    A reply that scores none of them gives the first the score from which relations are kept, and is
    noted as not understood.

    >>> read_ranking('{"a.b": 0.5, "x.y": 1}', ["c.d", "a.b"], 0.5)
    Picked(chosen=(1, 0), scores=(0.5, 0.0), unread=('x.y: 1',), stops=False)
    >>> read_ranking("Hard to say.", ["c.d", "a.b"], 0.5)
    Picked(chosen=(0,), scores=(0.5,), unread=('Hard to say.',), stops=False)
    """
    read = read_scores(reply, options, len(options))
    if not read.chosen and (read.unread or read_record(reply) is None):
        return Picked((0,), (keep,), read.unread or clip_unread([reply]))
    scores = dict(zip(read.chosen, read.scores, strict=True))
    order = sorted(range(len(options)), key=lambda at: (-scores.get(at, 0.0), at))
    return Picked(tuple(order), tuple(scores.get(at, 0.0) for at in order), read.unread)
