"""List the relations of a graph, for what must choose among all of them."""

from contextlib import closing

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.layout import StoreLayout
from kbqa.kb.schema import Schema
from kbqa.kb.statistics import Statistics
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.errors import GraphError
from kbqa.sparql.terms import iri

# The schema is small, and every endpoint answers at once; all triples would be walked through else.
_PROPERTIES = f"SELECT DISTINCT ?r {{ ?r {iri('type.property.schema')} ?type }}"
_USED = "SELECT DISTINCT ?r { ?s ?r ?o }"


def list_relations(graph: Graph, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[str]:
    """List a graph's relations, sorted.

    Those of a store are the ones that a triple has, from its statistics, and what the schema states
    besides of types that have one of these. Those of an endpoint are the properties that its schema
    states; only where it states none is every triple looked at.

    Raises:
        GraphError: The graph does not answer, or holds no relation.
    """
    if isinstance(graph, OxigraphStore):
        found = _of_store(StoreLayout(graph.directory))
    else:
        found = _selected(graph, _PROPERTIES, timeout_s) or _selected(graph, _USED, timeout_s)
    if not found:
        raise GraphError(f"{graph.description} holds no relation")
    return sorted(found)


def _of_store(layout: StoreLayout) -> set[str]:
    with closing(Statistics.open(layout.statistics)) as statistics:
        used = set(statistics.relations())
    domains = {relation.rpartition(".")[0] for relation in used}
    properties = Schema.open(layout.schema).properties.values()
    return used | {item.id for item in properties if item.domain in domains}


def _selected(graph: Graph, query: str, timeout_s: float) -> set[str]:
    rows = graph.select(query, timeout_s=timeout_s).rows
    return {row[0] for row in rows if isinstance(row[0], str)}
