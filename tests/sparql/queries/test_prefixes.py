from contextlib import suppress

import pytest
from hypothesis import given, settings
from rdflib.plugins.sparql.algebra import translateQuery
from rdflib.plugins.sparql.parser import parseQuery
from strategies import crps

from kbqa.sparql.compiler.compile import compile_crp
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import KbqaError
from kbqa.sparql.queries.dialect import repair_query
from kbqa.sparql.queries.prefixes import prefix_query

NS = "http://rdf.freebase.com/ns/"
XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"


def _algebra(query: str) -> str:
    return repr(translateQuery(parseQuery(query)).algebra)


@pytest.mark.parametrize(
    ("iris", "names"),
    [
        (f"?x <{NS}a.b.c> <{NS}m.0a>", "?x ns:a.b.c ns:m.0a"),
        (f'"1980"^^<{XSD}gYear>', '"1980"^^xsd:gYear'),
        (f"?x <{RDF}type> ?y", "?x rdf:type ?y"),
        (f"?x<{NS}a><{NS}b>.<{NS}c><{NS}d>5", "?x ns:a ns:b . ns:c ns:d 5"),
        (f"(<{NS}a>/<{NS}b>|^<{NS}c>)", "(ns:a/ns:b|^ns:c)"),
        (f'"<{NS}a>" # <{NS}b>\n<{NS}c>', f'"<{NS}a>" # <{NS}b>\nns:c'),
        (f"<{NS}ends.in.>", f"<{NS}ends.in.>"),
        (f"<{NS}100%25> <{NS}a/b> <{NS}é>", f"<{NS}100%25> <{NS}a/b> <{NS}é>"),
        (f"<{NS}> <http://elsewhere/a>", f"<{NS}> <http://elsewhere/a>"),
        (f"<{XSD}datetime>(?x)", f"<{XSD}datetime>(?x)"),
    ],
)
def test_iris_become_names_that_are_read_as_the_same_iris(iris: str, names: str) -> None:
    shown = prefix_query(iris)
    body = "\n".join(line for line in shown.splitlines() if not line.startswith("PREFIX"))
    assert body == names
    assert repair_query(body).replace(" ", "") == iris.replace(" ", "")


@settings(max_examples=50)
@given(crps())
def test_kbqa_reads_the_compiled_query_where_it_was_shortened(crp: Crp) -> None:
    with suppress(KbqaError):
        query = compile_crp(crp)
        shown = prefix_query(query)
        assert shown.startswith("PREFIX ns: ")
        assert repair_query(shown).endswith(f">\n{query}")
        assert prefix_query(shown) == shown


@settings(max_examples=10)
@given(crps())
def test_the_names_mean_the_same_by_the_standard(crp: Crp) -> None:
    with suppress(KbqaError):
        query = compile_crp(crp)
        assert _algebra(prefix_query(query)) == _algebra(query)


@pytest.mark.parametrize("first", ["PREFIX ns: <http://x/>", "base <http://x/>"])
def test_a_query_with_prefixes_of_its_own_stays_as_it_is(first: str) -> None:
    query = f"{first} ASK {{ ns:a <{NS}b> ?x }}"
    assert prefix_query(query) == query
