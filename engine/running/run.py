"""Run candidate paths on the graph, and read what they say.

A candidate's readings are tried in the grounder's order. The first whose main path exists and whose
whole query has answers counts. If none has, its first reachable reading is relaxed step by step. A
query that fails costs its candidate, not the question; only a graph that is gone ends it.

The graph holds what is known, not what is false, so what is missing is read with care:

- A count is the number of different answers. They are listed as well, as its proof.
- A yes/no question is answered yes if an answer of its path passes the tests that are asked. It is
  answered no if none does although the path has answers: these show what the graph says instead.
  Without any, nothing is known, and the path has no answer. "Is Lima the capital of Kenya" is
  answered no because the graph has another capital of Kenya.
- If nothing satisfies a path that counts, or one that asks only whether there is anything, its main
  path decides. If that exists, the answer is 0 or no, unless another candidate has more to show:
  the graph knows the neighbours of Kenya, and none of them uses the euro. If it does not exist,
  there is no answer: where the graph has no moons of Venus, it may just not know them.
- A sum, average or difference is of the answers with a number, which are listed, the largest
  first. It is known how many answers have none.
- A comparison of named entities, or their sum, needs a value of each of them. It is not relaxed,
  nor are other sums, counts and yes/no questions.

With the graph's schema, candidates that cannot answer the question, whatever they find, are left
out (`find_objection`), and no step over a mediator leads back to where it came from: "which
countries border both Italy and Austria" does not list Austria.

A query of a hub begins at the constraint that the fewest nodes can satisfy (`choose_start`), since
Oxigraph keeps no statistics and begins with what is written first. A path that a person wrote is
taken at its word: nothing that the question is about stands in for its names.

Source: RouterKGQA §3.2 (reachability) and §3.4 (execution). Its paths only list answers: counts,
yes and no, the schema's part and the start of queries are ours.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

from kbqa.engine.answer import MAX_ANSWERS, Answer, Computed, WhyNot
from kbqa.engine.asked import Asked
from kbqa.engine.linking.ground import Grounder, Grounding, ungrounded_entities
from kbqa.engine.questions.operators import find_objection, find_unaccounted
from kbqa.engine.questions.words import foreign_words
from kbqa.engine.running.evidence import no_answer, prove_answer
from kbqa.engine.running.tried import (
    Execution,
    Fate,
    Tried,
    describe_found,
    path_record,
    with_names,
)
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Direction, Graph, Table, read_count
from kbqa.kb.names import Names, normalise
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.compile import (
    compile_crp,
    compile_numbers,
    compile_skeleton,
    compile_skeleton_prefixes,
    starts_query,
)
from kbqa.sparql.crp import (
    Constraint,
    Crp,
    CrpReading,
    Entity,
    Hop,
    IsNotNode,
    Kind,
    NodeRef,
    Step,
    compare_with,
    path_relations,
    references,
)
from kbqa.sparql.errors import EndpointDown, GraphError, InputError, MalformedResult, QueryTimeout
from kbqa.sparql.forms import read_crp, render_crp
from kbqa.sparql.relax import Relaxation, compared_entities, drop_kinds, relaxations
from kbqa.sparql.terms import LiteralTerm, Term, has_scheme, is_mid, term_text
from kbqa.sparql.values import is_number

_NOTHING = Table(("x",), ())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a path says, and the query that says it."""

    sparql: str
    table: Table
    """The answers, in one column. For a count or sum, what is counted; for yes, the answers that
    pass; for no, those of which none does."""
    boolean: bool | None = None
    count: int | None = None
    value: Computed | None = None


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
            self._question,
            crp,
            self._schema,
            mentions,
            given,
            is_number=is_number,
            is_linked=self._grounder.is_linked,
        )
        if why is None:
            return tried
        nothing = replace(tried, table=None, boolean=None, count=None, value=None)
        return replace(nothing, fate="unfit", problem=why)

    def _leads_back(self, tried: Tried) -> str | None:
        """Object to Berlin as the capital of Berlin."""
        assert tried.relaxation is not None
        crp, [*terms] = tried.relaxation.crp, tried.terms
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


class PathRunner:
    """Runs grounded paths; the module's docstring says how they are read.

    Each query may take `timeout_s`. Without a schema, steps are taken as they are written.
    """

    def __init__(self, graph: Graph, timeout_s: float, schema: GraphSchema | None = None) -> None:
        self._graph, self._timeout_s, self._schema = graph, timeout_s, schema

    def run(self, crp: Crp, full: Crp | None = None) -> Outcome | None:
        """Run a path; None if nothing satisfies it, or if an entity to be compared has no value.

        Args:
            crp: Grounded.
            full: The same before it was relaxed. Where nothing borders both Gambia and Senegal, it
                lists what borders one of them, but still neither of the two.

        Raises:
            InputError: A part of the path cannot be written in a query.
        """
        if self._schema is not None:
            crp = without_ways_back(crp, full or crp, self._schema)
        if crp.form == "ask":
            return self._ask(crp)
        if crp.value is not None:
            return self._add_up(crp, crp.value)
        listed = replace(crp, form="select")
        start = choose_start(self._graph, listed)
        listing = compile_crp(listed, start)
        table = self._select(listing)
        if not table.rows:
            return None
        if crp.form == "select":
            return None if self.without_value(crp) else Outcome(listing, table)
        sparql = compile_crp(crp, start)
        is_listed = crp.form == "count" and not table.truncated
        return Outcome(sparql, table, count=len(table.rows) if is_listed else self._count(sparql))

    def run_unsatisfied(self, crp: Crp) -> Outcome | None:
        """Read a path that nothing satisfies but whose main path exists: 0, no, or None."""
        if crp.form in ("count", "count bindings"):
            return Outcome(compile_crp(crp), _NOTHING, count=0)
        if crp.form == "ask" and not crp.asked and crp.order is None:
            return Outcome(compile_crp(crp), _NOTHING, boolean=False)
        return None

    def without_value(self, crp: Crp) -> list[Entity]:
        """Return which of the entities that a path compares have no value to compare."""
        compared = compared_entities(crp) if crp.form not in ("count", "ask") else ()
        if not compared:
            return []
        if crp.order is None:
            every = compile_numbers(crp)
        else:
            order = replace(crp.order, limit=len(compared), offset=0)
            every = compile_crp(replace(crp, order=order))
        ranked = {row[0] for row in self._select(every).rows}
        return [entity for entity in compared if entity.mid not in ranked]

    def _add_up(self, crp: Crp, value: int | str) -> Outcome | None:
        """Run a path that adds up; its answers are those with a number, the largest first."""
        start = choose_start(self._graph, crp)
        numbers = self._select(compile_numbers(crp, start))
        table = replace(numbers, variables=("x",), rows=tuple(row[:1] for row in numbers.rows))
        of, sparql = len(table.rows), compile_crp(crp, start)
        if of < (2 if crp.form == "difference" else 1) or self.without_value(crp):
            return None
        every = len(self._select(compile_crp(_with_and_without(crp))).rows)
        relation = next((hop.relation for hop in crp.hops_to(value)[-1:]), None)
        number = self._number(sparql)
        return Outcome(sparql, table, value=Computed(crp.form, number, of, every - of, relation))

    def _number(self, sparql: str) -> float:
        [[term]] = self._graph.select(sparql, timeout_s=self._timeout_s).rows
        try:
            return float(f"{float(term_text(term or '')):.12g}")  # without the noise of floats
        except ValueError:
            raise MalformedResult(f"the graph computed {term}, which is not a number") from None

    def _ask(self, crp: Crp) -> Outcome | None:
        presupposed = crp.presupposed()
        if crp.order is not None:
            # The tests come after the order, so the query itself has to say whether one passes.
            table, sparql = self._select(compile_crp(presupposed)), compile_crp(crp)
            if not table.rows:
                return None
            return Outcome(sparql, table, self._graph.ask(sparql, timeout_s=self._timeout_s))
        passing = replace(crp, form="select")
        start = choose_start(self._graph, passing)
        table, sparql = self._select(compile_crp(passing, start)), compile_crp(crp, start)
        if table.rows:
            return Outcome(sparql, table, boolean=True)
        if not crp.asked:
            return None
        table = self._select(compile_crp(presupposed, choose_start(self._graph, presupposed)))
        return Outcome(sparql, table, boolean=False) if table.rows else None

    def _select(self, sparql: str) -> Table:
        table = self._graph.select(sparql, timeout_s=self._timeout_s, limit=MAX_ANSWERS)
        # Virtuoso's groups repeat floats, as its DISTINCT does.
        return replace(table, rows=tuple(dict.fromkeys(table.rows)))

    def _count(self, sparql: str) -> int:
        rows = self._graph.select(sparql, timeout_s=self._timeout_s).rows
        if (count := read_count(rows)) is None:
            raise MalformedResult(f"the graph counted {str(rows)[:200]}, which is not a number")
        return count


def _with_and_without(crp: Crp) -> Crp:
    """Return the path to all answers of an aggregate, those that have no number included."""
    kept = tuple(each for each in crp.constraints if each.label != crp.value)
    if crp.value in references(kept):
        return crp.presupposed()
    return replace(crp, constraints=kept, form="select", value=None)


def without_ways_back(crp: Crp, full: Crp, schema: GraphSchema) -> Crp:
    """Return a path none of whose steps over a mediator leads back to where it came from.

    What it must not lead back to in its conditions is that of `full`, before it was relaxed.
    """
    added: list[Constraint] = []
    for at in range(2, len(crp.path) + 1):
        if at == crp.answer and at - 2 == (crp.differs_from or 0):
            continue  # The path itself says whether its answer may be this node.
        if _may_return(crp.path[at - 2 : at], schema):
            added.append(Constraint(at, (), IsNotNode(NodeRef(at - 2))))
    for constraint in full.constraints:
        if constraint.negated or isinstance(constraint.at, Entity) or len(constraint.hops) != 2:
            continue
        entity = constraint.entity
        # A name with no match in the graph leads nowhere.
        if entity is not None and entity.is_grounded and _may_return(constraint.hops, schema):
            added.append(Constraint(constraint.at, (), compare_with("!=", entity)))
    if crp.form == "ask" and crp.order is not None:  # Tests of the answer come after the order.
        added = [each for each in added if each.at != crp.answer]
    return replace(crp, constraints=(*crp.constraints, *added)) if added else crp


def _may_return(steps: Sequence[Step], schema: GraphSchema) -> bool:
    """Return whether two steps cross a mediator that may tie a node to others of its own type."""
    first, second = steps
    if not isinstance(first, Hop) or not isinstance(second, Hop):
        return False
    return schema.leads_to_mediator(first) and schema.start(first) == schema.end(second)


def describe_without_value(entities: Sequence[Entity], hops: Sequence[Hop]) -> str:
    """Say that entities cannot be compared, for people."""
    value = " then ".join(hop.relation for hop in hops) or "value"
    names = " or ".join(map(str, entities))
    return f"the graph has no {value} of {names} to compare"


_HUB = 200
"""From this many neighbours it pays to look for a better start than the topic."""

_FEW = 50
"""A constraint that at most this many nodes can satisfy is a good start."""

_TIMEOUT_S = 1.0
"""Seconds to look at a constraint of several hops; more is not worth it."""


def choose_start(graph: Graph, crp: Crp) -> Constraint | None:
    """Choose the constraint at which to begin a grounded path; None if the topic will do.

    The graph is asked for up to 200 nodes: those next to the topic and to entities of constraints,
    and those from which constraints of several hops can be satisfied.
    """
    first = crp.path[0]
    if not isinstance(first, Hop):
        return None
    candidates = [constraint for constraint in crp.constraints if _is_required(constraint)]
    is_hub = bool(candidates) and _neighbours(graph, crp.topic, first) == _HUB
    sizes = [
        (_starts(graph, constraint), at)
        for at, constraint in enumerate(candidates)
        if is_hub or len(constraint.hops) > 1
    ]
    size, at = min(sizes, default=(_HUB, 0))
    return candidates[at] if size <= _FEW else None


def _is_required(constraint: Constraint) -> bool:
    return (
        constraint.entity is not None
        and bool(constraint.hops)
        and isinstance(constraint.at, int)
        and not (constraint.optional or constraint.negated)
    )


def _starts(graph: Graph, constraint: Constraint) -> int:
    """Count the nodes that satisfy a constraint, up to `_HUB`."""
    entity, hops = constraint.entity, constraint.hops
    assert entity is not None
    if len(hops) == 1:
        return _neighbours(graph, entity, Hop(hops[0].relation, not hops[0].inverse))
    assert entity.mid is not None
    query = starts_query(hops, entity.mid, _HUB)
    try:
        return len(graph.select(query, timeout_s=_TIMEOUT_S).rows)
    except QueryTimeout:
        return _HUB


def _neighbours(graph: Graph, entity: Entity, hop: Hop) -> int:
    direction: Direction = "in" if hop.inverse else "out"
    assert entity.mid is not None
    return len(graph.neighbours(entity.mid, hop.relation, direction, limit=_HUB))


def is_reachable(graph: Graph, crp: Crp, timeout_s: float) -> bool:
    """Return whether a CRP's main path exists, whatever its constraints.

    Raises:
        UnlinkedName: The topic is not grounded.
        InputError: A relation or id is one that no query can hold.
    """
    return graph.ask(compile_skeleton(crp), timeout_s=timeout_s)


def find_break(graph: Graph, crp: Crp, timeout_s: float) -> str:
    """Describe where an unreachable main path breaks, as in ``breaks at hop 2: …``.

    `timeout_s` is for all queries together, at most one a hop.
    """
    ends_at = time.monotonic() + timeout_s
    try:
        for hop, query in enumerate(compile_skeleton_prefixes(crp), 1):
            left_s = max(ends_at - time.monotonic(), 0.001)
            if not graph.ask(query, timeout_s=left_s):
                start = str(crp.topic) if hop == 1 else "there"
                return f"breaks at hop {hop}: {_step(crp.path[hop - 1])} leads nowhere from {start}"
    except GraphError as error:
        return f"where it breaks could not be found: {error}"
    return f"leads to nothing but {_excluded(crp)}"


def _step(step: Step) -> str:
    if isinstance(step, Hop):
        return f"{step.relation} backwards" if step.inverse else step.relation
    return f"a fork of {', '.join(path_relations((step,)))}"


def _excluded(crp: Crp) -> str:
    """Name what the answers must not be: nothing else can be wrong with a whole path."""
    excluded = []
    if crp.differs_from is not None:
        excluded.append(str(crp.topic) if crp.differs_from == 0 else "a node of its own way")
    if crp.answer_language is not None:
        excluded.append("texts in other languages")
    return " and ".join(excluded)


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
