"""TRACE: trajectories of relations are followed, ended ones teach the next, the best is run.

The search (`search.py`) follows trajectories; the priors (`priors.py`) hold what those that ended
teach; the answer (`answering.py`) is what the path of the most relevant one leads to, run as a
query with its proof. An empty path falls to the next.

The embedder and the random chooser propose relations, and that is all: there is no narrative, no
ranking, no summary and no prior. A hop is one decision, and one more chooses the path that answers,
among all beginnings of trajectories. The score from which relations are followed (`keep`) is a
language model's alone.

Source: TRACE §3; algorithm 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kbqa.engine.answer import Answer, WhyNot
from kbqa.engine.deciding.reading import read_names
from kbqa.engine.deciding.session import CALLS_SPENT, Session, Walkers
from kbqa.engine.deciding.trace import WalkTrace
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.exploring.frontiers import Frontiers, RelationPath
from kbqa.engine.exploring.path_ends import MAX_ASKED, MAX_NODES
from kbqa.engine.linking.ground import Grounder
from kbqa.engine.methods.trace.answering import rank_paths, write_candidates
from kbqa.engine.methods.trace.priors import LAST_SUMMARIES
from kbqa.engine.methods.trace.prompts import answer_prompt, relation_option
from kbqa.engine.methods.trace.search import Explored, Search
from kbqa.engine.methods.trace.settings import TraceSettings
from kbqa.engine.methods.trace.trajectories import drawn_path
from kbqa.engine.running.evidence import Proof, prove
from kbqa.engine.running.execute import Executor, Policy
from kbqa.engine.running.tried import Execution, Tried, path_record, with_names
from kbqa.kb.names.keys import normalise
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import Term

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
