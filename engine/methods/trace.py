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
    Session,
    Step,
    Walkers,
    WalkingMethod,
    WalkTrace,
)
from kbqa.engine.graph_walk import MAX_ASKED, MAX_NODES, Frontiers, RelationPath, drawn_hop
from kbqa.engine.methods.trace_prompts import answer_prompt
from kbqa.engine.methods.trace_search import (
    LAST_SUMMARIES,
    Explored,
    Search,
    TraceSettings,
    drawn_path,
)
from kbqa.engine.resources import MethodMaker, Resources
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


def answer_question(session: Session, walkers: Walkers, settings: TraceSettings) -> Answer:
    """Answer the question of a session."""
    asked, graph = session.asked, session.graph
    frontiers = Frontiers(graph, walkers.schema, settings.directions)
    explored = Search(session, frontiers, walkers.schema, settings).explore()
    with asked.clock.stage("rank"):
        ranked = _rank_paths(explored, session, frontiers, settings, walkers)
        candidates = _write_candidates(ranked, session, frontiers, settings)
    runner = Runner(asked, walkers.graph, walkers.names, walkers.timeout_s)
    execution = runner.run_first(candidates, "beam-first")
    found = execution.answering
    if found is not None:
        if settings.answer == "llm":
            found = _picked(found, session, settings)
        execution = with_names(graph, execution)
    queries = frontiers.queries + session.neighbourhood.queries
    trace = WalkTrace(
        tuple(session.steps),
        stop=explored.stop,
        queries=queries,
        drawn=tuple(_drawn(explored, execution, settings)),
        details=_details(explored, execution, settings),
    )
    if found is None:
        return no_answer(asked, trace, _why_not(session, explored))
    return prove_answer(asked, graph, found, trace, "explored", walkers.timeout_s)


def _rank_paths(
    explored: Explored,
    session: Session,
    frontiers: Frontiers,
    settings: TraceSettings,
    walkers: Walkers,
) -> list[RankedPath]:
    """Sort the paths that may answer, the most relevant first; of equals the older."""
    if session.has_language_model:
        trajectories = [ended.trajectory for ended in explored.ended]
        ranked = [RankedPath(t.path, t.relevance(settings.path_score)) for t in trajectories]
        return sorted(ranked, key=lambda each: -each.relevance)
    paths = [path for path in _beginnings(explored) if not frontiers.ends_at_mediator(path)]
    if not paths or not session.asked.budget.take_last():
        return []
    if walkers.embedder is None:
        drawn = draw(len(paths), len(paths), settings.seed, session.question, "answer")
        ranked = [RankedPath(paths[at], 1.0) for at in drawn]
    else:
        words = [[relation_words(hop.relation) for hop in path.hops] for path in paths]
        cosines = walkers.embedder.sum_similarity(session.question, words)
        costs = [HOP_COST * _counted_hops(path, frontiers) for path in paths]
        scores = [round(cos - cost, 6) for cos, cost in zip(cosines, costs, strict=True)]
        ranked = sorted(map(RankedPath, paths, scores), key=lambda each: -each.relevance)
    session.steps.append(Step("answer", chosen=(drawn_path(ranked[0].path),)))
    return ranked


def _beginnings(explored: Explored) -> list[RelationPath]:
    """List every path that was followed or kept, each once, the oldest first."""
    trajectories = [*(ended.trajectory for ended in explored.ended), *explored.pending]
    return list(dict.fromkeys(part for each in trajectories for part in _parts(each.path)))


def _parts(path: RelationPath) -> Iterator[RelationPath]:
    """Yield the beginnings of a path, and the path itself last."""
    return (RelationPath(path.topic, path.hops[:at]) for at in range(1, len(path.hops) + 1))


def _counted_hops(path: RelationPath, frontiers: Frontiers) -> int:
    """Count the hops of a path that do not end at mediators."""
    return sum(not frontiers.ends_at_mediator(part) for part in _parts(path))


def _write_candidates(
    ranked: Sequence[RankedPath],
    session: Session,
    frontiers: Frontiers,
    settings: TraceSettings,
) -> list[Candidate]:
    """Write paths as candidates, in their order, each joined with those from other topics."""
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
        words = self._words[path.topic]
        for topic, others in self._words.items():
            are_readings = words is not None and words == others  # of the same words
            if topic.mid == path.topic.mid or are_readings:
                continue
            from_there = (each for each in self._paths if each.topic == topic)
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


def _picked(found: Tried, session: Session, settings: TraceSettings) -> Tried:
    """Keep the ends of a path that the language model picks, or all if it picks none."""
    if len(found.terms) < 2 or found.crp is None or found.table is None:
        return found
    shown = found.terms[:MAX_ENDS]
    names = session.neighbourhood.names(shown)
    relations = [drawn_hop(hop, settings.directions) for hop in found.crp.hops]
    options = [names[term] for term in shown]
    prompt = answer_prompt(session.question, str(found.crp.topic), relations, options)
    reply = session.ask("answer", prompt, is_last=True)
    if reply is None:
        return found
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
    if not picked:
        return found
    return replace(found, table=replace(found.table, rows=tuple((term,) for term in picked)))


def _details(
    explored: Explored, execution: Execution, settings: TraceSettings
) -> Mapping[str, object]:
    """Return TRACE's part of the record: its trajectories, and the paths that were run."""
    return {
        "trajectories": [ended.to_dict(settings.path_score) for ended in explored.ended],
        "rollouts": explored.rollouts,
        "pending": len(explored.pending),
        "priors": list(explored.priors),
        **path_record(execution.answering),
        "beam": execution.best,
        "beams": [tried.to_dict("walk") for tried in execution.tried],
    }


def _drawn(explored: Explored, execution: Execution, settings: TraceSettings) -> Iterator[str]:
    """Yield a line for the path that answers, and for each trajectory."""
    found = execution.answering
    if found is not None and found.crp is not None:
        yield f"{drawn_path(RelationPath(found.crp.topic, found.crp.hops))} (answers)"
    for trajectory, why in ((ended.trajectory, ended.why) for ended in explored.ended):
        relevance = trajectory.relevance(settings.path_score)
        yield f"{trajectory.drawn()} ({relevance:.2f}, {why})"


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
    """Make TRACE ready to answer; refuse settings of a language model if there is none."""
    if settings.of_language_model:
        resources.require_language_model(settings.of_language_model)
    walkers = resources.walkers(settings.seed)
    decided = {**asdict(settings), **LIMITS}
    if resources.chooser == "llm":  # The embedder cuts long lists of relations for it.
        decided["embedder"] = walkers.load_embedder().name
    return WalkingMethod(
        "trace", walkers, decided, lambda session: answer_question(session, walkers, settings)
    )


TRACE = MethodMaker(TraceSettings, _make)
