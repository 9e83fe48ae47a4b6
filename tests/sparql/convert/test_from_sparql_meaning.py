"""Queries drawn at random mean the same as the CRPs that they become, on graphs drawn at random."""

import random
from collections.abc import Callable

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.sparql.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.dialect import repair_query
from kbqa.sparql.errors import CrpConversionError
from kbqa.sparql.terms import FREEBASE_NS, XSD_NS

ENTITIES = [f"m.{letter}" for letter in "abcdefg"]
RELATIONS = ["r.p", "r.q", "r.s"]
NUMBER, DATE, NAME = "r.number", "r.date", "r.name"
DATE_TYPE = pyoxigraph.NamedNode(f"{XSD_NS}date")
NAMES = [
    pyoxigraph.Literal("A"),
    pyoxigraph.Literal("A", language="en"),
    pyoxigraph.Literal("A", language="de"),
    pyoxigraph.Literal("true", datatype=pyoxigraph.NamedNode(f"{XSD_NS}boolean")),
]
LANGUAGE = '(!isLiteral(?x) || lang(?x) = "" || langMatches(lang(?x), "en"))'
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
        numbers = drawn.sample(range(5, 25), len(ENTITIES))  # none twice, so no order is a tie
        for entity, number in zip(ENTITIES, numbers, strict=True):
            date = pyoxigraph.Literal(f"20{number:02}-01-01", datatype=DATE_TYPE)
            for relation, values in (
                (NUMBER, [pyoxigraph.Literal(str(number))]),
                (DATE, [date] if number % 3 else []),
                (NAME, drawn.sample(NAMES, drawn.randrange(3))),
            ):
                for value in values:
                    subject = pyoxigraph.NamedNode(FREEBASE_NS + entity)
                    predicate = pyoxigraph.NamedNode(FREEBASE_NS + relation)
                    store.add(pyoxigraph.Quad(subject, predicate, value))
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
def values(draw: st.DrawFn) -> str:
    """Draw a triple with a literal, or one whose value is compared."""
    node = draw(_VARIABLES)
    value, number = f"?{draw(st.sampled_from('mn'))}", draw(st.integers(5, 25))
    operator = draw(st.sampled_from(["<", "<=", "=", "!=", ">=", ">"]))
    day = f'"20{number:02}-01-01"^^xsd:date'
    text = draw(st.sampled_from([*map(str, NAMES[:3]), "true"]))
    return draw(
        st.sampled_from(
            [
                f"{node} ns:{NUMBER} {value} FILTER (xsd:integer({value}) {operator} {number})",
                f"{node} ns:{DATE} {value} FILTER ({value} {operator} {day})",
                f"{node} ns:{DATE} {day} .",
                f"{node} ns:{NAME} {text} .",
                f"{node} ns:{NAME} {value} FILTER ({value} = {text})",
                f'{node} ns:{NAME} {value} FILTER (str({value}) = "A")',
                f"{node} ns:{DATE} {value} . {draw(_VARIABLES)} ns:{DATE} ?o "
                f"FILTER ({value} {operator} ?o)",
                f"{node} ns:{NUMBER} {value} . {draw(_VARIABLES)} ns:{NUMBER} ?o "
                f"FILTER (xsd:integer({value}) - xsd:integer(?o) {operator} 0)",
            ]
        )
    )


@st.composite
def intervals(draw: st.DrawFn) -> str:
    node, limit = draw(_VARIABLES), f'"20{draw(st.integers(5, 25)):02}-01-01"^^xsd:date'
    test = draw(st.sampled_from([f"?to <= {limit}", f"{limit} < ?to", "?to > ?n", "?n != ?to"]))
    triple = f"{node} ns:{draw(st.sampled_from([DATE, 'r.p']))}"
    return f"NOT EXISTS {{ {triple} ?none }} || EXISTS {{ {triple} ?to FILTER ({test}) }}"


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    held = triples(2)
    if depth:
        filtered = st.tuples(st.one_of(triples(1), values()), conditions(depth - 1))
        unions = st.tuples(triples(1), triples(1), triples(1))
        held = st.one_of(
            held,
            filtered.map(lambda parts: f"{parts[0]} FILTER ({parts[1]})"),
            unions.map(lambda each: f"{each[0]} {{ {each[1]} }} UNION {{ {each[2]} }}"),
            values(),
        )
    exists = held.map(lambda group: f"EXISTS {{ {group} }}")
    single = st.one_of(comparisons(), exists, exists.map(lambda text: f"NOT {text}"))
    if depth:
        single = st.one_of(single, conditions(depth - 1).map(lambda inner: f"({inner})"))
    parts = draw(st.lists(single, min_size=1, max_size=2))
    return draw(st.sampled_from([" || ", " && "])).join(parts)


@st.composite
def groups(draw: st.DrawFn, depth: int) -> str:
    parts = [draw(triples(3))]
    filters = draw(st.lists(st.one_of(conditions(), intervals()), max_size=2))
    parts += [f"FILTER ({condition})" for condition in filters]
    parts += draw(st.lists(values(), max_size=1))
    for _ in range(draw(st.integers(0, 2)) if depth else 0):
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


def check(graphs: list[pyoxigraph.Store], query: str, count: Callable[[str], None]) -> None:
    """Compare a query with the CRP that it becomes, if it does; tell `count` what became of it."""
    try:
        compiled = compile_crp(crp_from_sparql(query))
    except CrpConversionError as error:
        count(error.reason)
        return
    count("converted")
    for graph in graphs:
        assert run(graph, compiled) == run(graph, repair_query(query)), compiled


@settings(deadline=None, max_examples=60)
@given(path=MAIN_PATHS, where=st.one_of(groups(0), groups(1), groups(2)))
def test_no_meaning_is_lost(graphs: list[pyoxigraph.Store], path: str, where: str) -> None:
    check(graphs, f"SELECT DISTINCT ?x WHERE {{ {path} {where} }}", lambda reason: None)


@settings(deadline=None, max_examples=30)
@given(
    path=MAIN_PATHS,
    where=st.one_of(st.just("?x ns:r.p ?z ."), groups(1)),
    key=st.sampled_from(["xsd:integer(?k)", "DESC(xsd:integer(?k))", "DESC(xsd:float(?k))"]),
    rows=st.sampled_from(["LIMIT 1", "LIMIT 2", "LIMIT 1 OFFSET 1", "LIMIT 3 OFFSET 2"]),
    answers=st.sampled_from(["?x = ?x", LANGUAGE, "?x != ns:m.a"]),
)
def test_no_order_is_lost(
    graphs: list[pyoxigraph.Store], path: str, where: str, key: str, rows: str, answers: str
) -> None:
    where = f"{path} {where} ?x ns:{NUMBER} ?k FILTER ({answers})"
    query = f"SELECT DISTINCT ?x WHERE {{ {where} }} ORDER BY {key} {rows}"
    check(graphs, query, lambda reason: None)
