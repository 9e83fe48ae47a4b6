"""Run candidate paths on the graph and choose the one that answers.

A candidate's readings are tried in the grounder's order. The first whose main path exists and whose
whole query has answers counts. If none has, its first reachable reading is relaxed step by step. If
no candidate answers even so, the unreachable ones are described by where they break. A query that
fails costs its candidate, not the question; only a graph that is gone ends it.

`kbqa.engine.running.outcome` says how counts and yes/no questions are read. These, and comparisons
of named entities, are not relaxed. If nothing satisfies such a path, but its main path exists, it
may still say 0 or no. That answers only if no candidate has more to show.

The policy decides which candidate answers. With a confidence model every candidate is run, and the
one whose answers are likeliest to be right wins; among its answers, those that other candidates
lead to as well are surer, and come first. Without one, candidates are trusted in their order.
``full-first``, as in the paper's code: the first that answers in full wins, and only if none does
are they relaxed, one after the other. ``beam-first``: a better candidate that must be relaxed wins
over a worse one that answers in full.

With the graph's schema, candidates that cannot answer the question, whatever they find, are left
out (`find_objection`), and no step over a mediator leads back (`PathRunner`). Neither is the
paper's.

Source: RouterKGQA §3.2 (reachability) and §3.4 (execution).
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from kbqa.engine.linking.ground import Grounder, Grounding, ungrounded_entities
from kbqa.engine.method import Clock
from kbqa.engine.questions.operators import find_objection, find_unaccounted
from kbqa.engine.running.confidence import ConfidenceModel, answer_confidences, rank_tried
from kbqa.engine.running.outcome import Outcome, PathRunner, describe_without_value
from kbqa.engine.running.reach import find_break, is_reachable
from kbqa.engine.running.tried import Execution, Fate, Tried
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.compiler.values import is_number
from kbqa.sparql.crp import Crp, Entity, Hop, Kind
from kbqa.sparql.errors import EndpointDown, GraphError, InputError
from kbqa.sparql.forms import read_crp
from kbqa.sparql.relax import Relaxation, compared_entities, drop_kinds, relaxations
from kbqa.sparql.terms import LiteralTerm, Term, has_scheme, is_mid

_TYPE = "type.object.type"
_MOST_CLASSES = 100

TrustOrder = Literal["full-first", "beam-first"]


@dataclass(frozen=True, slots=True)
class Policy:
    """How candidates are run, and which of them answers.

    Attributes:
        confidence: Chooses among them; see the module's docstring.
        order: How they are trusted without it.
        by_class: Relax strings, and then numbers, only all at once, as the paper does.
        without: Classes of constraints that are left out, for ablations.
    """

    confidence: ConfidenceModel | None = None
    order: TrustOrder = "full-first"
    by_class: bool = False
    without: frozenset[Kind] = frozenset()


DEFAULT_POLICY = Policy()


class Executor:
    """Runs the candidates of one question.

    Args:
        graph: The graph.
        grounder: Of the question.
        clock: Times the stages, and bounds queries by the question's deadline.
        timeout_s: Seconds for each query.
        policy: Which candidate answers, and how they are run.
        question: As asked, to find the words that a candidate does not account for; None if there
            is no question.
        schema: Of the graph; None to run and keep candidates as they are written.
    """

    def __init__(
        self,
        graph: Graph,
        grounder: Grounder,
        clock: Clock,
        timeout_s: float,
        policy: Policy = DEFAULT_POLICY,
        question: str | None = None,
        schema: GraphSchema | None = None,
    ) -> None:
        self._graph, self._grounder, self._clock = graph, grounder, clock
        self._timeout_s, self._policy, self._question = timeout_s, policy, question
        self._schema = schema
        self._runner = PathRunner(graph, lambda: clock.bound(timeout_s), schema)

    def execute(self, candidates: Sequence[Candidate], *, relax: bool = True) -> Execution:
        """Find the candidate that answers; the module's docstring says which that is.

        Args:
            candidates: Best first.
            relax: Drop constraints if nothing satisfies all of them.

        Raises:
            EndpointDown: Nothing answers at the graph's endpoint.
            DeadlineExceeded: The question's deadline has passed.
        """
        if self._policy.confidence is not None:
            return self.choose(self.run_all(candidates, relax=relax), self._policy.confidence)
        return self._first(candidates, relax)

    def run_all(self, candidates: Sequence[Candidate], *, relax: bool = True) -> list[Tried]:
        """Run every candidate, relaxed if need be. Raises as `execute` does."""
        tried = map(self._try, candidates)
        ran = [self._relax(each) for each in tried] if relax else list(tried)
        return [self._leave_out_unfit(each) for each in ran]

    def choose(self, tried: Sequence[Tried], model: ConfidenceModel) -> Execution:
        """Choose the candidate whose answers are likeliest to be right, of those that were run.

        Raises as `execute` does, if none has answers and it is looked up where they break.
        """
        confidences = model.judge(tried)
        tried = [replace(t, confidence=c) for t, c in zip(tried, confidences, strict=True)]
        best = next((at for at in rank_tried(tried) if tried[at].table is not None), None)
        if best is None:
            return Execution(tuple(self._with_breaks(tried)))
        tried[best] = _ranked(tried[best], tried)
        return Execution(tuple(tried), best)

    def _first(self, candidates: Sequence[Candidate], relax: bool) -> Execution:
        tried: list[Tried] = []
        for candidate in candidates:
            tried.append(self._try(candidate))
            if relax and self._policy.order == "beam-first":
                tried[-1] = self._relax(tried[-1])
            if tried[-1].terms:
                return Execution(tuple(tried), len(tried) - 1)
        for at in range(len(tried)) if relax else ():
            tried[at] = self._relax(tried[at])
            if tried[at].terms:
                return Execution(tuple(tried), at)
        said = (at for at, each in enumerate(tried) if each.table is not None)  # 0 or no
        if (best := next(said, None)) is not None:
            return Execution(tuple(tried), best)
        return Execution(tuple(self._with_breaks(tried)))

    def _try(self, candidate: Candidate) -> Tried:
        """Ground a candidate and run its reachable readings in full, until one answers."""
        tried = Tried(candidate)
        try:
            crp, problems = read_crp(candidate.text)
            crp = drop_kinds(crp, self._policy.without)
            readings = map(self._with_shared_class, self._readings(crp, candidate))
            if (best := next(readings, None)) is None:
                return replace(tried, problem=f"no entity for {crp.topic}")
            tried = replace(tried, fate="unreachable")
            for reading in self._reachable(chain([best], readings), candidate):
                tried = replace(
                    tried,
                    fate="reachable",
                    readings=tried.readings + 1,
                    grounding=tried.grounding or reading,
                )
                if reading.unlinked:
                    break  # The other readings hold the same unknown names.
                full = next(relaxations(reading.crp))
                ran = self._run(tried, reading, full)
                if ran.table is not None:
                    return _with_problems(ran, problems)
            tried = replace(tried, grounding=tried.grounding or best)
            return self._unsatisfied(tried, problems)
        except EndpointDown:
            raise
        except InputError as error:
            fate: Fate = "failed" if tried.grounding else "unreadable"
            return replace(tried, fate=fate, problem=str(error))
        except GraphError as error:
            return replace(tried, fate="failed", problem=str(error))

    def _relax(self, tried: Tried) -> Tried:
        """Relax a reachable candidate without answers until it has some."""
        grounding = tried.grounding
        if grounding is None or tried.table is not None or tried.fate == "unreachable":
            return tried
        for relaxation in _relaxed(grounding, self._policy.by_class):
            try:
                tried = self._run(tried, grounding, relaxation)
            except EndpointDown:
                raise
            except (GraphError, InputError) as error:
                tried = replace(tried, fate="failed", problem=str(error))
            if tried.table is not None:
                break
        return tried

    def _readings(self, crp: Crp, candidate: Candidate) -> Iterator[Grounding]:
        readings = self._grounder.ground(crp, candidate.topics)
        while True:
            with self._clock.stage("ground"):
                reading = next(readings, None)
            if reading is None:
                return
            yield reading

    def _with_shared_class(self, reading: Grounding) -> Grounding:
        """Compare named entities by a class that they share: a writer may name another one."""
        crp = reading.crp
        mids = [entity.mid for entity in compared_entities(crp) if entity.mid is not None]
        if self._schema is None or not mids or crp.path != (Hop(_TYPE, inverse=True),):
            return reading
        classes = [set(self._graph.neighbours(mid, _TYPE, "out", _MOST_CLASSES)) for mid in mids]
        shared = sorted(str(each) for each in set.intersection(*classes))
        if not shared or crp.topic.mid in shared:
            return reading
        return replace(reading, crp=replace(crp, topic=Entity(mid=shared[0])))

    def _reachable(
        self, readings: Iterable[Grounding], candidate: Candidate
    ) -> Iterator[Grounding]:
        """Yield readings whose main path exists; a stand-in only if no topic's before it does.

        A path that was walked from a topic while it was written exists; the graph is not asked
        again.
        """
        exists: dict[Entity, bool] = {}
        for reading in readings:
            topic = reading.crp.topic
            if topic.mid in candidate.topics:
                exists[topic] = True
            if topic not in exists:
                if reading.stands_in and any(exists.values()):
                    continue
                with self._clock.stage("reach"):
                    timeout_s = self._clock.bound(self._timeout_s)
                    exists[topic] = is_reachable(self._graph, reading.crp, timeout_s)
            if exists[topic]:
                yield reading

    def _with_breaks(self, tried: Sequence[Tried]) -> Iterator[Tried]:
        """Say of unreachable candidates where they break, within the time of one query."""
        ends_at = time.monotonic() + self._timeout_s
        with self._clock.stage("reach"):
            for each in tried:
                left_s = ends_at - time.monotonic()
                if each.grounding is not None and each.fate == "unreachable" and left_s > 0:
                    where = find_break(self._graph, each.grounding.crp, self._clock.bound(left_s))
                    problem = "; ".join(filter(None, (where, each.problem)))
                    yield replace(each, problem=problem)
                else:
                    yield each

    def _run(self, tried: Tried, grounding: Grounding, relaxation: Relaxation) -> Tried:
        """Run the query of a reading, relaxed or not; unchanged if it has no answer."""
        with self._clock.stage("execute"):
            outcome = self._runner.run(relaxation.crp, grounding.crp)
        return tried if outcome is None else self._read(tried, grounding, relaxation, outcome)

    def _leave_out_unfit(self, tried: Tried) -> Tried:
        """Leave out what a candidate found if it answers another question."""
        if tried.relaxation is None or self._question is None or self._schema is None:
            return tried
        crp = tried.relaxation.crp
        mentions = self._grounder.mentions(crp)
        given = self._grounder.given
        why = find_objection(self._question, crp, self._schema, mentions, given)
        if why is None:
            return tried
        return replace(tried, fate="unfit", problem=why, table=None, boolean=None, count=None)

    def _unsatisfied(self, tried: Tried, problems: Sequence[str]) -> Tried:
        """Read a candidate that nothing satisfies in full: as 0 or no, or say what is missing."""
        grounding = tried.grounding
        if grounding is not None and tried.fate == "reachable" and not grounding.unlinked:
            crp = grounding.crp
            with self._clock.stage("execute"):
                outcome = self._runner.run_unsatisfied(crp)
                missing = self._runner.without_value(crp)
            if outcome is not None:
                tried = self._read(tried, grounding, next(relaxations(crp)), outcome)
            if missing and crp.order is not None:
                problems = (*problems, describe_without_value(missing, crp.order))
        return _with_problems(tried, problems)

    def _read(
        self, tried: Tried, grounding: Grounding, relaxation: Relaxation, outcome: Outcome
    ) -> Tried:
        """Note what a reading says."""
        terms = [row[0] for row in outcome.table.rows]
        are_numbers = bool(terms) and all(map(_is_number, terms))
        return replace(
            tried,
            grounding=grounding,
            relaxation=relaxation,
            sparql=outcome.sparql,
            table=outcome.table,
            boolean=outcome.boolean,
            count=outcome.count,
            topic_score=self._topic_score(grounding.crp.topic),
            mentioned=self._grounder.count_mentioned(relaxation.crp),
            not_understood=self._not_understood(relaxation.crp, are_numbers=are_numbers),
        )

    def _not_understood(self, crp: Crp, *, are_numbers: bool) -> tuple[str, ...]:
        """List the operator words of the question that a path does not account for."""
        if self._question is None:
            return ()
        mentions = self._grounder.mentions(crp)
        return find_unaccounted(self._question, crp, mentions, are_numbers=are_numbers)

    def _topic_score(self, topic: Entity) -> float:
        """Return how likely the question is about a topic; the linker knows nothing of classes."""
        is_class = topic.mid is not None and not (is_mid(topic.mid) or has_scheme(topic.mid))
        return 1.0 if is_class else self._grounder.topic_score(topic)


def _is_number(term: Term | None) -> bool:
    """Return whether an answer is a number."""
    return isinstance(term, LiteralTerm) and is_number(term)


def _ranked(best: Tried, tried: Sequence[Tried]) -> Tried:
    """Say how sure each answer is, and put the surest first, unless the query orders them."""
    table, relaxation = best.table, best.relaxation
    assert table is not None
    assert relaxation is not None
    if best.boolean is not None:
        return best
    confidences = answer_confidences(tried)

    def rank(row: tuple[Term | None, ...]) -> float:
        return 0.0 if row[0] is None else -confidences.get(row[0], 0.0)

    if relaxation.crp.order is None:
        table = replace(table, rows=tuple(sorted(table.rows, key=rank)))
    sure = confidences if best.count is None else {}
    return replace(best, table=table, answer_confidences=sure)


def _with_problems(tried: Tried, problems: Iterable[str]) -> Tried:
    """Add what was wrong in reading a candidate, and with the names of the reading that counts."""
    assert tried.grounding is not None
    unknown = (f"no entity is called {name!r}" for name in tried.grounding.unlinked)
    return replace(
        tried, problem="; ".join((*problems, *tried.grounding.replaced, *unknown)) or None
    )


def _relaxed(grounding: Grounding, by_class: bool) -> Iterator[Relaxation]:
    """Yield the relaxed forms in which every entity is grounded."""
    steps = relaxations(grounding.crp, grounding.trust, by_class=by_class)
    next(steps)
    for step in steps:
        if not ungrounded_entities(step.crp):
            yield step
