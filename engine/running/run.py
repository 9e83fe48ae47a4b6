"""Run candidate paths on the graph, and read what they say.

A candidate's readings are tried in the grounder's order. The first whose main path exists and whose
whole query has answers counts. If none has, its first reachable reading is relaxed step by step. A
query that fails costs its candidate, not the question; only a graph that is gone ends it.

With the graph's schema, candidates that cannot answer the question, whatever they find, are left
out (`find_objection`). A path that a person wrote is taken at its word: nothing that the question
is about stands in for its names.

Source: RouterKGQA §3.3 (relaxation) and §3.4 (execution).
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

from kbqa.engine.answer import Answer, WhyNot
from kbqa.engine.asked import Asked
from kbqa.engine.linking.ground import Grounder, Grounding, ungrounded_entities
from kbqa.engine.questions.objections import find_objection
from kbqa.engine.questions.operators import find_unaccounted
from kbqa.engine.questions.words import foreign_words
from kbqa.engine.running.evidence import no_answer, prove_answer
from kbqa.engine.running.path_runner import (
    Outcome,
    PathRunner,
    describe_without_value,
    find_break,
    is_reachable,
)
from kbqa.engine.running.tried import (
    Execution,
    Fate,
    Tried,
    describe_found,
    path_record,
    with_names,
)
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph
from kbqa.kb.names import Names, normalise
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import (
    Crp,
    CrpReading,
    Entity,
    Hop,
    Kind,
)
from kbqa.sparql.errors import EndpointDown, GraphError, InputError
from kbqa.sparql.forms import read_crp, render_crp
from kbqa.sparql.relax import Relaxation, compared_entities, drop_kinds, relaxations
from kbqa.sparql.terms import LiteralTerm, Term, has_scheme, is_mid
from kbqa.sparql.values import is_number

_TYPE = "type.object.type"
_MOST_CLASSES = 100
_KNOWN = 0.3  # a probability that a question in another language is about a topic

TrustOrder = Literal["full-first", "beam-first"]


class Runner:
    """Runs the candidates of one question.

    Args:
        asked: The question; its entities ground the names of candidates.
        graph: The graph.
        names: Of that graph.
        timeout_s: Seconds for each query.
        schema: Of the graph; None to run and keep candidates as they are written.
        without: Classes of constraints that are left out, for ablations.
        by_class: Relax strings, and then numbers, only all at once, as the paper does.
    """

    def __init__(
        self,
        asked: Asked,
        graph: Graph,
        names: Names,
        timeout_s: float,
        *,
        schema: GraphSchema | None = None,
        without: Iterable[Kind] = (),
        by_class: bool = False,
    ) -> None:
        self._question, self._clock, self._timeout_s = asked.question, asked.clock, timeout_s
        self._graph, self._schema = graph, schema
        self._without, self._by_class = frozenset(without), by_class
        self._grounder = Grounder(self._graph, names, asked.linked, asked.given)
        self._paths = PathRunner(graph, timeout_s, schema)
        self._in_full: dict[Candidate, Tried] = {}

    def within(self, limit_s: float) -> "Runner":
        """Return a runner of the same question that gives a query no more seconds than this."""
        brief = copy(self)
        brief._timeout_s = min(self._timeout_s, limit_s)
        brief._paths = PathRunner(self._graph, brief._timeout_s, self._schema)
        brief._in_full = {}
        return brief

    def run(self, candidates: Sequence[Candidate], *, relax: bool = True) -> list[Tried]:
        """Run every candidate, relaxed if need be.

        Raises:
            EndpointDown: Nothing answers at the graph's endpoint.
            DeadlineExceeded: The question's deadline has passed.
        """
        tried = map(self._try, candidates)
        return [self._relax(each) for each in tried] if relax else list(tried)

    def run_first(
        self,
        candidates: Sequence[Candidate],
        order: TrustOrder = "full-first",
        *,
        relax: bool = True,
    ) -> Execution:
        """Run candidates until one answers, trusting them in their order; raises as `run` does.

        ``full-first``, as in the paper's code: the first that answers in full wins, and only if
        none does are they relaxed, one after the other. ``beam-first``: a better candidate that
        must be relaxed wins over a worse one that answers in full.
        """
        tried: list[Tried] = []
        for candidate in candidates:
            tried.append(self._try(candidate))
            if relax and order == "beam-first":
                tried[-1] = self._relax(tried[-1])
            if tried[-1].terms:
                return Execution(tuple(tried), len(tried) - 1)
        for at in range(len(tried)) if relax else ():
            tried[at] = self._relax(tried[at])
            if tried[at].terms:
                return Execution(tuple(tried), at)
        said = (at for at, each in enumerate(tried) if each.table is not None)  # 0 or no
        return self.explain(Execution(tuple(tried), next(said, None)))

    def check(self, tried: Sequence[Tried]) -> list[Tried]:
        """Note the words of the question that each candidate does not account for.

        With the graph's schema, what answers another question is left out.
        """
        return [self._leave_out_unfit(self._with_words(each)) for each in tried]

    def explain(self, execution: Execution) -> Execution:
        """Say where unreachable candidates break if none answers, within the time of one query."""
        if execution.best is not None:
            return execution
        return Execution(tuple(self._with_breaks(execution.tried)))

    def _try(self, candidate: Candidate) -> Tried:
        """Run a candidate in full; each once."""
        if candidate not in self._in_full:
            self._in_full[candidate] = self._run_in_full(candidate)
        return self._in_full[candidate]

    def _run_in_full(self, candidate: Candidate) -> Tried:
        """Ground a candidate and run its reachable readings in full, until one answers."""
        tried, denied = Tried(candidate), None
        try:
            crp, problems = read_crp(candidate.text)
            crp = drop_kinds(crp, self._without)
            if self._schema is not None:
                crp = _with_ties(crp)
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
                if ran.boolean is False and _asks_what_is(reading.crp):
                    denied = denied or ran  # Another entity of the same name may be meant.
                elif ran.table is not None:
                    return _with_problems(ran, problems)
            if denied is not None:
                return _with_problems(denied, problems)
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
        for relaxation in _relaxed(grounding, self._by_class):
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
                    exists[topic] = is_reachable(self._graph, reading.crp, self._timeout_s)
            if exists[topic]:
                yield reading

    def _with_breaks(self, tried: Sequence[Tried]) -> Iterator[Tried]:
        ends_at = time.monotonic() + self._timeout_s
        with self._clock.stage("reach"):
            for each in tried:
                left_s = ends_at - time.monotonic()
                if each.grounding is not None and each.fate == "unreachable" and left_s > 0:
                    where = find_break(self._graph, each.grounding.crp, left_s)
                    yield replace(each, problem=_joined(where, each.problem))
                else:
                    yield each

    def _run(self, tried: Tried, grounding: Grounding, relaxation: Relaxation) -> Tried:
        """Run the query of a reading, relaxed or not; unchanged if it has no answer."""
        with self._clock.stage("execute"):
            outcome = self._paths.run(relaxation.crp, grounding.crp)
        return tried if outcome is None else self._read(tried, grounding, relaxation, outcome)

    def _leave_out_unfit(self, tried: Tried) -> Tried:
        """Leave out what a candidate found if it answers another question."""
        if tried.relaxation is None or self._schema is None:
            return tried
        crp = tried.relaxation.crp
        mentions = self._grounder.mentions(crp)
        given = self._grounder.given
        is_number = len(tried.terms) == 1 and _is_number(tried.terms[0]) and tried.is_list
        why = self._leads_back(tried) or find_objection(
            self._question, crp, self._schema, mentions, given, is_number=is_number
        )
        if why is None:
            return tried
        nothing = replace(tried, table=None, boolean=None, count=None, value=None)
        return replace(nothing, fate="unfit", problem=why)

    def _leads_back(self, tried: Tried) -> str | None:
        """Object to Berlin as the capital of Berlin."""
        assert tried.relaxation is not None
        crp, terms = tried.relaxation.crp, tried.terms
        if not tried.is_list or crp.order is not None or len(terms) != 1:
            return None
        if not self._grounder.has_one_name(crp.topic.mid, terms[0]):
            return None
        return f"it only leads back to {crp.topic}"

    def _unsatisfied(self, tried: Tried, problems: Sequence[str]) -> Tried:
        """Read a candidate that nothing satisfies in full: as 0 or no, or say what is missing."""
        grounding = tried.grounding
        if grounding is not None and tried.fate == "reachable" and not grounding.unlinked:
            crp = grounding.crp
            with self._clock.stage("execute"):
                outcome = self._paths.run_unsatisfied(crp)
                missing = self._paths.without_value(crp)
            if outcome is not None:
                tried = self._read(tried, grounding, next(relaxations(crp)), outcome)
            if missing:
                hops = crp.hops_to(crp.value or 0) if crp.order is None else crp.order.hops
                problems = (*problems, describe_without_value(missing, hops))
        return _with_problems(tried, problems)

    def _read(
        self, tried: Tried, grounding: Grounding, relaxation: Relaxation, outcome: Outcome
    ) -> Tried:
        """Note what a reading says."""
        return replace(
            tried,
            grounding=grounding,
            relaxation=relaxation,
            sparql=outcome.sparql,
            table=outcome.table,
            boolean=outcome.boolean,
            count=outcome.count,
            value=outcome.value,
            topic_score=self._topic_score(grounding.crp.topic),
            mentioned=self._grounder.count_mentioned(relaxation.crp),
        )

    def _with_words(self, tried: Tried) -> Tried:
        """Note the operator words of the question that a path does not account for."""
        if tried.relaxation is None or tried.table is None:
            return tried
        crp, terms = tried.relaxation.crp, [row[0] for row in tried.table.rows]
        are_numbers = tried.value is not None or (bool(terms) and all(map(_is_number, terms)))
        mentions = self._grounder.mentions(crp)
        words = find_unaccounted(self._question, crp, mentions, are_numbers=are_numbers)
        # The model learnt some questions in other languages, and may know what is asked of a name.
        is_known = self._grounder.topic_score(crp.topic) >= _KNOWN and crp.form != "ask"
        foreign = () if is_known else foreign_words(self._question)
        return replace(tried, not_understood=(*foreign, *words))

    def _topic_score(self, topic: Entity) -> float:
        """Return how likely the question is about a topic; the linker knows nothing of classes."""
        is_class = topic.mid is not None and not (is_mid(topic.mid) or has_scheme(topic.mid))
        return 1.0 if is_class else self._grounder.topic_score(topic)


def _with_ties(crp: Crp) -> Crp:
    """Let all that have the most of something be the first: equal counts are common."""
    order = crp.order
    if order is None or not order.counted or (order.limit, order.offset) != (1, 0):
        return crp
    return replace(crp, order=replace(order, ties=True))


def _asks_what_is(crp: Crp) -> bool:
    """Return whether a path asks if entities are related, and compares no values of theirs."""
    return crp.order is None and all(each.kind == "entity" for each in crp.all_constraints())


def _with_problems(tried: Tried, problems: Iterable[str]) -> Tried:
    """Add what was wrong in reading a candidate, and with the names of the reading that counts."""
    assert tried.grounding is not None
    unknown = (f"no entity is called {name!r}" for name in tried.grounding.unlinked)
    return replace(tried, problem=_joined(*problems, *tried.grounding.replaced, *unknown))


def _relaxed(grounding: Grounding, by_class: bool) -> Iterator[Relaxation]:
    """Yield the relaxed forms in which every entity is grounded."""
    steps = relaxations(grounding.crp, grounding.trust, by_class=by_class)
    next(steps)
    for step in steps:
        if not ungrounded_entities(step.crp):
            yield step


def read_given(path: str | Crp) -> CrpReading:
    """Read a path in either text form, or take a CRP as it is."""
    return CrpReading(path, ()) if isinstance(path, Crp) else read_crp(path)


@dataclass(frozen=True, slots=True)
class GivenTrace:
    """How a path that a person wrote fared."""

    tried: Tried

    @property
    def answering(self) -> Tried | None:
        """The path, if it has answers."""
        return None if self.tried.table is None else self.tried

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record, with the path as the only candidate."""
        return {
            **path_record(self.answering),
            "beam": None if self.answering is None else 0,
            "beams": [self.tried.to_dict()],
        }

    def describe(self) -> list[str]:
        """Return the path in English, and how far it was relaxed."""
        if self.answering is None or self.answering.relaxation is None:
            lines = self.tried.candidate.text.splitlines()
            return ["The path as it was read:", *(f"  {line}" for line in lines)]
        level = self.answering.relaxation.level
        found = describe_found(self.answering, "Of the path that was given")
        return [*found, f"The path was given, relaxation: {level}."]


def run_given(
    asked: Asked, reading: CrpReading, graph: Graph, names: Names, timeout_s: float, *, relax: bool
) -> Answer:
    """Run a path that a person wrote, and return what it says, with its proof.

    Args:
        asked: The question, which may be empty. Where several entities have a name of the path, it
            means one of the given ones, or else the one that the question is likely about.
        reading: The path.
        graph: Where it is run.
        names: Of the graph.
        timeout_s: Seconds for each query.
        relax: Drop constraints if nothing satisfies all of them.

    Raises:
        EndpointDown: Nothing answers at the graph's endpoint.
        DeadlineExceeded: The question's deadline has passed.
    """
    given = {normalise(entity.name): entity.mid for entity in asked.given if entity.name}

    def chosen(entity: Entity) -> Entity:
        return entity if entity.mid else replace(entity, mid=given.get(normalise(str(entity))))

    crp = reading.crp.with_entities(chosen)
    written = {normalise(str(entity)) for entity in crp.entities()}
    linked = [e for e in asked.linked if written & {normalise(e.name), normalise(e.mention)}]
    runner = Runner(replace(asked, given=(), linked=tuple(linked)), graph, names, timeout_s)
    # What a person writes has no probability.
    candidate = Candidate(render_crp(crp), logprob=0.0, tokens=0, source="given")
    execution = runner.run_first([candidate], relax=relax)
    execution = with_names(graph, replace(execution, tried=tuple(runner.check(execution.tried))))
    [tried] = execution.tried
    tried = replace(tried, problem=_joined(*reading.problems, tried.problem))
    trace = GivenTrace(tried)
    if execution.answering is None:
        return no_answer(asked, trace, _why_not(tried))
    answer = prove_answer(asked, graph, tried, trace, "given", timeout_s)
    return replace(answer, problem=_joined(tried.problem, answer.problem))


def _joined(*problems: str | None) -> str | None:
    return "; ".join(filter(None, problems)) or None


def _why_not(tried: Tried) -> WhyNot:
    """Say why a path has no answer."""
    why = f": {tried.problem}" if tried.problem else ""
    match tried.fate:
        case "failed":
            return WhyNot("graph", f"the graph could not run the path{why}")
        case "reachable":
            return WhyNot("empty", f"the path exists, but nothing on it leads to an answer{why}")
        case "unfit":
            return WhyNot("unfit", f"the path answers another question{why}")
        case "unreachable":
            return WhyNot("unreachable", f"the graph has no such path{why}")
        case "unlinked":
            return WhyNot("unlinked", f"the path cannot start{why}")
        case "unreadable":
            return WhyNot("unreadable", f"the path cannot be written as a query{why}")


def _is_number(term: Term | None) -> bool:
    return isinstance(term, LiteralTerm) and is_number(term)
