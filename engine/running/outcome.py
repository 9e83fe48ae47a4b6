"""Run one grounded path and read what it says: answers, a count, or yes or no.

The graph holds what is known, not what is false, so what is missing is read with care:

- A count is the number of different answers. They are listed as well, as its proof.
- A yes/no question is answered yes if an answer of its path passes the tests that are asked. It is
  answered no if none does although the path has answers: these show what the graph says instead.
  Without any, nothing is known, and the path has no answer. "Is Lima the capital of Kenya" is
  answered no because the graph has another capital of Kenya.
- If nothing satisfies a path that counts, or one that asks only whether there is anything, its main
  path decides. If that exists, the answer is 0 or no: the graph knows the neighbours of Kenya, and
  none of them uses the euro. If it does not exist, there is no answer: where the graph has no moons
  of Venus, it may just not know them.
- A comparison of named entities needs a value of each of them.
- Where the schema says which nodes are mediators, no step over one leads back to where it came
  from: a country is not among its own neighbours, and "which countries border both Italy and
  Austria" does not list Austria.

Source: beyond RouterKGQA, whose paths only list answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kbqa.engine.answer import MAX_ANSWERS
from kbqa.engine.running.join_start import choose_start
from kbqa.kb.graph import Graph, Table
from kbqa.kb.rows import read_count
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.compiler.compile import compile_crp
from kbqa.sparql.crp import (
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    IsNotEntity,
    IsNotNode,
    NodeRef,
    Order,
    Step,
)
from kbqa.sparql.errors import MalformedResult
from kbqa.sparql.relax import compared_entities

_NOTHING = Table(("x",), ())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a path says.

    Attributes:
        sparql: The query that says it.
        table: The answers, in one column. For a count, what is counted; for yes, the answers that
            pass; for no, those of which none does.
        boolean: Yes or no; None if the path does not ask.
        count: How many; None if the path does not count.
    """

    sparql: str
    table: Table
    boolean: bool | None = None
    count: int | None = None


class PathRunner:
    """Runs the grounded paths of one question; the module's docstring says how they are read.

    Args:
        graph: The graph.
        limit_s: Returns the seconds that the next query may take.
        schema: Of the graph; None to take steps as they are written.
    """

    def __init__(
        self, graph: Graph, limit_s: Callable[[], float], schema: GraphSchema | None = None
    ) -> None:
        self._graph, self._limit_s, self._schema = graph, limit_s, schema

    def run(self, crp: Crp, full: Crp | None = None) -> Outcome | None:
        """Run a path; None if nothing satisfies it, or if an entity to be compared has no value.

        Args:
            crp: Grounded.
            full: The same before it was relaxed. Where nothing borders both Gambia and Senegal, it
                lists what borders one of them, but still neither of the two.

        Raises:
            InputError: A part of the path cannot be written in a query.
            GraphError: The graph does not answer.
        """
        if self._schema is not None:
            crp = without_ways_back(crp, full or crp, self._schema)
        if crp.form == "ask":
            return self._ask(crp)
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
        """Return which of the entities that a path compares have no value by which to compare them.

        Raises:
            InputError: A part of the path cannot be written in a query.
            GraphError: The graph does not answer.
        """
        compared = compared_entities(crp) if crp.form == "select" else ()
        if crp.order is None or not compared:
            return []
        every = replace(crp, order=replace(crp.order, limit=len(compared), offset=0))
        ranked = {row[0] for row in self._select(compile_crp(every)).rows}
        return [entity for entity in compared if entity.mid not in ranked]

    def _ask(self, crp: Crp) -> Outcome | None:
        presupposed = crp.presupposed()
        if crp.order is not None:
            # The tests come after the order, so the query itself has to say whether one passes.
            table, sparql = self._select(compile_crp(presupposed)), compile_crp(crp)
            if not table.rows:
                return None
            return Outcome(sparql, table, self._graph.ask(sparql, timeout_s=self._limit_s()))
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
        table = self._graph.select(sparql, timeout_s=self._limit_s(), limit=MAX_ANSWERS)
        # Virtuoso's groups repeat floats, as its DISTINCT does.
        return replace(table, rows=tuple(dict.fromkeys(table.rows)))

    def _count(self, sparql: str) -> int:
        rows = self._graph.select(sparql, timeout_s=self._limit_s()).rows
        if (count := read_count(rows)) is None:
            raise MalformedResult(f"the graph counted {str(rows)[:200]}, which is not a number")
        return count


def without_ways_back(crp: Crp, full: Crp, schema: GraphSchema) -> Crp:
    """Return a path none of whose steps over a mediator leads back to where it came from.

    What it must not lead back to in its conditions is that of `full`, before it was relaxed.

    Raises:
        GraphError: The graph does not answer.
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
        if isinstance(constraint.test, IsEntity) and _may_return(constraint.hops, schema):
            entity = constraint.test.entity
            if entity.mid is not None:  # A name that is nobody's leads nowhere.
                added.append(Constraint(constraint.at, (), IsNotEntity(entity)))
    if crp.form == "ask" and crp.order is not None:  # Tests of the answer come after the order.
        added = [each for each in added if each.at != crp.answer]
    return replace(crp, constraints=(*crp.constraints, *added)) if added else crp


def _may_return(steps: Sequence[Step], schema: GraphSchema) -> bool:
    """Return whether two steps cross a mediator that may tie a node to others of its own type."""
    first, second = steps
    if not isinstance(first, Hop) or not isinstance(second, Hop):
        return False
    return schema.leads_to_mediator(first) and schema.start(first) == schema.end(second)


def describe_without_value(entities: Sequence[Entity], order: Order) -> str:
    """Say that entities cannot be compared, for people."""
    value = " then ".join(hop.relation for hop in order.hops) or "value"
    names = " or ".join(map(str, entities))
    return f"the graph has no {value} of {names} to compare"
