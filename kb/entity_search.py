"""Find entities by name on any graph: the store's name index, or label equality at an endpoint."""

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.layout import StoreLayout
from kbqa.kb.names import NameIndex, NameMatch
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.terms import Literal, iri, sparql_term

_COUNT_LIMIT = 20_000
"""Triples counted for an entity's popularity at an endpoint: a hub has millions."""


def find_entities(
    graph: Graph, text: str, limit: int = 10, *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> list[NameMatch]:
    """Find the entities that bear a name or alias, best first.

    A store's name index also finds names that are incomplete or mistyped. An endpoint has no such
    index: there the name must be written as in the graph, but for capitals at its words' starts.

    Raises:
        GraphError: The graph does not answer, or the store has no name index.
    """
    if isinstance(graph, OxigraphStore):
        index = NameIndex.open(StoreLayout(graph.directory).names)
        try:
            return index.search(text, limit)
        finally:
            index.close()
    return _find_at_endpoint(graph, text, limit, timeout_s)


def _find_at_endpoint(graph: Graph, text: str, limit: int, timeout_s: float) -> list[NameMatch]:
    spellings = dict.fromkeys((text, text.title(), text[:1].upper() + text[1:]))
    values = " ".join(
        sparql_term(Literal(spelling, language=language))
        for spelling in spellings
        for language in ("en", None)
    )
    table = graph.select(
        f"SELECT DISTINCT ?mid ?matched ?relation WHERE {{ VALUES ?matched {{ {values} }} "
        f"VALUES ?relation {{ {iri('type.object.name')} {iri('common.topic.alias')} }} "
        "?mid ?relation ?matched }",
        timeout_s=timeout_s,
        limit=10 * limit,
    )
    found: dict[str, tuple[str, bool]] = {}
    for mid, matched, relation in table.rows:
        if isinstance(mid, str) and isinstance(matched, Literal):
            is_alias = relation == "common.topic.alias"
            if mid not in found or not is_alias:
                found[mid] = (matched.text, is_alias)
    labels = graph.labels(found)
    matches = [
        NameMatch(
            mid=mid,
            name=labels.get(mid, matched),
            matched=matched,
            is_alias=is_alias,
            popularity=_popularity(graph, mid, timeout_s),
            score=1.0,
        )
        for mid, (matched, is_alias) in found.items()
    ]
    matches.sort(key=lambda match: (-match.popularity.bit_length(), match.is_alias, match.mid))
    return matches[:limit]


def _popularity(graph: Graph, mid: str, timeout_s: float) -> int:
    entity = iri(mid)
    table = graph.select(
        f"SELECT (COUNT(*) AS ?n) WHERE {{ SELECT ?p ?x WHERE {{ {{ {entity} ?p ?x }} UNION "
        f"{{ ?x ?p {entity} }} }} LIMIT {_COUNT_LIMIT} }}",
        timeout_s=timeout_s,
    )
    count = table.rows[0][0] if table.rows else None
    return int(count.text) if isinstance(count, Literal) else 0
