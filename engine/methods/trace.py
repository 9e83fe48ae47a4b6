"""TRACE: trajectories of relations are followed, ended ones teach the next, the best is run.

The search (`search.py`) follows trajectories; the priors (`priors.py`) hold what those that ended
teach; the answer (`answering.py`) is what the path of the most relevant one leads to, run as a
query with its proof. An empty path falls to the next.

The embedder and the random chooser propose relations, and that is all: there is no narrative, no
ranking, no summary and no prior. A hop is one decision, and one more chooses the path that answers,
among all beginnings of trajectories. The score from which relations are followed (`keep`) is a
language model's alone.

Source: TRACE §3; algorithm 1.

From trajectories to paths that are run: which of them compete, in what order, what is joined.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from kbqa.engine.answer import Answer, WhyNot
from kbqa.engine.deciding.choosing import draw
from kbqa.engine.deciding.reading import read_names
from kbqa.engine.deciding.session import (
    CALLS_SPENT,
    HOP_COST,
    Session,
    Step,
    Walkers,
    WalkingMethod,
    WalkTrace,
)
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import MAX_ASKED, MAX_NODES, Frontiers, RelationPath
from kbqa.engine.linking.ground import Grounder
from kbqa.engine.methods.trace_prompts import answer_prompt, relation_option
from kbqa.engine.methods.trace_search import (
    LAST_SUMMARIES,
    Explored,
    Search,
    TraceSettings,
    drawn_path,
)
from kbqa.engine.resources import MethodMaker, Resources
from kbqa.engine.running.confidence import Execution, Tried, path_record, with_names
from kbqa.engine.running.evidence import Proof, prove
from kbqa.engine.running.run import Executor, Policy
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.names.keys import normalise
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, compare_with
from kbqa.sparql.english import relation_words
from kbqa.sparql.forms import render_crp
from kbqa.sparql.terms import Term

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
                yield Constraint(end, (), compare_with("!=", topic))
                yield Constraint(end, way_back, compare_with("=", topic))

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


MAX_ENDS = 50
"""Ends of a path that a language model is shown to pick the answers from, at most."""

LIMITS: Mapping[str, object] = {
    "last_summaries": LAST_SUMMARIES,
    "max_asked": MAX_ASKED,
    "max_ends": MAX_ENDS,
    "max_nodes": MAX_NODES,
}
"""What decides the answers besides the settings, by name."""


def answer_question(
    session: Session, walkers: Walkers, settings: TraceSettings, embedder: Embedder | None
) -> Answer:
    """Answer the question of a session as TRACE does; raises as `Method.answer` does.

    Args:
        session: The question's.
        walkers: What all questions share.
        settings: How to search, and what is answered.
        embedder: Cuts long lists of relations for a language model; None if none decides.
    """
    return _Question(session, walkers, settings).answer(embedder)


class _Question:
    """The search for one question, and the answer by the path of the best trajectory."""

    def __init__(self, session: Session, walkers: Walkers, settings: TraceSettings) -> None:
        self._session, self._walkers, self._settings = session, walkers, settings
        self._frontiers = Frontiers(session.graph, walkers.schema, settings.directions)

    def answer(self, embedder: Embedder | None) -> Answer:
        """Search, then run the paths that may answer, the most relevant first."""
        session, walkers, settings = self._session, self._walkers, self._settings
        asked, frontiers = session.asked, self._frontiers
        explored = Search(session, frontiers, walkers.schema, settings, embedder).explore()
        with asked.clock.stage("rank"):
            ranked = rank_paths(explored, session, frontiers, settings, walkers.embedder)
            candidates = write_candidates(ranked, session, frontiers, settings)
        grounder = Grounder(session.graph, walkers.names, asked.linked, asked.given)
        policy = Policy(order="beam-first")
        executor = Executor(session.graph, grounder, asked.clock, walkers.timeout_s, policy)
        return self._proven(explored, executor.execute(candidates))

    def _proven(self, explored: Explored, execution: Execution) -> Answer:
        """Fetch names and evidence for what was found, and put the answer together."""
        session, found = self._session, execution.answering
        asked = session.asked
        proof = Proof.missing(_why_not(session, explored))
        if found is not None and found.relaxation is not None:
            terms = self._answering(found)
            with asked.clock.stage("prove"):
                execution = with_names(session.graph, execution)
                crp, timeout_s = found.relaxation.crp, self._walkers.timeout_s
                proof = prove(session.graph, crp, terms, timeout_s, found.crp)
        return Answer(
            question=asked.question,
            answers=proof.answers,
            trace=self._trace(explored, execution),
            linked=asked.linked,
            sparql=None if found is None else found.sparql,
            evidence=proof.evidence,
            stage="explored" if proof.answers else None,
            problem=proof.problem,
            reason=proof.reason,
            truncated=found is not None and found.table is not None and found.table.truncated,
            usage=asked.usage,
            seconds=asked.clock.seconds,
        )

    def _answering(self, found: Tried) -> Sequence[Term]:
        """Return the ends of the path that answer: all, or those that the language model picks.

        If it picks none, or no call is left, all do.
        """
        if self._settings.answer != "llm" or len(found.terms) < 2 or found.crp is None:
            return found.terms
        session, shown = self._session, found.terms[:MAX_ENDS]
        names = session.neighbourhood.names(shown)
        hops = [step for step in found.crp.path if isinstance(step, Hop)]
        relations = [relation_option(hop, self._settings.directions) for hop in hops]
        options = [names[term] for term in shown]
        prompt = answer_prompt(session.question, str(found.crp.topic), relations, options)
        reply = session.ask("answer", prompt, is_last=True)
        if reply is None:
            return found.terms
        said, unread = read_names(reply, options)
        keys = {normalise(name) for name in said}
        picked = [term for term in shown if normalise(names[term]) in keys]
        known = {normalise(option) for option in options}
        session.steps[-1] = replace(
            session.steps[-1],
            offered=tuple(options),
            hidden=len(found.terms) - len(shown),
            chosen=tuple(names[term] for term in picked),
            unread=(*unread, *(name for name in said if normalise(name) not in known)),
        )
        return picked or found.terms

    def _trace(self, explored: Explored, execution: Execution) -> WalkTrace:
        by = self._settings.path_score
        found = execution.answering
        details = {
            "trajectories": [ended.to_dict(by) for ended in explored.ended],
            "rollouts": explored.rollouts,
            "pending": len(explored.pending),
            "priors": list(explored.priors),
            **path_record(found),
            "beam": execution.best,
            "beams": [tried.to_dict("walk") for tried in execution.tried],
        }
        drawn = [
            f"{ended.trajectory.drawn()} ({ended.trajectory.relevance(by):.2f}, {ended.why})"
            for ended in explored.ended
        ]
        if found is not None and found.crp is not None:
            hops = tuple(step for step in found.crp.path if isinstance(step, Hop))
            drawn.insert(0, f"{drawn_path(RelationPath(found.crp.topic, hops))} (answers)")
        steps = tuple(self._session.steps)
        queries = self._frontiers.queries + self._session.neighbourhood.queries
        return WalkTrace(steps, (), explored.stop, queries, tuple(drawn), details)


def _why_not(session: Session, explored: Explored) -> WhyNot:
    """Say why there are no answers."""
    if not session.topics:
        return session.without_topic()
    if explored.stop == "budget":
        return CALLS_SPENT
    if explored.ended:
        return WhyNot("empty", "no path that was followed leads to an answer")
    return WhyNot("unreachable", "no path was followed from the topics; see the steps of the trace")


def _make(resources: Resources, settings: TraceSettings) -> WalkingMethod:
    """Make TRACE ready to answer.

    Raises:
        InputError: The settings are about what only a language model does, and none decides.
        ModelError: The embedder is missing or broken.
        StoreError: The store's schema is missing or broken.
    """
    if settings.of_language_model:
        resources.require_language_model(settings.of_language_model)
    walkers = resources.walkers(settings.seed)
    decided = {**asdict(settings), **LIMITS}
    embedder = None
    if resources.chooser == "llm":
        embedder = walkers.load_embedder()
        decided["embedder"] = embedder.name
    return WalkingMethod(
        "trace",
        walkers,
        decided,
        lambda session: answer_question(session, walkers, settings, embedder),
    )


TRACE = MethodMaker(TraceSettings, _make)
