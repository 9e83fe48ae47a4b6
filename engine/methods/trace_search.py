"""The search of TRACE: trajectories are followed to their end, one after the other, best first.

A trajectory is a path of relations, and leads to a set of nodes. It ends when it has `depth` hops,
where no relation leads on, where none is proposed, or where none is good enough.

An iteration takes the most relevant trajectory that has not ended, the oldest of equals, and
follows it to its end: at each hop relations are proposed and ranked, the best is followed, and the
others that are good enough wait for a later iteration. So later trajectories can learn from earlier
ones (`Priors`). Each topic's own first trajectory comes before all others.

Without a language model there is no narrative and no ranking: all relations that the embedder or
chance proposes are followed.

Source: TRACE §3.4, §3.6 and algorithm 1, whose two loops are read as above.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from kbqa.engine.deciding.choosing import Choice
from kbqa.engine.deciding.reading import (
    Picked,
    clip_unread,
    read_choice,
    read_record,
    read_scores,
)
from kbqa.engine.deciding.session import Session, Stop
from kbqa.engine.graph_walk import Directions, Frontiers, RelationPath, drawn_hop
from kbqa.engine.methods.options import check_counts
from kbqa.engine.methods.trace_prompts import (
    START,
    generalise_prompt,
    narrate_prompt,
    propose_prompt,
    rank_prompt,
    summarise_prompt,
)
from kbqa.kb.graph import prompt_line
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.errors import InputError

Context = Literal["narrative", "relations", "none"]
AnswerBy = Literal["joined", "ends", "llm"]
PathScore = Literal["mean", "product", "min", "last"]


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """The settings of TRACE; each says its meaning. Source of the defaults: TRACE §4.1."""

    candidates: Annotated[
        int, "Relations that are proposed at each hop; the paper has 3 for WebQSP, 4 for CWQ (k)."
    ] = 3
    depth: Annotated[int, "Hops of a trajectory, at most (L)."] = 4
    keep: Annotated[
        float, "The score from which a proposed relation is followed; a language model's only (ζ)."
    ] = 0.5
    iterations: Annotated[int, "Trajectories that are followed to their end, at most (I)."] = 30
    context: Annotated[
        Context,
        "What relations are proposed by: a narrative of the path so far, its relations as they "
        "are, or nothing.",
    ] = "narrative"
    priors: Annotated[
        bool, "Whether trajectories that ended are summarised, and what they teach is used."
    ] = True
    eager_priors: Annotated[
        bool,
        "Whether that is done as soon as a trajectory ends, as the paper does, and not when it is "
        "first needed: the same answers with more calls.",
    ] = False
    # The product always prefers short paths.
    path_score: Annotated[
        PathScore, "How the scores of a trajectory's hops become its relevance."
    ] = "mean"
    answer: Annotated[
        AnswerBy,
        "What is answered: the ends of the most relevant trajectory, those ends that trajectories "
        "from the other topics also lead to, or those that the language model picks.",
    ] = "joined"
    directions: Annotated[
        Directions, "Whether relations are also followed backwards; the paper only leaves nodes."
    ] = "both"
    max_relations: Annotated[
        int, "Relations of a hop that a language model is shown: those most like the question."
    ] = 100
    seed: Annotated[int, "For the random chooser."] = 42

    def __post_init__(self) -> None:
        check_counts(self, "candidates", "depth", "iterations", "max_relations")
        if not 0 <= self.keep <= 1:
            raise InputError(f"keep is {self.keep}: use a score from 0 to 1")
        if self.eager_priors and not self.priors:
            raise InputError("eager_priors=yes is about priors, and there are none: priors=no")

    @property
    def of_language_model(self) -> str:
        """The changed settings that only a language model uses, as text."""
        changed = {
            f"answer={self.answer}": self.answer == "llm",
            f"context={self.context}": self.context != "narrative",
            "priors=no": not self.priors,
            "eager_priors=yes": self.eager_priors,
        }
        return ", ".join(text for text, is_changed in changed.items() if is_changed)


Ending = Literal["depth", "no relations", "none proposed", "none kept", "unreadable", "budget"]

ENDINGS: Mapping[Ending, str] = {
    "depth": "it has as many relations as are allowed",
    "no relations": "no relation leads on from its end",
    "none proposed": "no relation from its end was likely to lead closer to the answer",
    "none kept": "no relation from its end fitted well enough",
    "unreadable": "no relation that leads on was named",
    "budget": "the calls were spent",
}


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A path of relations from a topic, and the score of each of its hops, from 0 to 1."""

    path: RelationPath
    scores: tuple[float, ...] = ()

    def then(self, hop: Hop, score: float) -> "Trajectory":
        """Append a hop."""
        return Trajectory(self.path.then(hop), (*self.scores, score))

    def relevance(self, by: PathScore) -> float:
        """Return its relevance: 1 at its topic, else by the scores of its hops."""
        if not self.scores:
            return 1.0
        match by:
            case "mean":
                return sum(self.scores) / len(self.scores)
            case "product":
                return math.prod(self.scores)
            case "min":
                return min(self.scores)
            case "last":
                return self.scores[-1]

    def drawn(self) -> str:
        """Draw its path in a line."""
        return drawn_path(self.path)


@dataclass(frozen=True, slots=True)
class Ended:
    """A trajectory that ended, and why."""

    trajectory: Trajectory
    why: Ending

    def to_dict(self, by: PathScore) -> dict[str, Any]:
        """Return a JSON record."""
        path = self.trajectory.path
        return {
            "topic": path.topic.mid,
            "hops": [[hop.relation, hop.inverse] for hop in path.hops],
            "scores": [round(score, 4) for score in self.trajectory.scores],
            "relevance": round(self.trajectory.relevance(by), 4),
            "ended": self.why,
        }


def drawn_path(path: RelationPath) -> str:
    """Draw a path in a line; the topic's id tells topics of one name apart.

    >>> from kbqa.sparql.crp import Entity
    >>> drawn_path(RelationPath(Entity("Kenya", "m.k"), (Hop("a.b"), Hop("c.d", inverse=True))))
    'Kenya (m.k) -> a.b <- c.d'
    """
    hops = (f" {drawn_hop(hop)}" for hop in path.hops)
    return f"{prompt_line(str(path.topic))} ({path.topic.mid}){''.join(hops)}"


LAST_SUMMARIES = 8  # from which advice is written
_SUMMARY_TOKENS, _ADVICE_TOKENS = 128, 256


class Priors:
    """The advice of a question's ended trajectories for the next ones.

    Each trajectory is summarised, and advice is written from the summaries, which only the ranking
    of relations reads. So both are done when a ranking is next due, with the same decisions.

    The advice is rewritten each time from the last summaries of this question. The paper writes it
    from the advice before and the new summary, which drifts; advice from other test questions would
    be training on them.

    Source: TRACE §3.4; algorithm 1, lines 9 to 12.
    """

    def __init__(self, session: Session, settings: TraceSettings) -> None:
        self._session, self._settings = session, settings
        self._has_any = settings.priors and session.has_language_model
        self._due: list[Ended] = []
        self._summaries: list[str] = []
        self.written: list[str] = []  # the advice, after each time

    @property
    def advice(self) -> str:
        """The latest advice; empty before the first."""
        return self.written[-1] if self.written else ""

    def learn(self, ended: Ended) -> None:
        """Note a trajectory that ended, if it has any relation."""
        if self._has_any and ended.trajectory.path.hops:
            self._due.append(ended)
            if self._settings.eager_priors:
                self.update()

    def update(self) -> None:
        """Have new trajectories summarised, and the advice rewritten."""
        if not self._due:
            return
        while self._due:
            summary = self._ask_summary(self._due[0])
            if summary is None:
                return
            self._due.pop(0)
            self._summaries.append(summary)
        prompt = generalise_prompt(self._session.question, self._summaries[-LAST_SUMMARIES:])
        advice = self._session.ask("generalise", prompt, max_tokens=_ADVICE_TOKENS)
        if advice is not None:
            self.written.append(" ".join(advice.split()))

    def _ask_summary(self, ended: Ended) -> str | None:
        trajectory, directions = ended.trajectory, self._settings.directions
        relations = [drawn_hop(hop, directions) for hop in trajectory.path.hops]
        prompt = summarise_prompt(self._session.question, relations, ENDINGS[ended.why])
        summary = self._session.ask(
            "summarise",
            prompt,
            hop=len(relations),
            at=trajectory.drawn(),
            max_tokens=_SUMMARY_TOKENS,
        )
        return None if summary is None else " ".join(summary.split())


_NARRATIVE_TOKENS, _PROPOSAL_TOKENS, _RANKING_TOKENS = 96, 192, 256


@dataclass(frozen=True, slots=True)
class Explored:
    """The trajectories that a search followed, and those that are still pending."""

    ended: tuple[Ended, ...]
    pending: tuple[Trajectory, ...]
    stop: Stop
    rollouts: int  # trajectories that were followed
    priors: tuple[str, ...]  # each version of the advice


class Search:
    """The search for the trajectories of one question."""

    def __init__(
        self,
        session: Session,
        frontiers: Frontiers,
        schema: GraphSchema,
        settings: TraceSettings,
    ) -> None:
        self._session, self._frontiers = session, frontiers
        self._schema, self._settings = schema, settings
        self._priors = Priors(session, settings)
        self._pending: list[Trajectory] = []

    def explore(self) -> Explored:
        """Follow trajectories from all topics, until none is left or enough were followed."""
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
        shown = hops
        if self._session.has_language_model:
            words = [relation_words(hop.relation) for hop in hops]
            most_similar = self._session.most_similar(words, self._settings.max_relations)
            shown = [hops[at] for at in most_similar]
        hidden = len(hops) - len(shown)
        return sorted(shown, key=lambda hop: (hop.relation, hop.inverse)), hidden

    def _context(self, trajectory: Trajectory) -> str | None:
        """Return the context of a proposal; None if no call is left for it."""
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

        Also return whether no call was left for it: only the first of them is taken then.
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
        """Have relations scored with the latest advice; None if no call is left."""
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
        return tuple(drawn_hop(hop, self._settings.directions) for hop in hops)

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

    If the reply scores none, the first option gets the score `keep`, and the reply is unread.

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
