"""TRACE: trajectories of relations are followed, ended ones teach the next, the best is run.

The search (`trace_search`) follows trajectories to their ends. Their paths are run as queries, the
most relevant first. The first path that has answers gives them, with its proof.

If a question has several topics, the answer should be reached from all of them. So the most
relevant trajectory from each other topic that reaches an end of this one becomes a constraint of
its path: the answer has a way back to the other topic. A constraint that nothing satisfies is
dropped. Topics that are readings of the same words are not joined.

The embedder and the random chooser only propose relations, so nothing says where a trajectory
should end. One more decision chooses the path that answers, among all beginnings of trajectories
that do not end at mediators. The embedder compares their relations with the question, and each hop
has a cost, since similarity alone favours long paths. The random chooser draws the order.

Source: TRACE §3, algorithm 1 and equation 4. The paper does not say how to choose among the ends of
a trajectory; the constraints are ours.
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
    UNNAMED,
    Session,
    Step,
    Stop,
    WalkingMethod,
    WalkTrace,
)
from kbqa.engine.graph_walk import MAX_ASKED, MAX_NODES, Frontiers, RelationPath, drawn_hop
from kbqa.engine.methods import MethodMaker, Resources, changed_settings
from kbqa.engine.methods.trace_search import (
    ANSWER,
    LAST_SUMMARIES,
    Search,
    TraceSettings,
    drawn_path,
    filled_prompt,
)
from kbqa.engine.running.evidence import no_answer, prove_answer
from kbqa.engine.running.run import Runner
from kbqa.engine.running.tried import Execution, Tried, path_record, with_names
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.names import normalise
from kbqa.sparql.crp import Constraint, Crp, compare_with
from kbqa.sparql.english import relation_words
from kbqa.sparql.forms import render_crp

MAX_ENDS = 50  # of a path, that a language model is shown to pick the answers from

LIMITS: Mapping[str, object] = {
    "last_summaries": LAST_SUMMARIES,
    "max_asked": MAX_ASKED,
    "max_ends": MAX_ENDS,
    "max_nodes": MAX_NODES,
}
"""Numbers that decide the answers, in addition to the settings."""

_LEAST = 1e-4  # relevance, so that its logarithm is a number that JSON has


class RankedPath(NamedTuple):
    """A path that may answer."""

    path: RelationPath
    relevance: float  # at most 1


class TraceAnswering:
    """The trajectories of one question, and the paths that they give."""

    def __init__(self, session: Session, settings: TraceSettings) -> None:
        self._session, self._settings = session, settings
        schema = session.walkers.schema
        self._frontiers = Frontiers(session.graph, schema, settings.directions)
        self._search = Search(session, self._frontiers, settings)

    def answer(self) -> Answer:
        """Follow trajectories, and run the most relevant paths until one has answers."""
        session, settings = self._session, self._settings
        asked, graph, walkers = session.asked, session.graph, session.walkers
        search = self._search
        stop = search.explore()
        with asked.clock.stage("rank"):
            candidates = self._candidates(self._ranked())
        runner = Runner(asked, graph, walkers.names, walkers.timeout_s)
        execution = runner.run_first(candidates, "beam-first")
        found = execution.answering
        why_not = self._why_not(stop)
        if found is not None:
            if settings.answer == "llm":
                found, why_not = self._picked(found), UNNAMED
            execution = with_names(graph, execution)
        trace = WalkTrace(
            tuple(session.steps),
            stop=stop,
            queries=self._frontiers.queries + session.neighbourhood.queries,
            drawn=tuple(self._drawn(execution)),
            details={
                "trajectories": [ended.to_dict(settings.path_score) for ended in search.ended],
                "rollouts": search.rollouts,
                "pending": sum(1 for each in search.pending if each.scores),
                "priors": search.written,
                **path_record(execution.answering),
                "beam": execution.best,
                "beams": [tried.to_dict() for tried in execution.tried],
            },
        )
        if found is None:
            return no_answer(asked, trace, why_not)
        return prove_answer(asked, graph, found, trace, "explored", walkers.timeout_s)

    def _ranked(self) -> list[RankedPath]:
        """Sort the paths that may answer, the most relevant first; of equals the older."""
        session, settings, frontiers = self._session, self._settings, self._frontiers
        ended = [each.trajectory for each in self._search.ended]
        if session.has_language_model:
            ranked = [RankedPath(t.path, t.relevance(settings.path_score)) for t in ended]
            return sorted(ranked, key=lambda each: -each.relevance)
        followed = (part for t in [*ended, *self._search.pending] for part in _parts(t.path))
        paths = [path for path in dict.fromkeys(followed) if not frontiers.ends_at_mediator(path)]
        if not paths or not session.asked.budget.take_last():
            return []
        embedder = session.walkers.embedder
        if embedder is None:
            drawn = draw(len(paths), len(paths), settings.seed, session.question, "answer")
            ranked = [RankedPath(paths[at], 1.0) for at in drawn]
        else:
            words = [[relation_words(hop.relation) for hop in path.hops] for path in paths]
            cosines = embedder.sum_similarity(session.question, words)
            hops = [sum(not frontiers.ends_at_mediator(p) for p in _parts(path)) for path in paths]
            scores = [round(cos - HOP_COST * n, 6) for cos, n in zip(cosines, hops, strict=True)]
            ranked = sorted(map(RankedPath, paths, scores), key=lambda each: -each.relevance)
        session.steps.append(Step("answer", chosen=(drawn_path(ranked[0].path),)))
        return ranked

    def _candidates(self, ranked: Sequence[RankedPath]) -> list[Candidate]:
        """Write paths as candidates, in their order, each joined with those from other topics."""
        least = self._settings.keep if self._session.has_language_model else 0.0
        joined = [each.path for each in ranked if each.relevance >= least]
        candidates = []
        for path, relevance in ranked:
            joins = self._settings.answer == "joined" and path in joined
            constraints = tuple(self._constraints(path, joined)) if joins else ()
            text = render_crp(Crp(path.topic, path.hops, constraints))
            logprob = math.log(max(relevance, _LEAST))
            candidates.append(Candidate(text, logprob, 1, path.starts, "walk"))
        return candidates

    def _constraints(
        self, path: RelationPath, paths: Sequence[RelationPath]
    ) -> Iterator[Constraint]:
        """Yield constraints for each other topic from which one of the paths meets this one."""
        mentions = {each.mid: each.mention for each in self._session.asked.linked}
        words = mentions.get(path.topic.mid or "")
        for topic in self._session.topics:
            are_readings = words is not None and words == mentions.get(topic.mid or "")
            if topic.mid == path.topic.mid or are_readings:  # of the same words
                continue
            from_there = (each for each in paths if each.topic == topic)
            meeting = next((each for each in from_there if self._may_meet(path, each)), None)
            if meeting is not None:
                end, way_back = len(path.hops), tuple(hop.back for hop in reversed(meeting.hops))
                # As no path answers with its own topic. What comes last is dropped first.
                yield Constraint(end, (), compare_with("!=", topic))
                yield Constraint(end, way_back, compare_with("=", topic))

    def _may_meet(self, path: RelationPath, other: RelationPath) -> bool:
        """Return whether two paths share an end, as far as their ends are known."""
        ends, others = self._frontiers.nodes(path), self._frontiers.nodes(other)
        if not ends or not others:
            return False
        is_cut = max(len(ends), len(others)) >= MAX_NODES
        return is_cut or bool(set(ends) & set(others) - {path.topic.mid, other.topic.mid})

    def _picked(self, found: Tried) -> Tried | None:
        """Keep the ends of a path that the language model picks.

        They are all kept if its reply names none of them, and none if it says that none answers.
        """
        session = self._session
        if len(found.terms) < 2 or found.crp is None or found.table is None:
            return found
        shown = found.terms[:MAX_ENDS]
        names = session.neighbourhood.names(shown)
        relations = [drawn_hop(hop, self._settings.directions) for hop in found.crp.hops]
        options = tuple(names[term] for term in shown)
        start = str(found.crp.topic)
        prompt = filled_prompt(ANSWER, session.question, start, relations, options)
        reply = session.ask("answer", prompt, is_last=True)
        if reply is None:
            return found
        said, unread = read_names(reply, options)
        keys, known = set(map(normalise, said)), set(map(normalise, options))
        picked = [term for term in shown if normalise(names[term]) in keys]
        session.steps[-1] = replace(
            session.steps[-1],
            offered=options,
            hidden=len(found.terms) - len(shown),
            chosen=tuple(names[term] for term in picked),
            unread=(*unread, *(name for name in said if normalise(name) not in known)),
        )
        if not (said or unread):
            return None
        if not picked:
            return found
        return replace(found, table=replace(found.table, rows=tuple((term,) for term in picked)))

    def _drawn(self, execution: Execution) -> Iterator[str]:
        """Yield a line for the path that answers, and for each trajectory."""
        found = execution.answering
        if found is not None and found.crp is not None:
            yield f"{drawn_path(RelationPath(found.crp.topic, found.crp.hops))} (answers)"
        for trajectory, why in ((ended.trajectory, ended.why) for ended in self._search.ended):
            relevance = trajectory.relevance(self._settings.path_score)
            yield f"{trajectory.drawn()} ({relevance:.2f}, {why})"

    def _why_not(self, stop: Stop) -> WhyNot:
        if not self._session.topics:
            return self._session.without_topic()
        if stop == "budget":
            return CALLS_SPENT
        if self._search.ended:
            return WhyNot("empty", "no path that was followed leads to an answer")
        nothing = "no path was followed from the topics; see the steps of the trace"
        return WhyNot("unreachable", nothing)


def _parts(path: RelationPath) -> Iterator[RelationPath]:
    """Yield the beginnings of a path, and the path itself last."""
    return (path.up_to(at) for at in range(1, len(path.hops) + 1))


def _make(resources: Resources, settings: TraceSettings) -> WalkingMethod:
    names = [*(["answer"] if settings.answer == "llm" else []), "context", "priors", "eager_priors"]
    if of_model := changed_settings(settings, names):
        resources.require_language_model(of_model)
    walkers = resources.walkers(settings.seed)
    decided = {**asdict(settings), **LIMITS}
    if resources.chooser == "llm":  # The embedder cuts long lists of relations for it.
        decided["embedder"] = walkers.load_embedder().name
    return WalkingMethod(
        "trace", walkers, decided, lambda session: TraceAnswering(session, settings).answer()
    )


TRACE = MethodMaker(TraceSettings, _make)
