"""What compiled queries find beyond flat constraints: forks, alternatives, references to nodes.

Written in kbqa's own text form and run on the embedded engine.
"""

import pyoxigraph
import pytest

from kbqa.sparql.compile import (
    compile_crp,
    compile_evidence,
    compile_skeleton,
    compile_skeleton_prefixes,
)
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import parse_crp
from kbqa.sparql.terms import FREEBASE_NS

# China trades with Japan (to), Kenya (from) and both ways with Laos; wars and presidents.
GRAPH = """
m.china exports m.e1
m.e1 to m.japan
m.china exports m.e2
m.e2 to m.laos
m.china imports m.i1
m.i1 from m.laos
m.china imports m.i2
m.i2 from m.kenya
m.i2 good m.tea
m.asia holds m.china
m.japan in m.asia
m.laos in m.asia
m.japan capital m.tokyo
m.kenya capital m.nairobi
m.tokyo people "9000"
m.nairobi people "3000"
m.laos people "7000"
m.japan people "120000"
m.kenya people "50000"
m.us office m.o1
m.o1 holder m.fdr
m.o1 begin 1933
m.o1 end 1945
m.us office m.o2
m.o2 holder m.obama
m.o2 begin 2009
m.o2 end 2017
m.us office m.o3
m.o3 holder m.biden
m.o3 begin 2021
m.war start 1939
m.fdr wife m.eleanor
m.eleanor aunt_of m.fdr
m.obama wife m.michelle
"""


@pytest.fixture(scope="module")
def store() -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    for line in filter(None, GRAPH.splitlines()):
        subject, relation, object_ = line.split(" ")
        store.add(pyoxigraph.Quad(_iri(subject), _iri(relation), _term(object_)))
    return store


def _iri(text: str) -> pyoxigraph.NamedNode:
    return pyoxigraph.NamedNode(FREEBASE_NS + text)


def _term(text: str) -> pyoxigraph.NamedNode | pyoxigraph.Literal:
    if text.startswith("m."):
        return _iri(text)
    if text.isdigit():
        year = pyoxigraph.NamedNode("http://www.w3.org/2001/XMLSchema#gYear")
        return pyoxigraph.Literal(text, datatype=year)
    return pyoxigraph.Literal(text.strip('"'))


def read(text: str) -> Crp:
    crp, problems = parse_crp(text)
    assert not problems
    return crp


def answers(store: pyoxigraph.Store, query: str) -> str:
    solutions = store.query(query)
    assert isinstance(solutions, pyoxigraph.QuerySolutions)
    found = [solution["x"].value.removeprefix(f"{FREEBASE_NS}m.") for solution in solutions]
    return " ".join(sorted(found))


TRADE = "m.china (-> exports -> to | -> imports -> from)"
OFFICE = "m.us -> office -> holder"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(TRADE, "japan kenya laos", id="fork"),
        pytest.param(f"{TRADE}\n?x -> in = m.asia", "japan laos", id="fork, constraint behind it"),
        pytest.param(f"{TRADE} -> capital", "nairobi tokyo", id="fork, and on"),
        pytest.param(
            "m.asia -> holds (-> exports -> to | -> imports -> from)\ndistinct from ?1",
            "japan kenya laos",
            id="fork in the middle",
        ),
        pytest.param(
            "m.china (-> exports -> to | -> imports {-> good = m.tea} -> from)",
            "japan kenya laos",
            id="constraint in a way",
        ),
        pytest.param(
            "m.china ((-> exports | -> nothing) -> to | -> imports -> from)",
            "japan kenya laos",
            id="fork in a fork",
        ),
        pytest.param(f"{TRADE}\nlargest ?x -> people", "japan", id="fork with a superlative"),
        pytest.param(
            f"{TRADE}\n?x {{-> in = m.asia, -> capital | = m.kenya}}", "japan kenya", id="any of"
        ),
        pytest.param(f"{TRADE}\n?x {{= m.kenya | = m.laos}}", "kenya laos", id="any of entities"),
        pytest.param(
            f"{TRADE}\n?x -> capital {{= m.tokyo | -> people < 5000}}",
            "japan kenya",
            id="any of at the end of a branch",
        ),
        pytest.param(f"{TRADE}\n?x no -> capital", "laos", id="no such branch"),
        pytest.param(
            f"{TRADE}\n?x no -> capital {{-> people > 5000}}", "kenya laos", id="none that is so"
        ),
        pytest.param(
            f"{TRADE}\n?x {{no -> capital | -> capital = m.nairobi}}",
            "kenya laos",
            id="any of, one negated",
        ),
        pytest.param(
            f"{OFFICE}\n?1 -> begin <= ?a\n?1 -> end >= ?a\nm.war -> start ?a",
            "fdr",
            id="during an event",
        ),
        pytest.param(
            f"{OFFICE}\n?1 -> begin > ?a\n?1 -> end > ?a or none\nm.war -> start ?a",
            "biden obama",
            id="after an event, the end may be missing",
        ),
        pytest.param(f"{OFFICE}\n?x -> wife -> aunt_of is ?x", "fdr", id="back to where it began"),
        pytest.param(
            f"{OFFICE}\n?x -> wife ?a\n?x <- aunt_of is ?a", "fdr", id="branches that meet"
        ),
        pytest.param(
            f"{OFFICE}\n?x -> wife {{no -> aunt_of is ?x}}",
            "obama",
            id="not back to where it began",
        ),
        pytest.param(
            f"{OFFICE}\n?1 -> begin ?a {{> 1950}}\nsmallest ?a", "obama", id="ordered by a label"
        ),
        pytest.param(
            f"{TRADE}\n?x -> people > ?a\nm.laos -> people ?a", "japan kenya", id="numbers compared"
        ),
    ],
)
def test_answers(store: pyoxigraph.Store, text: str, expected: str) -> None:
    assert answers(store, compile_crp(read(text))) == expected


@pytest.mark.parametrize(
    "text",
    [
        "m.us -> office -> holder\n?x -> wife = m.michelle",
        "m.japan <- to <- exports\n?x <- holds = m.asia",
        f"{TRADE}\n?x -> in = m.asia",
    ],
    ids=["forwards", "backwards", "fork"],
)
def test_answers_do_not_hang_on_where_a_query_starts(store: pyoxigraph.Store, text: str) -> None:
    crp = read(text)
    query = compile_crp(crp, start=crp.constraints[0])
    assert query != compile_crp(crp)
    assert answers(store, query) == answers(store, compile_crp(crp)) != ""


def test_skeleton_of_a_fork_needs_one_way_and_no_constraint(store: pyoxigraph.Store) -> None:
    assert store.query(compile_skeleton(read("m.china (-> nothing | -> imports {-> a.b} -> from)")))
    assert not store.query(compile_skeleton(read("m.china (-> nothing | -> imports -> to)")))


def test_prefixes_tell_where_a_path_breaks(store: pyoxigraph.Store) -> None:
    crp = read(f"{TRADE} -> nothing -> people")
    exists = [bool(store.query(query)) for query in compile_skeleton_prefixes(crp)]
    assert exists == [True, False, False]


def test_evidence_shows_the_way_and_the_alternative_that_hold(store: pyoxigraph.Store) -> None:
    crp = read(f"{TRADE}\n?x {{-> capital = m.tokyo | -> capital = m.nairobi}}")
    query, patterns, _ = compile_evidence(crp, ["m.kenya"])
    solutions = store.query(query)
    assert isinstance(solutions, pyoxigraph.QuerySolutions)
    [row] = solutions
    bound = {
        f"?{name.value}": str(row[name]) for name in solutions.variables if row[name] is not None
    }
    shown = [
        " ".join(bound.get(term, term) for term in pattern).replace(FREEBASE_NS, "")
        for pattern in patterns
    ]
    assert "<m.i2> <from> <m.kenya>" in shown
    assert "<m.kenya> <capital> <m.nairobi>" in shown


def test_ways_that_multiply_are_refused() -> None:
    with pytest.raises(InputError, match="combine to more than 64 ways"):
        compile_crp(read("m.china" + " (-> a.b | -> c.d)" * 7))


@pytest.mark.parametrize(("superlative", "expected"), [("largest", "japan"), ("smallest", "kenya")])
def test_what_no_number_can_be_cast_from_comes_before_the_smallest(
    superlative: str, expected: str
) -> None:
    """As where SPARQL orders by a cast: what that fails for comes first."""
    store = pyoxigraph.Store()
    for subject, value in (("japan", '"9"'), ("laos", '"5"'), ("kenya", '"9327-05-03"')):
        store.add(pyoxigraph.Quad(_iri("m.asia"), _iri("holds"), _iri(f"m.{subject}")))
        store.add(pyoxigraph.Quad(_iri(f"m.{subject}"), _iri("people"), _term(value)))
    if superlative == "largest":  # one that is no literal must not hide the number beside it
        store.add(pyoxigraph.Quad(_iri("m.japan"), _iri("people"), _iri("m.unknown")))
    crp = read(f"m.asia -> holds\n{superlative} ?x -> people")
    assert answers(store, compile_crp(crp)) == expected
