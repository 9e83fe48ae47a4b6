"""Run grounded paths on the graph: count, ask, list, add up, and find where one breaks.

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

With the graph's schema, no step over a mediator leads back to where it came from: "which countries
border both Italy and Austria" does not list Austria.

A query of a hub begins at the constraint that the fewest nodes can satisfy (`choose_start`), since
Oxigraph keeps no statistics and begins with what is written first.

Source: RouterKGQA §3.2 (reachability) and §3.4 (execution). Its paths only list answers: counts,
yes and no, the schema's part and the start of queries are ours.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbqa.engine.answer import MAX_ANSWERS, Computed
from kbqa.kb.graph import Direction, Graph, Table, read_count
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
    Entity,
    Hop,
    IsNotNode,
    NodeRef,
    Step,
    compare_with,
    path_relations,
    references,
)
from kbqa.sparql.errors import GraphError, MalformedResult, QueryTimeout
from kbqa.sparql.relax import compared_entities
from kbqa.sparql.terms import term_text

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
