"""What a graph's schema says of the relations that were met: where they lead, and their reverse.

A store has its schema in a file. Of an endpoint's, thousands of properties, only what is said of
the relations that are met is fetched, once each.
"""

import threading
from collections.abc import Iterable

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.layout import StoreLayout
from kbqa.kb.schema import Schema, SchemaBuilder
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import Literal, iri

_BATCH = 500
_FIELDS = sorted(SchemaBuilder.PREDICATES - {"freebase.type_hints.mediator", "type.object.name"})
_MEDIATORS = f"SELECT ?type ?is {{ ?type {iri('freebase.type_hints.mediator')} ?is }}"


class GraphSchema:
    """The schema of a graph, as far as it was asked for. Any number of threads may use one.

    Args:
        graph: The graph.
        timeout_s: Seconds for each query that an endpoint is asked.

    Raises:
        StoreError: The store's file of the schema is missing or broken.
    """

    def __init__(self, graph: Graph, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._graph, self._timeout_s = graph, timeout_s
        self._builder = SchemaBuilder()
        self._met: set[str] = set()
        self._lock = threading.Lock()
        self._schema: Schema | None = None
        self._is_whole = isinstance(graph, OxigraphStore)
        if isinstance(graph, OxigraphStore):
            self._schema = Schema.open(StoreLayout(graph.directory).schema)

    def of(self, relations: Iterable[str]) -> Schema:
        """Return a schema that holds what is stated of these relations.

        Raises:
            GraphError: The endpoint does not answer.
        """
        with self._lock:
            new = [] if self._is_whole else sorted(set(relations) - self._met)
            if self._schema is None:
                self._learn(_MEDIATORS, "freebase.type_hints.mediator")
            for start in range(0, len(new), _BATCH):
                self._learn(_query(new[start : start + _BATCH]))
            if self._schema is None or new:
                self._met.update(new)
                self._schema = self._builder.build()
            return self._schema

    def leads_to_mediator(self, hop: Hop) -> bool:
        """Tell whether a hop ends at entities that tie others together; raises as `of` does."""
        schema = self.of([hop.relation])
        stated = schema.property(hop.relation)
        if stated is None:
            return False
        end = stated.domain if hop.inverse else stated.expected_type
        return end is not None and schema.is_mediator(end)

    def canonical(self, hops: Iterable[Hop]) -> tuple[Hop, ...]:
        """Of the two names of each hop, a relation and backwards its reverse, choose always one.

        The dump holds both relations of a pair, so both ways lead to the same. Raises as `of` does.
        """
        hops = tuple(hops)
        schema = self.of([hop.relation for hop in hops])
        return tuple(_canonical(schema, hop) for hop in hops)

    def _learn(self, query: str, field: str | None = None) -> None:
        for row in self._graph.select(query, timeout_s=self._timeout_s).rows:
            *subject, value = row
            predicate = field or str(subject[1])
            if value is not None:
                text = value.text if isinstance(value, Literal) else value
                self._builder.add(str(subject[0]), predicate, text)


def _canonical(schema: Schema, hop: Hop) -> Hop:
    stated = schema.property(hop.relation)
    if stated is None or stated.reverse is None:
        return hop
    return min(hop, Hop(stated.reverse, not hop.inverse), key=lambda each: each.relation)


def _query(relations: list[str]) -> str:
    subjects, fields = (" ".join(map(iri, each)) for each in (relations, _FIELDS))
    return (
        f"SELECT ?relation ?field ?value {{ VALUES ?relation {{ {subjects} }} "
        f"VALUES ?field {{ {fields} }} ?relation ?field ?value }}"
    )
