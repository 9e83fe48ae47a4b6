import pytest

from tools.convert.query_constructs import PLAIN, query_constructs

LANGUAGE = "FILTER (!isLiteral(?x) OR lang(?x) = '' OR langMatches(lang(?x), 'en'))"


@pytest.mark.parametrize(
    ("where", "constructs"),
    [
        pytest.param("", {PLAIN}, id="plain"),
        pytest.param("# 'tis < a comment\n?x ns:c.d ns:m.0b .", {PLAIN}, id="comment"),
        pytest.param("FILTER (?x != ?c) ?c ns:c.d ?x .", {PLAIN}, id="another entity"),
        pytest.param('?x ns:c.d "34" .', {"typed equality"}, id="number as object"),
        pytest.param('?x ns:c.d "2004" ^^ xsd:dateTime .', {"typed equality"}, id="date as object"),
        pytest.param('?x ns:c.d "JMD" .', {"string equality"}, id="string as object"),
        pytest.param('?x ns:c.d "1984"@en .', {"string equality"}, id="title as object"),
        pytest.param(
            '?x ns:c.d ?v FILTER (str(?v) = "State")', {"string equality"}, id="string compared"
        ),
        pytest.param(
            "?x ns:c.d ?n FILTER (xsd:integer(?n) < 5)",
            {"number or date comparison"},
            id="number compared",
        ),
        pytest.param(
            '?x ns:c.d ?n FILTER (?n > "2010-01-01"^^xsd:dateTime)',
            {"number or date comparison"},
            id="date compared",
        ),
        pytest.param(
            'FILTER (NOT EXISTS {?x ns:c ?v} || EXISTS {?x ns:c ?v FILTER(?v <= "2010")})',
            {"interval (NOT EXISTS || EXISTS)"},
            id="interval",
        ),
        pytest.param(
            "?x ns:c.d ?n . ?x ns:e.f ?m FILTER (xsd:float(?n) < ?m)",
            {"two-variable comparison"},
            id="two variables",
        ),
        pytest.param("?x ns:c.d ?y . ?y ns:e.f ?z . ?z ns:g.h ?x .", {"cycle"}, id="circle"),
        pytest.param("{?x ns:c.d ?y} UNION {?x ns:e.f ?y}", {"UNION"}, id="union"),
        pytest.param("{SELECT ?y {?y ns:c.d ?x}}", {"sub-select"}, id="sub-select"),
        pytest.param(
            '?x ns:c.d "34" ; ns:e.f ?n } ORDER BY ?n LIMIT 1 #',
            {"ORDER BY", "typed equality"},
            id="two constructs",
        ),
    ],
)
def test_constructs_are_found(where: str, constructs: set[str]) -> None:
    query = f"SELECT ?x WHERE {{ {LANGUAGE} ns:m.0a ns:a.b ?x . {where} }}"
    assert set(query_constructs(query)) == constructs
