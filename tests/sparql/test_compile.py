"""What compiled queries find, on a small graph with the dump's habits of writing literals."""

from collections.abc import Iterable
from dataclasses import replace

import pyoxigraph
import pytest

from kbqa.sparql.compile import compile_crp, compile_evidence, compile_skeleton
from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    IsNotEntity,
    Operator,
    Order,
    Test,
    TextEquals,
)
from kbqa.sparql.terms import FREEBASE_NS, XSD_NS, LiteralTerm, Term
from kbqa.sparql.values import comparison, order_keys

# Subject, relation, object; `text^type` and `"text"@language` are literals.
GRAPH = """
m.t has.date m.y
m.t has.date m.ym
m.t has.date m.d
m.t has.date m.dt
m.t has.date m.z
m.t has.date m.jun
m.t has.date m.79
m.t has.date m.81
m.t has.date m.bc44
m.t has.date m.bc100
m.y date 1980^gYear
m.ym date 1980-01^gYearMonth
m.d date 1980-01-01^date
m.dt date 1980-01-01T00:00:00^dateTime
m.z date 1980-01-01T08:00:00-08:00^dateTime
m.jun date 1980-06-15^date
m.79 date 1979-12-31^date
m.81 date 1981^gYear
m.bc44 date -0044-03-15^date
m.bc100 date -0100^gYear

m.t has.number m.12
m.t has.number m.12_0
m.t has.number m.9
m.t has.number m.100
m.t has.number m.minus
m.12 number "12"
m.12_0 number "12.0"
m.9 number "9"
m.100 number "100"
m.minus number "-3"

m.t has.word m.word
m.word number "twelve"

m.t has.year m.gyear
m.t has.year m.plain
m.t has.year m.later
m.gyear year 1980^gYear
m.plain year "1980"
m.later year 1980-06^gYearMonth

m.t has.office m.both
m.t has.office m.open
m.t has.office m.past
m.t has.office m.none
m.t has.office m.future
m.both from 2009-01-20^date
m.both to 2013^gYear
m.open from 2008-11^gYearMonth
m.past from 1997^gYear
m.past to 2009-12-31^date
m.none title m.mayor
m.both title m.mayor
m.future from 2014-05-01^date
m.future title m.chair
m.open title m.chair

m.t has.name m.named
m.t has.name m.plain_name
m.t has.name m.longer
m.named name "Jamaica"@en
m.named name "Jamaika"@de
m.plain_name name "Jamaica"
m.longer name "Jamaica Inn"@en

m.t called "topic"@en
m.t called "Thema"@de
m.t called "plain"

m.ann knows m.t
m.ben knows m.t
m.t likes m.ann
m.ann film m.f1
m.ann film m.f2
m.ben film m.f2
m.f1 role m.r1
m.f1 role m.r2
m.f2 role m.r3
m.r1 actor m.ann
m.r1 award m.oscar
m.r2 actor m.ben
m.r3 actor m.ben
m.r3 award m.oscar
"""


def _node(text: str) -> pyoxigraph.NamedNode | pyoxigraph.Literal:
    if text.startswith('"'):
        value, _, language = text[1:].rpartition('"')
        return pyoxigraph.Literal(value, language=language[1:] or None)
    value, typed, datatype = text.partition("^")
    if typed:
        return pyoxigraph.Literal(value, datatype=pyoxigraph.NamedNode(XSD_NS + datatype))
    return pyoxigraph.NamedNode(FREEBASE_NS + text)


@pytest.fixture(scope="module")
def store() -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    for line in filter(None, GRAPH.splitlines()):
        subject, relation, object_ = (_node(part) for part in line.split(" ", 2))
        store.add(pyoxigraph.Quad(subject, relation, object_))
    return store


def rows(store: pyoxigraph.Store, query: str) -> list[dict[str, str]]:
    solutions = store.query(query)
    assert isinstance(solutions, pyoxigraph.QuerySolutions)
    return [
        {
            variable.value: solution[variable].value.removeprefix(FREEBASE_NS).removeprefix("m.")
            for variable in solutions.variables
            if solution[variable] is not None
        }
        for solution in solutions
    ]


def answers(store: pyoxigraph.Store, crp: Crp) -> list[str]:
    return [row["x"] for row in rows(store, compile_crp(crp))]


def hops(*relations: str) -> tuple[Hop, ...]:
    """Make hops; a relation that starts with ^ is followed backwards."""
    return tuple(Hop(name.removeprefix("^"), inverse=name.startswith("^")) for name in relations)


def crp(path: str, *constraints: Constraint, topic: str = "m.t", order: Order | None = None) -> Crp:
    return Crp(Entity(mid=topic), hops(*path.split()), constraints, order)


def words(text: str | Iterable[str]) -> set[str]:
    return set(text.split() if isinstance(text, str) else text)


SAME = "y ym d dt"  # four ways to write the first instant of 1980
EARLIER, LATER = "79 bc44 bc100", "z jun 81"


@pytest.mark.parametrize(
    "value",
    [
        LiteralTerm("1980"),
        LiteralTerm("1980-01-01"),
        LiteralTerm("1980", "gYear"),
        LiteralTerm("1980-01", "gYearMonth"),
        LiteralTerm("1980", "dateTime"),
        LiteralTerm("1980-01-01", "dateTime"),
        LiteralTerm("1980-01-01T00:00:00", "dateTime"),
        LiteralTerm("1980-01-01T00:00:00Z", "dateTime"),
        LiteralTerm("1979-12-31T16:00:00-08:00", "dateTime"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("<", EARLIER),
        ("<=", f"{EARLIER} {SAME}"),
        (">=", f"{LATER} {SAME}"),
        (">", LATER),
        ("!=", f"{EARLIER} {LATER}"),
    ],
)
def test_dates_compare_by_value(
    store: pyoxigraph.Store, operator: Operator, value: LiteralTerm, expected: str
) -> None:
    test = Constraint(1, hops("date"), Compare(operator, value))
    assert words(answers(store, crp("has.date", test))) == words(expected)


@pytest.mark.parametrize("text", ["1980", "1980-01", "1980-01-01", "1980-01-01T00:00:00"])
@pytest.mark.parametrize("datatype", [None, "gYear", "dateTime"])
def test_dates_are_equal_in_every_precision_that_names_the_same_instant(
    store: pyoxigraph.Store, text: str, datatype: str | None
) -> None:
    test = Constraint(1, hops("date"), Compare("=", LiteralTerm(text, datatype)))
    assert words(answers(store, crp("has.date", test))) == words(SAME)


@pytest.mark.parametrize(
    ("operator", "text", "expected"),
    [
        ("<", "1980-06-15", f"{EARLIER} {SAME} z"),
        ("<=", "1980-06-15", f"{EARLIER} {SAME} z jun"),
        (">", "1980-06-14T23:00:00", "jun 81"),
        ("=", "1980-06-15", "jun"),
        ("<", "-0044", "bc100"),
        ("<=", "-0044", "bc100"),
        ("<=", "-0044-03-15", "bc44 bc100"),
        (">", "-0100", f"bc44 79 {LATER} {SAME}"),
        ("=", "-0100", "bc100"),
        ("!=", "-0100-01-01", f"bc44 79 {LATER} {SAME}"),
    ],
)
def test_other_dates(store: pyoxigraph.Store, operator: Operator, text: str, expected: str) -> None:
    test = Constraint(1, hops("date"), Compare(operator, LiteralTerm(text)))
    assert words(answers(store, crp("has.date", test))) == words(expected)


@pytest.mark.parametrize(
    "value",
    [
        LiteralTerm("12"),
        LiteralTerm("12.0"),
        LiteralTerm("12.00"),
        LiteralTerm("+12"),
        LiteralTerm("1.2e1"),
        LiteralTerm("12", "integer"),
        LiteralTerm("12.0", "float"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("=", "12 12_0"),
        ("<", "9 minus"),
        ("<=", "9 minus 12 12_0"),
        (">=", "100 12 12_0"),
        (">", "100"),
        ("!=", "9 minus 100"),
    ],
)
def test_numbers_compare_by_value(
    store: pyoxigraph.Store, operator: Operator, value: LiteralTerm, expected: str
) -> None:
    test = Constraint(1, hops("number"), Compare(operator, value))
    assert words(answers(store, crp("has.number", test))) == words(expected)


@pytest.mark.parametrize(("operator", "expected"), [("=", ""), ("<", ""), ("!=", "word")])
def test_a_word_is_no_number(store: pyoxigraph.Store, operator: Operator, expected: str) -> None:
    test = Constraint(1, hops("number"), Compare(operator, LiteralTerm("12")))
    assert words(answers(store, crp("has.word", test))) == words(expected)


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("=", LiteralTerm("1980"), "gyear plain"),
        ("<=", LiteralTerm("1980"), "gyear plain"),
        (">", LiteralTerm("1979"), "gyear plain later"),
        (">", LiteralTerm("1980"), "later"),
        ("!=", LiteralTerm("1980"), "later"),
        ("=", LiteralTerm("1980", "integer"), "plain"),
    ],
)
def test_a_bare_year_compares_with_dates_and_with_numbers(
    store: pyoxigraph.Store, operator: Operator, value: LiteralTerm, expected: str
) -> None:
    test = Constraint(1, hops("year"), Compare(operator, value))
    assert words(answers(store, crp("has.year", test))) == words(expected)


def during(date: str) -> tuple[Constraint, Constraint]:
    return (
        Constraint(1, hops("from"), Compare("<=", LiteralTerm(date)), optional=True),
        Constraint(1, hops("to"), Compare(">=", LiteralTerm(date)), optional=True),
    )


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("2009-06-01", "both open past none"),
        ("2010-12-31", "both open none"),
        ("2013", "both open none"),
        ("2013-01-02", "open none"),
        ("1990", "none"),
    ],
)
def test_an_interval_may_lack_its_ends(store: pyoxigraph.Store, date: str, expected: str) -> None:
    assert words(answers(store, crp("has.office", *during(date)))) == words(expected)


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        pytest.param(IsEntity(Entity(mid="m.mayor")), "both past none", id="entity"),
        pytest.param(IsNotEntity(Entity(mid="m.mayor")), "open past future", id="not entity"),
    ],
)
def test_only_a_lacking_branch_is_forgiven(
    store: pyoxigraph.Store, test: Test, expected: str
) -> None:
    constraint = Constraint(1, hops("title"), test, optional=True)
    assert words(answers(store, crp("has.office", constraint))) == words(expected)


def test_equality_may_lack_its_value_but_not_have_another(store: pyoxigraph.Store) -> None:
    equal = Constraint(1, hops("to"), Compare("=", LiteralTerm("2013")), optional=True)
    assert words(answers(store, crp("has.office", equal))) == words("both open none future")
    between = Constraint(
        1,
        hops("from"),
        None,
        tuple(
            Constraint(1, (), Compare(operator, LiteralTerm(text)))
            for operator, text in (("=", "1997"), ("<", "2000"))
        ),
        optional=True,
    )
    assert words(answers(store, crp("has.office", between))) == words("past none")


def test_an_optional_hop_behind_a_required_one(store: pyoxigraph.Store) -> None:
    ends = Constraint(1, hops("to"), Compare(">=", LiteralTerm("2010")), optional=True)
    office = Constraint(1, hops("has.office"), None, (ends,))
    titled = Constraint(1, hops("title"), IsEntity(Entity(mid="m.chair")))
    path = "^has.office has.office"
    found = crp(path, replace(titled, at=2), replace(office, at=1), topic="m.both")
    assert words(answers(store, found)) == words("open future")


@pytest.mark.parametrize(
    ("path", "order", "expected"),
    [
        ("has.number", Order(1, hops("number"), descending=True), ["100"]),
        ("has.number", Order(1, hops("number"), descending=False), ["minus"]),
        ("has.number", Order(1, hops("number"), descending=False, offset=1), ["9"]),
        ("has.number", Order(1, hops("number"), True, limit=2, offset=3), ["9", "minus"]),
        ("has.date", Order(1, hops("date"), descending=True, limit=2), ["81", "jun"]),
        (
            "has.date",
            Order(1, hops("date"), descending=False, limit=3),
            ["bc100", "bc44", "79"],
        ),
        ("has.number number", Order(2, (), descending=True), ["100"]),
        ("has.number number", Order(1, hops("number"), descending=False), ["-3"]),
    ],
)
def test_superlatives(
    store: pyoxigraph.Store, path: str, order: Order, expected: list[str]
) -> None:
    assert answers(store, crp(path, order=order)) == expected


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (TextEquals("Jamaica"), "named plain_name"),
        (TextEquals("Jamaica", "en"), "named"),
        (TextEquals("Jamaica", "EN"), "named"),
        (TextEquals("Jamaica", "de"), ""),
        (TextEquals("Jamaika"), "named"),
        (TextEquals("jamaica"), ""),
        (TextEquals("Jam"), ""),
    ],
    ids=str,
)
def test_strings_are_equal_or_not(store: pyoxigraph.Store, test: TextEquals, expected: str) -> None:
    assert words(answers(store, crp("has.name", Constraint(1, hops("name"), test)))) == (
        words(expected)
    )


OSCAR = IsEntity(Entity(mid="m.oscar"))
ANN, BEN = IsEntity(Entity(mid="m.ann")), IsEntity(Entity(mid="m.ben"))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(crp("^knows film"), "f1 f2", id="inverse hop on the main path"),
        pytest.param(
            crp("^knows film", Constraint(1, (), BEN)), "f2", id="the node itself is an entity"
        ),
        pytest.param(
            crp("^knows film", Constraint(1, (), IsNotEntity(Entity(mid="m.ann")))),
            "f2",
            id="the node itself is not an entity",
        ),
        pytest.param(
            crp("^knows", Constraint(1, hops("film", "role", "award"), OSCAR)),
            "ann ben",
            id="branch of three hops",
        ),
        pytest.param(
            crp(
                "^knows film",
                Constraint(
                    2,
                    hops("role"),
                    None,
                    (Constraint(1, hops("actor"), ANN), Constraint(1, hops("award"), OSCAR)),
                ),
            ),
            "f1",
            id="both branches hang on one node",
        ),
        pytest.param(
            crp(
                "^knows film",
                Constraint(2, hops("role", "actor"), BEN),
                Constraint(2, hops("role", "award"), OSCAR),
            ),
            "f1 f2",
            id="two branches of their own",
        ),
        pytest.param(
            crp("^knows film", Constraint(2, hops("role", "actor", "^likes"), None)),
            "f1",
            id="branch backwards that need only exist",
        ),
        pytest.param(
            crp(
                "likes", Constraint(0, hops("has.number", "number"), Compare("=", LiteralTerm("9")))
            ),
            "ann",
            id="constraint on the topic",
        ),
        pytest.param(
            crp("likes", Constraint(0, (), IsEntity(Entity(mid="m.t")))), "ann", id="topic is"
        ),
        pytest.param(
            crp("likes", Constraint(0, (), Compare("=", LiteralTerm("9")))),
            "",
            id="topic is no number",
        ),
    ],
)
def test_branches(store: pyoxigraph.Store, query: Crp, expected: str) -> None:
    assert words(answers(store, query)) == words(expected)


@pytest.mark.parametrize(
    ("differs_from", "expected"),
    [(None, "ann ben"), (0, "ann"), (1, "ann ben"), (2, "ben")],
)
def test_the_answer_differs_from_a_node_of_the_path(
    store: pyoxigraph.Store, differs_from: int | None, expected: str
) -> None:
    found = crp("film ^film film role actor", topic="m.ben")
    found = replace(found, differs_from=differs_from)
    assert words(answers(store, found)) == words(expected)


def test_answers_that_are_texts_are_english_or_of_no_language(store: pyoxigraph.Store) -> None:
    assert words(answers(store, crp("called"))) == words("topic plain")


@pytest.mark.parametrize(("path", "exists"), [("^knows film", True), ("film ^knows", False)])
def test_skeleton(store: pyoxigraph.Store, path: str, exists: bool) -> None:
    unmet = Constraint(1, hops("nothing"), None)
    assert bool(store.query(compile_skeleton(crp(path, unmet)))) is exists


def test_evidence_binds_every_node_of_the_answers_proof(store: pyoxigraph.Store) -> None:
    awarded = Constraint(1, hops("award"), OSCAR)
    ends = Constraint(1, hops("to"), Compare(">=", LiteralTerm("2010")), optional=True)
    found = crp("^knows film", Constraint(2, hops("role"), None, (awarded, ends)))
    wanted: list[Term] = ["m.f2", "_:blank", LiteralTerm("a", language="not_a_tag")]
    query, patterns, parts = compile_evidence(found, wanted)
    assert sorted(sorted(row.items()) for row in rows(store, query)) == [
        [("b1", "r3"), ("n1", "ann"), ("x", "f2")],
        [("b1", "r3"), ("n1", "ben"), ("x", "f2")],
    ]
    assert [str(pattern).replace(FREEBASE_NS, "") for pattern in patterns] == [
        "?n1 <knows> <m.t> .",
        "?n1 <film> ?x .",
        "?x <role> ?b1 .",
        "?b1 <award> <m.oscar> .",
        "?b1 <to> ?b3 .",
    ]
    assert parts == (None, None, *found.constraints * 3)


def test_evidence_of_nothing_is_nothing(store: pyoxigraph.Store) -> None:
    assert rows(store, compile_evidence(crp("likes"), []).query) == []


def test_query_text() -> None:
    found = crp(
        "^a.b c.d",
        Constraint(1, hops("e.f"), IsEntity(Entity("Male", "m.05zppz"))),
        Constraint(2, hops("t.to"), Compare(">=", LiteralTerm("2015-08-10")), optional=True),
        order=Order(2, hops("n.o"), descending=True, limit=3, offset=1),
    )
    assert (
        compile_crp(found).replace(FREEBASE_NS, "")
        == f"""\
SELECT ?x WHERE {{
  ?n1 <a.b> <m.t> .
  ?n1 <c.d> ?x .
  FILTER (?x != <m.t>)
  FILTER (!ISLITERAL(?x) || LANG(?x) = "" || LANGMATCHES(LANG(?x), "en"))
  ?n1 <e.f> <m.05zppz> .
  OPTIONAL {{ ?x <t.to> ?b2 . }}
  FILTER (!BOUND(?b2) || ({comparison("?b2", ">=", LiteralTerm("2015-08-10"))}))
  ?x <n.o> ?b3 .
}}
GROUP BY ?x
ORDER BY {order_keys("?b3", descending=True)} ASC(STR(?x))
LIMIT 3
OFFSET 1"""
    )
