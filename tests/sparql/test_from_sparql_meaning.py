"""Queries drawn at random mean the same as the CRPs that they become, on graphs drawn at random."""

import random
from collections.abc import Callable

import pyoxigraph
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kbqa.sparql.compile import compile_crp
from kbqa.sparql.dialect import repair_query
from kbqa.sparql.errors import CrpConversionError
from kbqa.sparql.from_sparql import crp_from_sparql
from kbqa.sparql.terms import FREEBASE_NS

ENTITIES = [f"m.{letter}" for letter in "abcdefg"]
RELATIONS = ["r.p", "r.q", "r.s"]
_VARIABLES = st.sampled_from(["?x", "?y", "?z", "?w", "?v"])
_CONSTANTS = st.sampled_from([f"ns:{entity}" for entity in ENTITIES[:3]])
_NODES = st.one_of(_VARIABLES, _VARIABLES, _CONSTANTS)


@pytest.fixture(scope="module")
def graphs() -> list[pyoxigraph.Store]:
    """Graphs so dense that most patterns match and most constraints keep something out."""
    drawn = random.Random(0)
    stores = []
    for size in (14, 30, 50):
        store = pyoxigraph.Store()
        for _ in range(size):
            names = drawn.choice(ENTITIES), drawn.choice(RELATIONS), drawn.choice(ENTITIES)
            store.add(pyoxigraph.Quad(*(pyoxigraph.NamedNode(FREEBASE_NS + n) for n in names)))
        stores.append(store)
    return stores


@st.composite
def triples(draw: st.DrawFn, most: int) -> str:
    lines = draw(
        st.lists(st.tuples(_NODES, st.sampled_from(RELATIONS), _NODES), min_size=1, max_size=most)
    )
    return " ".join(f"{subject} ns:{relation} {object_} ." for subject, relation, object_ in lines)


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    left, right = draw(_VARIABLES), draw(_NODES)
    return f"{left} {draw(st.sampled_from(['=', '!=', '!=']))} {right}"


@st.composite
def conditions(draw: st.DrawFn) -> str:
    exists = triples(2).map(lambda group: f"EXISTS {{ {group} }}")
    filtered = st.tuples(triples(1), comparisons()).map(
        lambda parts: f"EXISTS {{ {parts[0]} FILTER ({parts[1]}) }}"
    )
    single = st.one_of(comparisons(), exists, filtered, exists.map(lambda text: f"NOT {text}"))
    parts = draw(st.lists(single, min_size=1, max_size=2))
    return draw(st.sampled_from([" || ", " && "])).join(parts)


@st.composite
def groups(draw: st.DrawFn, depth: int) -> str:
    parts = [draw(triples(3))]
    parts += [f"FILTER ({condition})" for condition in draw(st.lists(conditions(), max_size=2))]
    if depth and draw(st.booleans()):
        alternatives = draw(st.lists(groups(depth - 1), min_size=2, max_size=3))
        parts.append(" UNION ".join(f"{{ {alternative} }}" for alternative in alternatives))
    return " ".join(draw(st.permutations(parts)))


MAIN_PATHS = st.sampled_from(
    [
        "",
        "ns:m.a ns:r.p ?x .",
        "ns:m.a ns:r.p ?y . ?x ns:r.q ?y .",
        "{ ns:m.a ns:r.p ?x } UNION { ns:m.a ns:r.q ?y . ?y ns:r.s ?x }",
        "ns:m.a ns:r.p ?y { ?y ns:r.q ?x . ?x ns:r.p ?z } UNION { ?x ns:r.s ?y FILTER (?x != ?y) }",
    ]
)


def run(store: pyoxigraph.Store, query: str) -> set[str]:
    solutions = store.query(query)
    assert isinstance(solutions, pyoxigraph.QuerySolutions)
    return {str(solution["x"]) for solution in solutions}


def check(graphs: list[pyoxigraph.Store], where: str, count: Callable[[str], None]) -> None:
    """Compare a query with the CRP that it becomes, if it does; tell `count` what became of it."""
    query = f"SELECT DISTINCT ?x WHERE {{ {where} }}"
    try:
        compiled = compile_crp(crp_from_sparql(query))
    except CrpConversionError as error:
        count(error.reason)
        assume(False)
    count("converted")
    for graph in graphs:
        assert run(graph, compiled) == run(graph, repair_query(query)), compiled


@settings(deadline=None, max_examples=100)
@given(path=MAIN_PATHS, where=st.one_of(groups(0), groups(1), groups(2)))
def test_no_meaning_is_lost(graphs: list[pyoxigraph.Store], path: str, where: str) -> None:
    check(graphs, f"{path} {where}", lambda reason: None)
