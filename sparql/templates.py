"""Write the queries that explore a graph, and find what a query of others mentions.

Rows are capped by LIMIT, so that a hub answers as fast as any other entity.

Source: KnowPath, appendix G. The paper's queries have no direction, name or limit; "head" is `out`
here and "tail" is `in`.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from kbqa.sparql.crp import Hop
from kbqa.sparql.dialect import KNOWN_PREFIXES, check_read_only, repair_query, tokens
from kbqa.sparql.errors import QuerySyntaxError
from kbqa.sparql.terms import full_iri, iri, is_mid, quote, resource_id

Direction = Literal["out", "in"]

NAME = "type.object.name"
TYPE = "type.object.type"
NOTABLE_TYPES = "common.topic.notable_types"

_SUBJECT, _RELATION, _OBJECT, _END = range(4)
_NO_TRIPLES = -1  # in expressions, in data, and outside of all braces
_NEXT_PLACE = {".": _SUBJECT, ";": _RELATION, ",": _OBJECT, "/": _RELATION, "|": _RELATION}
_TERMS = frozenset({"iri", "prefixed", "string", "variable", "node"})


def relations_query(entity: str, direction: Direction, limit: int) -> str:
    """Write the query for the relations of an entity."""
    edge = _edge(iri(entity), "?relation", direction)
    return f"SELECT DISTINCT ?relation WHERE {{ {edge} }} LIMIT {limit}"


def neighbours_query(entity: str, relation: str, direction: Direction, limit: int) -> str:
    """Write the query for what one relation leads to from an entity."""
    edge = _edge(iri(entity), iri(relation), direction)
    return f"SELECT DISTINCT ?entity WHERE {{ {edge} }} LIMIT {limit}"


def first_neighbours_query(entity: str, relation: str, direction: Direction, limit: int) -> str:
    """Write the query for the first of what one relation leads to, by id."""
    edge = _edge(iri(entity), iri(relation), direction)
    return f"SELECT DISTINCT ?entity WHERE {{ {edge} }} ORDER BY STR(?entity) LIMIT {limit}"


def neighbour_count_query(entity: str, relation: str, direction: Direction) -> str:
    """Write the query that counts what one relation leads to from an entity."""
    edge = _edge(iri(entity), iri(relation), direction)
    return f"SELECT (COUNT(DISTINCT ?entity) AS ?count) WHERE {{ {edge} }}"


def frontier_relations_query(entities: Sequence[str], direction: Direction, limit: int) -> str:
    """Write the query for the relations that any of several entities has."""
    edge = _edge("?node", "?relation", direction)
    return f"SELECT DISTINCT ?relation WHERE {{ {_values(entities)} {edge} }} LIMIT {limit}"


def frontier_neighbours_query(
    entities: Sequence[str], relation: str, direction: Direction, limit: int
) -> str:
    """Write the query for what one relation leads to from any of several entities."""
    edge = _edge("?node", iri(relation), direction)
    return f"SELECT DISTINCT ?entity WHERE {{ {_values(entities)} {edge} }} LIMIT {limit}"


def relations_of_each_query(entities: Sequence[str], direction: Direction, limit: int) -> str:
    """Write the query for the relations of each of several entities: `?node` and `?relation`."""
    edge = _edge("?node", "?relation", direction)
    return f"SELECT DISTINCT ?node ?relation\nWHERE {{ {_values(entities)} {edge} }} LIMIT {limit}"


def neighbours_of_each_query(
    starts: Sequence[tuple[str, str]], direction: Direction, limit: int
) -> str:
    """Write the query for what relations lead to, each from its own entity; like `edges_query`."""
    pairs = " ".join(f"({iri(entity)} {iri(relation)})" for entity, relation in starts)
    edge = _edge("?node", "?relation", direction)
    return (
        "SELECT DISTINCT ?node ?relation ?entity\n"
        f"WHERE {{ VALUES (?node ?relation) {{ {pairs} }} {edge} }} LIMIT {limit}"
    )


def edges_query(
    entities: Sequence[str],
    direction: Direction,
    prefixes: Sequence[str],
    kept: Sequence[str],
    limit: int,
) -> str:
    """Write the query for the edges of several entities: `?node`, `?relation` and `?entity`.

    Relations whose ids start with one of these prefixes are left out, unless they are in `kept`.
    """
    starts = " || ".join(
        f"STRSTARTS(STR(?relation), {quote(full_iri(prefix))})" for prefix in prefixes
    )
    return (
        f"SELECT DISTINCT ?node ?relation ?entity WHERE {{ {_values(entities)} "
        f"{_edge('?node', '?relation', direction)}\n"
        f"FILTER (?relation IN ({', '.join(map(iri, kept))}) || !({starts})) }} LIMIT {limit}"
    )


def starts_query(hops: Sequence[Hop], end: str, limit: int) -> str:
    """Write the query for the nodes from which hops lead to an entity; one may come repeatedly."""
    nodes = ["?entity", *(f"?n{at}" for at in range(1, len(hops))), iri(end)]
    edges: list[str] = []
    for start, hop, other in zip(nodes, hops, nodes[1:], strict=False):
        subject, object_ = (other, start) if hop.inverse else (start, other)
        edges.insert(0, f"{subject} {iri(hop.relation)} {object_}")
    return f"SELECT ?entity WHERE {{ {' . '.join(edges)} }} LIMIT {limit}"


def labels_query(mids: Sequence[str]) -> str:
    """Write the query for all names of many entities, in every language."""
    values = " ".join(map(iri, mids))
    return f"SELECT ?mid ?name WHERE {{ VALUES ?mid {{ {values} }} ?mid {iri(NAME)} ?name }}"


def _values(entities: Sequence[str]) -> str:
    return f"VALUES ?node {{ {' '.join(map(iri, entities))} }}"


def _edge(node: str, relation: str, direction: Direction) -> str:
    if direction == "out":
        return f"{node} {relation} ?entity"
    return f"?entity {relation} {node}"


class QueryMentions(NamedTuple):
    """The relations and entities that a query mentions."""

    relations: frozenset[str]  # of its triples, without variables
    entities: frozenset[str]  # all mids


def query_mentions(query: str) -> QueryMentions:
    """Collect the relations and entities of a query by its tokens.

    That is a hundred times faster than parsing it; a test checks that both find the same relations.

    Raises:
        QuerySyntaxError: It is not a query, a prefix is not declared, or brackets do not match.
        QueryRefused: It is an update, or uses SERVICE or FROM.
    """
    check_read_only(query)
    relations: set[str] = set()
    entities: set[str] = set()
    places = [_NO_TRIPLES]
    after_word = ""  # a keyword that decides what the next bracket contains
    declares = False
    for token in tokens(repair_query(query)):
        kind, text = token.kind, token.text
        place = places[-1]
        if kind in ("blank", "comment", "typed"):
            continue
        if kind == "word":
            word = text.upper()
            declares = word == "PREFIX"
            if word in ("FILTER", "VALUES", "BIND"):
                after_word = word
                places[-1] = place if place == _NO_TRIPLES else _SUBJECT  # a triple ends here
            if text == "a" and place == _RELATION:
                relations.add(f"{KNOWN_PREFIXES['rdf']}type")
                places[-1] = _OBJECT
        elif kind in _TERMS:
            if kind == "prefixed" and not declares:
                raise QuerySyntaxError(f"the prefix {token.prefix}: is not declared")
            if kind == "iri" and is_mid(resource := resource_id(text[1:-1])):
                entities.add(resource)
            if _SUBJECT <= place <= _OBJECT and not after_word:
                if kind == "iri" and place == _RELATION:
                    relations.add(resource_id(text[1:-1]))
                places[-1] += 1
            declares = declares and kind == "prefixed"
        elif text in ("{", "(", "["):
            places.append(_place_within(text, place, after_word))
            after_word = ""
        elif text in ("}", ")", "]"):
            _close(places, text)
        elif text in _NEXT_PLACE and place != _NO_TRIPLES:
            places[-1] = _NEXT_PLACE[text]
    if len(places) > 1:
        raise QuerySyntaxError("not a SPARQL query: a bracket is not closed")
    return QueryMentions(frozenset(relations), frozenset(entities))


def _place_within(bracket: str, around: int, after_word: str) -> int:
    if after_word == "VALUES" or (bracket == "(" and (after_word or around != _RELATION)):
        return _NO_TRIPLES
    # Round brackets in place of a relation contain a property path.
    return _SUBJECT if bracket == "{" else _RELATION


def _close(places: list[int], bracket: str) -> None:
    places.pop()
    if not places:
        raise QuerySyntaxError("not a SPARQL query: a closing bracket was never opened")
    if places[-1] == _NO_TRIPLES:
        return
    if bracket == "}":
        places[-1] = _SUBJECT
    elif bracket == "]" or places[-1] == _RELATION:
        places[-1] += 1
