"""The search of TRACE: trajectories are followed to their end, one after the other, best first.

A trajectory is a path of relations, and leads to a set of nodes. It ends when it has `depth` hops,
where no relation leads on, where none is proposed, or where none is good enough.

An iteration takes the most relevant trajectory that has not ended, the oldest of equals, and
follows it to its end: at each hop relations are proposed and ranked, the best is followed, and the
others that are good enough wait for a later iteration. So later trajectories can learn from earlier
ones (`Priors`). Each topic's own first trajectory comes before all others.

Without a language model there is no narrative and no ranking: all relations that the embedder or
chance proposes are followed.

Prompts also name the topic that the path starts from, since a question may have several.

Source: TRACE §3.4, §3.6 and algorithm 1, whose two loops are read as above; figures 3 to 7 for the
contents and form of the prompts, whose words are ours, but for `START`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choosing import Choice, numbered, written_prompt
from kbqa.engine.deciding.reading import Picked, clip_unread, read_choice, read_record, read_scores
from kbqa.engine.deciding.session import Session, Stop
from kbqa.engine.graph_walk import Directions, Frontiers, RelationPath, drawn_hop
from kbqa.engine.methods import check_counts
from kbqa.kb.graph import prompt_line
from kbqa.sparql.crp import Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.errors import InputError

START = "This is the start of the path."  # the context of the first hop
NO_CONTEXT = "(no context is given)"  # of the others, with context=none

NARRATE = """\
A question is being answered by following relations of the Freebase knowledge graph from an entity \
that it names. Put the relations followed so far into one short sentence that says what they find, \
in the words of the question. Say only what the relations say.{arrows} Reply with the sentence \
alone.

{example}

Question: {question}
Relations so far: {relations}
Sentence:"""

# Whether relations are shown with arrows decides which of them.
_NARRATED = {
    False: """\
Question: who wrote the anthem of the country where Nairobi is?
Relations so far: location.location.containedby, location.country.national_anthem
Sentence: Find the country that contains Nairobi, and then find the anthem of that country.""",
    True: """\
Question: which rivers flow into the lake that the White Nile flows out of?
Relations so far: -> geography.river.origin, <- geography.river.mouth
Sentence: Find the lake that is the origin of the White Nile, and then find the rivers whose mouth \
is that lake.""",
}

PROPOSE = """\
A question is being answered by following relations of the Freebase knowledge graph, one after the \
other. Choose from the list below the relations, {most} at most, that are most likely to be the \
next step towards the answer.{arrows} Choose only from the list. Reply with a Python list of \
strings; if no relation leads closer to the answer, or the path has reached it, reply with [].

Question: {question}
The path starts at: {start}
Context: {context}
Relations:
{options}
"""

RANK = """\
A question is being answered by following relations of the Freebase knowledge graph. Score how \
well each of the relations below continues the path so far: 1.0 fits perfectly, 0.0 not at all. \
Heed what earlier attempts have taught.{arrows} Reply with a Python dictionary of each relation \
and its score, such as {{"people.person.parents": 0.8}}.

Question: {question}
The path starts at: {start}
Path so far: {relations}
Experience: {experience}
Relations:
{options}
"""

SUMMARISE = """\
An attempt to answer a question by following relations of a knowledge graph has ended.{arrows} Say \
in one or two short sentences what this attempt looked for, and why it ended. Write about this \
attempt alone; give no general advice. Reply with the sentences alone.

Question: {question}
Relations followed: {relations}
It ended because {reason}.
Summary:"""

GENERALISE = """\
Below are summaries of attempts to answer a question by following relations of a knowledge graph. \
Find what they have in common: which kinds of relations led nowhere, and which look promising. \
Write a few short sentences of advice for the next attempt. Name no entities. Reply with the \
advice alone.

Question: {question}
Summaries:
{summaries}
Advice:"""

ANSWER = """\
A path of relations has been followed through the Freebase knowledge graph to answer a question. \
Which of the entities at its end answer the question? Choose only from the list.{arrows} Reply \
with their names, one a line, or with NONE if none of them does.

Question: {question}
The path starts at: {start}
Path: {relations}
Entities:
{options}
"""


def filled_prompt(
    template: str,
    question: str,
    start: str = "",
    path: Sequence[str] = (),
    options: Sequence[str] = (),
    **fields: object,
) -> tuple[Message, ...]:
    """Fill in a template; the topic, the path so far and the options are where it has them."""
    has_arrows = any(shown.startswith(("-> ", "<- ")) for shown in (*path, *options))
    return written_prompt(
        template,
        question=question,
        start=prompt_line(start),
        relations=", ".join(path) or "nothing yet",
        options=numbered(list(map(prompt_line, options))),
        example=_NARRATED[has_arrows],
        arrows=" `->` follows a relation forwards, `<-` backwards." if has_arrows else "",
        **fields,
    )


PathScore = Literal["mean", "product", "min", "last"]


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """The settings of TRACE; each says its meaning.

    Source of the defaults of k, L, ζ and I: TRACE §4.1. Those of the others are ours.
    """

    candidates: Annotated[
        int, "Relations that are proposed at each hop; the paper has 3 for WebQSP, 4 for CWQ (k)."
    ] = 3
    depth: Annotated[int, "Hops of a trajectory, at most (L)."] = 4
    keep: Annotated[
        float, "The score from which a proposed relation is followed; a language model's only (ζ)."
    ] = 0.5
    iterations: Annotated[
        int,
        "Trajectories that are followed to their end, at most (I). By default a question takes at "
        "most 174 calls with one topic; --call-budget limits them.",
    ] = 30
    context: Annotated[
        Literal["narrative", "relations", "none"],
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
        Literal["joined", "ends", "llm"],
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


Ending = Literal["depth", "no relations", "none proposed", "none kept", "unreadable", "budget"]

ENDINGS: Mapping[Ending, str] = {
    "depth": "it has as many relations as are allowed",
    "no relations": "no relation leads on from its end",
    "none proposed": "no relation was proposed after it: the path has reached the answer, or none "
    "was likely to lead closer to it",
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
        summaries = "\n".join(f"- {summary}" for summary in self._summaries[-LAST_SUMMARIES:])
        prompt = filled_prompt(GENERALISE, self._session.question, summaries=summaries)
        advice = self._session.ask("generalise", prompt, max_tokens=_ADVICE_TOKENS)
        if advice is not None:
            self.written.append(" ".join(advice.split()))

    def _ask_summary(self, ended: Ended) -> str | None:
        trajectory, directions = ended.trajectory, self._settings.directions
        relations = [drawn_hop(hop, directions) for hop in trajectory.path.hops]
        question, why = self._session.question, ENDINGS[ended.why]
        prompt = filled_prompt(SUMMARISE, question, path=relations, reason=why)
        hop, at = len(relations), trajectory.drawn()
        summary = self._session.ask("summarise", prompt, hop=hop, at=at, max_tokens=_SUMMARY_TOKENS)
        return None if summary is None else " ".join(summary.split())


_NARRATIVE_TOKENS, _PROPOSAL_TOKENS, _RANKING_TOKENS = 96, 192, 256


class Search:
    """The search for the trajectories of one question.

    It has those that `ended` and those that are still `pending`, each version of the advice that
    was `written`, and counts those that were followed as `rollouts`.
    """

    def __init__(self, session: Session, frontiers: Frontiers, settings: TraceSettings) -> None:
        self._session, self._frontiers, self._settings = session, frontiers, settings
        self._priors = Priors(session, settings)
        self.written = self._priors.written
        self.ended: list[Ended] = []
        self.pending: list[Trajectory] = []
        self.rollouts = 0

    def explore(self) -> Stop:
        """Follow trajectories from all topics, until none is left or enough were followed."""
        topics = [topic for topic in self._session.topics if topic.mid is not None]
        self.pending = [Trajectory(RelationPath(topic)) for topic in topics]
        while self.pending and self.rollouts < self._settings.iterations:
            self.rollouts += 1
            ended = self._follow(self._next())
            if ended.trajectory.scores:
                self.ended.append(ended)
            if ended.why == "budget":
                return "budget"
            self._priors.learn(ended)
        if self.pending:
            return "iterations"
        return "stopped" if self.ended else "nothing"

    def _next(self) -> Trajectory:
        """Take the most relevant trajectory that has not ended, topics before all others."""
        by = self._settings.path_score
        best = max(self.pending, key=lambda each: (not each.scores, each.relevance(by)))
        self.pending.remove(best)
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
            self.pending += others
            if is_cut:
                return Ended(trajectory, "budget")
        return Ended(trajectory, "depth")

    def _hops(self, trajectory: Trajectory) -> tuple[Sequence[Hop], int]:
        """Find the relations that lead on, sorted by name; also how many are not shown."""
        with self._session.asked.clock.stage("explore"):
            found = self._frontiers.hops(trajectory.path)
            edges = self._session.walkers.schema.canonical(found)
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
        if not relations or not session.has_language_model:
            return START
        if self._settings.context == "none":
            return NO_CONTEXT
        if self._settings.context == "relations":
            return ", ".join(relations)
        narrative = session.ask(
            "narrate",
            filled_prompt(NARRATE, session.question, path=relations),
            hop=len(relations) + 1,
            at=trajectory.drawn(),
            max_tokens=_NARRATIVE_TOKENS,
        )
        return None if narrative is None else " ".join(narrative.split())

    def _propose(
        self, trajectory: Trajectory, context: str, hops: Sequence[Hop], hidden: int
    ) -> Picked | None:
        """Have some relations proposed as the next; None if no call is left."""
        most = self._settings.candidates
        read, tokens = partial(read_choice, most=most), _PROPOSAL_TOKENS
        return self._choose(
            "relations", trajectory, hops, PROPOSE, read, most, tokens, hidden, context=context
        )

    def _choose(
        self,
        kind: str,
        trajectory: Trajectory,
        hops: Sequence[Hop],
        template: str,
        read: Callable[[str, Sequence[str]], Picked],
        most: int,
        max_tokens: int,
        hidden: int = 0,
        **shown: str,
    ) -> Picked | None:
        question, start = self._session.question, str(trajectory.path.topic)
        path, options = self._relations(trajectory), self._options(hops)
        return self._session.choose(
            Choice(
                kind=kind,
                hop=len(trajectory.scores) + 1,
                at=trajectory.drawn(),
                options=options,
                most=most,
                prompt=filled_prompt(template, question, start, path, options, most=most, **shown),
                read=read,
                meanings=tuple(relation_words(hop.relation) for hop in hops),
                hidden=hidden,
                sampling={"max_tokens": max_tokens},
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
        read, most, tokens = partial(read_ranking, keep=keep), len(candidates), _RANKING_TOKENS
        advice = self._priors.advice or "None"
        ranked = self._choose(
            "rank", trajectory, candidates, RANK, read, most, tokens, experience=advice
        )
        if ranked is None:
            return [trajectory.then(candidates[0], keep)], True
        scores = zip(ranked.chosen, ranked.scores, strict=True)
        return [trajectory.then(candidates[at], s) for at, s in scores if s >= keep], False

    def _options(self, hops: Sequence[Hop]) -> tuple[str, ...]:
        return tuple(drawn_hop(hop, self._settings.directions) for hop in hops)

    def _relations(self, trajectory: Trajectory) -> tuple[str, ...]:
        return self._options(trajectory.path.hops)


def read_ranking(reply: str, options: Sequence[str], keep: float) -> Picked:
    """Read a score for each option: 0 for one that the reply leaves out.

    If the reply scores none, the first option gets the score `keep`, and the reply is unread,
    unless it says that none fits.

    >>> read_ranking('{"a.b": 0.5, "x.y": 1}', ["c.d", "a.b"], 0.5)
    Picked(chosen=(1, 0), scores=(0.5, 0.0), unread=('x.y: 1',), stops=False)
    >>> read_ranking("Hard to say.", ["c.d", "a.b"], 0.5)
    Picked(chosen=(0,), scores=(0.5,), unread=('Hard to say.',), stops=False)
    """
    read = read_scores(reply, options, len(options))
    if not (read.chosen or read.stops) and (read.unread or read_record(reply) is None):
        return Picked((0,), (keep,), read.unread or clip_unread([reply]))
    scores = dict(zip(read.chosen, read.scores, strict=True))
    order = sorted(range(len(options)), key=lambda at: (-scores.get(at, 0.0), at))
    return Picked(tuple(order), tuple(scores.get(at, 0.0) for at in order), read.unread)
