"""What queries ask for, other than all answers to a pattern."""

import pytest

from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.errors import CrpConversionError
from kbqa.sparql.forms import render_crp

AREA = "?x ns:c.d ?n"
SAME = "{ SELECT (MAX(?m) AS ?n) { ns:m.0a ns:a.b ?y . ?y ns:c.d ?m FILTER (?y != ?m) } }"
ANY = "\ndistinct from none\nany language"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        pytest.param(
            "SELECT (?x0 AS ?value) { SELECT DISTINCT ?x0 { VALUES ?x1 { ns:m.0a } "
            "?x1 ns:a.b ?x0 . FILTER (?x0 != ?x1) } }",
            "m.0a -> a.b\nany language",
            id="a sub-select whose column gets another name",
        ),
        pytest.param(
            "SELECT DISTINCT ?x ?name { ns:m.0a ns:a.b ?x "
            "OPTIONAL { ?x ns:type.object.name ?name } } LIMIT 9999",
            f"m.0a -> a.b{ANY}",
            id="an optional name, and a limit that bounds a page",
        ),
        pytest.param(
            "SELECT (COUNT(DISTINCT ?x) AS ?n) { ns:m.0a ns:a.b ?x }",
            f"m.0a -> a.b{ANY}\ncount",
            id="a count",
        ),
        pytest.param(
            "SELECT (COUNT(?x) AS ?n) { SELECT DISTINCT ?x { ns:m.0a ns:a.b ?x } }",
            f"m.0a -> a.b{ANY}\ncount",
            id="a count of distinct rows",
        ),
        pytest.param(
            "SELECT DISTINCT ?n { { SELECT (count(?x) AS ?n) { ns:m.0a ns:a.b ?x } } } LIMIT 9999",
            f"m.0a -> a.b{ANY}\ncount bindings",
            id="a count of all rows",
        ),
        pytest.param(
            "SELECT (COUNT(?x) AS ?n) { SELECT ?x { ns:m.0a ns:a.b ?x } }",
            f"m.0a -> a.b{ANY}\ncount bindings",
            id="a count of rows that are not distinct",
        ),
        pytest.param(
            "ASK { ns:m.0a ns:a.b ns:m.0b }", f"m.0a -> a.b\n?x = m.0b{ANY}\nask", id="a fact"
        ),
        pytest.param(
            "ASK { ns:m.0a ns:a.b ?y . ?y ns:c.d ?z FILTER (?z > 5) }",
            f"m.0a -> a.b -> c.d\n?x > 5^^integer{ANY}\nask",
            id="a yes/no question",
        ),
        pytest.param(
            f"SELECT ?x {{ ns:m.0a ns:a.b ?x . {AREA} {SAME} FILTER (?x != ?n) }}",
            f"m.0a -> a.b\nlargest with ties ?x -> c.d{ANY}",
            id="those with the largest value",
        ),
        pytest.param(
            "SELECT ?x { ?x ns:type.object.type ns:a.b . ?x ns:c.d ?n "
            "{ SELECT (MIN(?m) AS ?n) { ?y ns:type.object.type ns:a.b . ?y ns:c.d ?m } } }",
            f"ns:a.b <- type.object.type\nsmallest with ties ?x -> c.d{ANY}",
            id="the smallest of a class",
        ),
        pytest.param(
            f"SELECT ?x {{ ns:m.0a ns:a.b ?x . {AREA} }} "
            "GROUP BY ?x ORDER BY DESC(COUNT(DISTINCT ?n)) LIMIT 1 OFFSET 2",
            f"m.0a -> a.b\nmost 1 after 2 ?x -> c.d{ANY}",
            id="the third most",
        ),
        pytest.param(
            "SELECT ?x { ns:m.0a ns:a.b ?x MINUS { ?x ns:c.d ns:m.0b } }",
            f"m.0a -> a.b\n?x no -> c.d = m.0b{ANY}",
            id="MINUS",
        ),
        pytest.param(
            "SELECT ?x { ns:m.0a ns:a.b ?x VALUES ?x { ns:m.0b ns:m.0c } }",
            f"m.0a -> a.b\n?x {{= m.0b | = m.0c}}{ANY}",
            id="one of several",
        ),
        pytest.param(
            "SELECT ?x { ns:m.0a ns:a.b ?x VALUES ?x { ns:m.0b } }",
            f"m.0a -> a.b\n?x = m.0b{ANY}",
            id="VALUES of the answer",
        ),
        pytest.param(
            'SELECT ?x { ?x ns:type.object.type ns:a.b VALUES ?v { "0.5"^^xsd:float } '
            "?x ns:c.d ?v FILTER (?x != ?v) }",
            f"ns:a.b <- type.object.type\n?x -> c.d = 0.5{ANY}",
            id="a value",
        ),
        pytest.param(
            "SELECT ?x { ns:m.0a ns:a.b ?x . ?x ns:c.d ?n FILTER (?n > 5) "
            "FILTER (?x != ?n && ns:m.0a != ?n && ns:m.0a != ns:m.0b) }",
            f"m.0a -> a.b\n?x -> c.d > 5^^integer{ANY}",
            id="an entity is never a number, nor another entity",
        ),
    ],
)
def test_select(query: str, text: str) -> None:
    assert render_crp(crp_from_sparql(query)) == text


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param("ns:m.0c ns:a.b ?y . ?y ns:c.d ?m", id="another entity"),
        pytest.param("?y ns:c.d ?m", id="fewer triples"),
        pytest.param("ns:m.0a ns:a.b ?m . ?m ns:c.d ?y", id="another value"),
        pytest.param("ns:m.0a ns:a.b ?y . ?y ns:c.d ?m FILTER (?m > 1)", id="another filter"),
        pytest.param("ns:m.0a ns:a.b ?y . ?y ns:c.d ?y", id="one variable for two"),
    ],
)
def test_the_largest_of_other_patterns_is_refused(inner: str) -> None:
    sub_select = f"{{ SELECT (MAX(?m) AS ?n) {{ {inner} }} }}"
    with pytest.raises(CrpConversionError, match="MAX over other patterns"):
        crp_from_sparql(f"SELECT ?x {{ ns:m.0a ns:a.b ?x . {AREA} {sub_select} }}")
