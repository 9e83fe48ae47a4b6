"""What a graph's schema states about given relations: where they lead, and their reverse.

A store has its schema in a file. An endpoint's schema has thousands of properties, so only those
of the relations that are asked about are fetched, once each.
"""

import threading
from collections.abc import Iterable

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.schema.properties import Schema, SchemaBuilder
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import LiteralTerm, iri

_BATCH = 500
_FIELDS = sorted(SchemaBuilder.PREDICATES - {"freebase.type_hints.mediator", "type.object.name"})
_MEDIATORS = f"SELECT ?type ?is {{ ?type {iri('freebase.type_hints.mediator')} ?is }}"


class GraphSchema:
    """The schema of a graph, fetched as it is needed. Any number of threads may use one.

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
        self._schema = graph.schema()
        self._is_whole = self._schema is not None

    def of(self, relations: Iterable[str]) -> Schema:
        """Return a schema that holds what the graph states about these relations.

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
        """Return whether a hop ends at mediators, entities that tie others together."""
        end = self.end(hop)
        return end is not None and self.of([hop.relation]).is_mediator(end)

    def start(self, hop: Hop) -> str | None:
        """Return the type of the nodes that a hop leaves; None if the graph does not say."""
        return self.end(Hop(hop.relation, not hop.inverse))

    def end(self, hop: Hop) -> str | None:
        """Return the type of the nodes that a hop leads to; None if the graph does not say."""
        stated = self.of([hop.relation]).property(hop.relation)
        if stated is None:
            return None
        return stated.domain if hop.inverse else stated.expected_type

    def canonical(self, hops: Iterable[Hop]) -> tuple[Hop, ...]:
        """Choose always the same one of a hop's two names: a relation, or its reverse backwards.

        The dump holds both relations of a pair, so both lead to the same entities.
        """
        hops = tuple(hops)
        schema = self.of([hop.relation for hop in hops])
        return tuple(_canonical(schema, hop) for hop in hops)

    def _learn(self, query: str, field: str | None = None) -> None:
        for row in self._graph.select(query, timeout_s=self._timeout_s).rows:
            *subject, value = row
            predicate = field or str(subject[1])
            if value is not None:
                text = value.text if isinstance(value, LiteralTerm) else value
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
