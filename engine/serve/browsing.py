"""Look around in the graph: find entities by name, and follow one relation at a time.

Counts come before rows, as a hub has millions of them. The functions run in a thread, through
`Service.look_up`. They raise `InputError` if a mid or relation is none.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from kbqa.engine.linking.ground import ungrounded_entities
from kbqa.engine.serve import records
from kbqa.engine.serve.served import MAX_HOPS
from kbqa.kb.graph import Direction, Graph, name_terms
from kbqa.kb.names import Names
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.crp import Crp, CrpReading
from kbqa.sparql.english import describe_crp
from kbqa.sparql.errors import InputError, QueryTimeout, UnlinkedName
from kbqa.sparql.forms import read_crp, render_crp, render_routerkgqa
from kbqa.sparql.terms import LiteralTerm, iri, is_well_formed

MAX_OFFSET = 10_000
_COUNT_TIMEOUT_S = 3.0
_MOST_RELATIONS = 1000
_NEAR = 3
_ID = re.compile(r"\w[\w-]*(\.[^\s.]+)+")
_DIRECTIONS: tuple[Direction, ...] = ("out", "in")


def find_entities(graph: Graph, names: Names, name: str, limit: int) -> list[records.FoundEntity]:
    """Find entities by a name that may be incomplete or mistyped, best first."""
    if not name.strip():
        raise InputError("the name is empty")
    return [
        records.FoundEntity(
            mid=match.mid,
            name=match.name,
            matched=match.matched,
            types=list(graph.types(match.mid)),
            triples=match.popularity,
        )
        for match in names.search(name, limit)
    ]


def describe_entity(graph: Graph, _: Names, mid: str) -> records.EntityRecord:
    """Return an entity's name, types and numbers of triples; `UnlinkedName` if there is none."""
    name, types = _name(graph, mid), list(graph.types(mid))
    counts = (_counts(graph, mid, way) for way in _DIRECTIONS)
    outgoing, incoming = (None if each is None else sum(each.values()) for each in counts)
    if not types and name == mid and outgoing == incoming == 0:
        raise UnlinkedName(mid, f"the graph has no entity {mid}")
    return records.EntityRecord(
        mid=mid, name=name, types=types, outgoing=outgoing, incoming=incoming
    )


def list_relations(
    graph: Graph,
    _: Names,
    mid: str,
    direction: Direction | None = None,
    contains: str = "",
    limit: int = _MOST_RELATIONS,
) -> records.RelationsRecord:
    """List the relations of an entity with their counts, those that leave it first.

    None is both directions. A relation's id must hold `contains`, whatever its case.
    """
    name = _name(graph, mid)
    found: list[tuple[Direction, str, int | None]] = []
    for way in _DIRECTIONS if direction is None else (direction,):
        counts = _counts(graph, mid, way)
        relations = graph.relations(mid, way, _MOST_RELATIONS) if counts is None else sorted(counts)
        found += [(way, each, None if counts is None else counts[each]) for each in relations]
    found = [each for each in found if contains.lower() in each[1].lower()]
    shown = found[:limit]
    labels = graph.labels(relation for _, relation, _ in shown)
    return records.RelationsRecord(
        mid=mid,
        name=name,
        relations=[
            records.RelationRecord(relation=each, name=labels.get(each), direction=way, count=count)
            for way, each, count in shown
        ],
        truncated=len(found) > limit,
    )


def list_neighbours(
    graph: Graph,
    _: Names,
    mid: str,
    relation: str,
    direction: Direction = "out",
    limit: int = 20,
    offset: int = 0,
) -> records.NeighboursRecord:
    """List some of the nodes that one relation leads to, in the order of the graph."""
    if offset > MAX_OFFSET:
        raise InputError(
            f"the offset {offset:,} is too large; {MAX_OFFSET:,} is the most. Use /sparql"
        )
    _check_id(relation)
    name = _name(graph, mid)
    ends = graph.neighbours(mid, relation, direction, offset + limit + 1)
    shown = ends[offset : offset + limit]
    names = name_terms(graph, shown)
    return records.NeighboursRecord(
        mid=mid,
        name=name,
        relation=relation,
        direction=direction,
        offset=offset,
        neighbours=[
            records.NeighbourRecord(value=term.text, name=term.text)
            if isinstance(term, LiteralTerm)
            else records.NeighbourRecord(mid=term, name=names[term])
            for term in shown
        ],
        truncated=len(ends) > offset + limit,
    )


def check_has_relation(
    graph: Graph, _: Names, mid: str, relation: str, direction: Direction
) -> None:
    """Raise `InputError` if an entity lacks a relation, with those that are spelled like it."""
    has = {way: graph.relations(mid, way, _MOST_RELATIONS) for way in _DIRECTIONS}
    if relation in has[direction]:
        return
    other: Direction = "in" if direction == "out" else "out"
    near = get_close_matches(relation, has[direction], _NEAR)
    turned = [f"{each} (direction {other})" for each in get_close_matches(relation, has[other], 1)]
    nearest = ", ".join([*near, *turned])
    advice = f"The nearest: {nearest}" if nearest else "See the list of its relations"
    where = "leaves" if direction == "out" else "enters"
    raise InputError(f"no {relation} {where} {mid}. {advice}")


def explain_path(text: str) -> records.PathRecord:
    """Return a path in all its forms, with its unreadable lines; no graph is asked."""
    return _path_record(*read_path(text))


def read_path(text: str) -> CrpReading:
    """Read a path of a client, of at most `MAX_HOPS` hops."""
    reading = read_crp(text)
    check_hops(sum(1 for _ in reading.crp.relations()))
    return reading


def check_hops(count: int) -> None:
    """Raise `InputError` if a path has too many hops."""
    if count > MAX_HOPS:
        raise InputError(
            f"the path has {count:,} hops, those of its conditions included; {MAX_HOPS} are allowed"
        )


def path_of_query(query: str) -> records.PathRecord:
    """Return the path that says the same as a query; fails as `crp_from_sparql` does."""
    return _path_record(crp_from_sparql(query))


def _path_record(crp: Crp, problems: Sequence[str] = ()) -> records.PathRecord:
    return records.PathRecord(
        crp=render_crp(crp),
        routerkgqa=render_routerkgqa(crp),
        crp_words=describe_crp(crp),
        sparql=None if ungrounded_entities(crp) else compile_crp(crp),
        problems=list(problems),
    )


def _counts(graph: Graph, mid: str, direction: Direction) -> dict[str, int] | None:
    """Count the edges of each relation of an entity; None if that takes too long."""
    triple = f"{iri(mid)} ?r ?x" if direction == "out" else f"?x ?r {iri(mid)}"
    query = f"SELECT ?r (COUNT(*) AS ?n) WHERE {{ {triple} }} GROUP BY ?r"
    try:
        rows = graph.select(query, timeout_s=_COUNT_TIMEOUT_S).rows
    except QueryTimeout:
        return None
    return {
        relation: int(n.text)
        for relation, n in rows
        if isinstance(relation, str) and isinstance(n, LiteralTerm)
    }


def _name(graph: Graph, mid: str) -> str:
    _check_id(mid)
    return graph.labels([mid]).get(mid, mid)


def _check_id(text: str) -> None:
    if not (_ID.fullmatch(text) and is_well_formed(text)):
        raise InputError(f"{text[:80]!r} is not an id such as m.09c7w0 or people.person.gender")
