"""LIMIT and OFFSET at the end of queries."""

import gzip
import json
from contextlib import suppress
from pathlib import Path

import pyoxigraph
import pytest
from hypothesis import given, settings
from rdflib.plugins.sparql.algebra import translateQuery
from rdflib.plugins.sparql.parser import parseQuery
from strategies import crps

from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import Crp
from kbqa.sparql.dialect import (
    cap_rows,
    check_read_only,
    prefix_query,
    repair_query,
    row_beyond,
    row_limit,
)
from kbqa.sparql.errors import KbqaError, QueryRefused, QuerySyntaxError

NS = "http://rdf.freebase.com/ns/"
XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.mark.parametrize(
    ("written", "repaired"),
    [
        pytest.param("ns:people.person.gender", f"<{NS}people.person.gender>", id="undeclared ns"),
        pytest.param("fb:m.0abc", f"<{NS}m.0abc>", id="undeclared fb"),
        pytest.param("?x ns:m.0_a.", f"?x <{NS}m.0_a>.", id="the dot that ends a triple"),
        pytest.param("ns:a.b/ns:c.d|^ns:e", f"<{NS}a.b>/<{NS}c.d>|^<{NS}e>", id="property path"),
        pytest.param(r"ns:a\.b", f"<{NS}a.b>", id="escaped dot"),
        pytest.param("PREFIX x: <http://x/> x:a.b.c", "PREFIX x: <http://x/> <http://x/a.b.c>"),
        pytest.param("prefix : <http://x/> :a", "prefix : <http://x/> <http://x/a>", id="empty"),
        pytest.param("PREFIX #c\nns: <http://x/> ns:a", "PREFIX #c\nns: <http://x/> <http://x/a>"),
        pytest.param("other:a.b.c", "other:a.b.c", id="unknown prefix stays"),
        pytest.param("?a OR ?b and ?c", "?a || ?b && ?c", id="keywords for operators"),
        pytest.param("?OR ?x", "?OR ?x", id="variable called OR"),
        pytest.param("xsd:datetime(?x)", f"<{XSD}dateTime>(?x)", id="datetime"),
        pytest.param('"1980" ^^ xsd:date', f'"1980"^^<{XSD}date>', id="blanks around ^^"),
        pytest.param('"ns:a.b OR xsd:datetime"', '"ns:a.b OR xsd:datetime"', id="string"),
        pytest.param("'it\\'s ns:a.b' ns:c", f"'it\\'s ns:a.b' <{NS}c>", id="escaped quote"),
        pytest.param('"""a "ns:b" c""" ns:d', f'"""a "ns:b" c""" <{NS}d>', id="long string"),
        pytest.param("<http://x/ns:a.b#OR> ns:c", f"<http://x/ns:a.b#OR> <{NS}c>", id="IRI"),
        pytest.param("# ns:a.b OR\nns:c", f"# ns:a.b OR\n<{NS}c>", id="comment"),
        pytest.param("?a < ?b OR ?c > ?d", "?a < ?b || ?c > ?d", id="less than is no IRI"),
        pytest.param("_:b ns:a", f"_:b <{NS}a>", id="blank node"),
        pytest.param('"a"@en-GB OR', '"a"@en-GB ||', id="language tag"),
        pytest.param('"never closed ns:a', f'"never closed <{NS}a>', id="open string"),
    ],
)
def test_repair(written: str, repaired: str) -> None:
    assert repair_query(written) == repaired
    assert repair_query(repaired) == repaired


@pytest.mark.parametrize(
    ("query", "form"),
    [
        ("SELECT * { ?s ?p ?o }", "select"),
        ("#MANUAL SPARQL\nPREFIX ns: <http://x/>\nask{}", "ask"),
        ("BASE <http://x/> DESCRIBE <y>", "describe"),
        ("construct { ?s ?p ?o } where { ?s ?p ?o }", "construct"),
        ('SELECT ?x { ?x ?p "SERVICE FROM" } # FROM', "select"),
        ("SELECT ?from ?service { ?from ns:from ?service }", "select"),
    ],
)
def test_reading_is_let_by(query: str, form: str) -> None:
    assert check_read_only(query) == form


@pytest.mark.parametrize(
    "query",
    [
        "INSERT DATA { <a:a> <a:b> <a:c> }",
        "PREFIX ns: <http://x/> DELETE WHERE { ?s ?p ?o }",
        "# SELECT\nCLEAR ALL",
        "WITH <g:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
        "SELECT * { SERVICE <http://x/> { ?s ?p ?o } }",
        "SELECT * { service silent ?g { ?s ?p ?o } }",
        "SELECT * FROM <http://x/> { ?s ?p ?o }",
        "ASK FROM NAMED <http://x/> { ?s ?p ?o }",
        "SELECT * { FILTER(1<2)SERVICE<http://x/>{ ?s ?p ?o } }",
        "SELECT * { VALUES ?s { ns:a } FILTER(?a<?b)SERVICE?s#>\n{ ?s ?p ?o } }",
        "SELECT * { ?a ?b _:b.c.SERVICE <http://x/> { ?s ?p ?o } }",
    ],
)
def test_writing_and_reaching_out_are_refused(query: str) -> None:
    with pytest.raises(QueryRefused):
        check_read_only(query)


@pytest.mark.parametrize(
    "query",
    [
        r"SELECT * { S\u0045RVICE <http://x/> { ?s ?p ?o } }",
        r"SELECT * { \u0073\U00000065rvice <http://x/> { ?s ?p ?o } }",
        r"SELECT * FR\u004FM <http://x/> { ?s ?p ?o }",
        r'SELECT * { ?s ?p "\u0022 SERVICE <http://x/> { ?s ?p ?o } #" }',
        "PREFIX : <http://x/> SELECT * FROM:x { ?s ?p ?o }",
        "PREFIX : <http://x/> SELECT * { service:x { ?s ?p ?o } }",
        "SELECT(COUNT(1<2)AS?c)FROM:x#>\n{ ?s ?p ?o }",
        "SELECT(COUNT(?a<f:b(?c))AS?c)FROM:x#>\n{ ?s ?p ?o }",
        "SELECT * { ?s ?p ?o FILTER(?a<?b#>'''\n)SERVICE<http://x/>{ ?s ?p ?o }#'''\n}",
        "SELECT * { ?s ?p ?o FILTER(?a<#>'''\n?b)SERVICE<http://x/>{ ?s ?p ?o }#'''\n}",
    ],
)
def test_what_hides_behind_an_escape_or_a_less_than_is_refused(query: str) -> None:
    with pytest.raises(QueryRefused):
        check_read_only(query)


def test_many_doubtful_iris_are_refused_at_once() -> None:
    with pytest.raises(QueryRefused, match="more than 100 relative IRIs"):
        check_read_only("ASK { ?from ?p " + "<?b#>'" * 100_000)


@pytest.mark.parametrize(
    "query",
    [
        r'SELECT ?x { ?x ?p "S\u0045RVICE" }',
        "SELECT ?x { ?x <http://x/a(b)/from/service> ?y FILTER(?x < ?y) }",
        "PREFIX x: <http://x#> SELECT ?x { ?x x:a '''many ) lines\nfrom SERVICE''' }",
        r"SELECT ?x { ?x <http://x/\u0046ROM> ?y }",
    ],
)
def test_an_iri_or_a_string_may_hold_any_word(query: str) -> None:
    assert check_read_only(query) == "select"


@pytest.mark.parametrize(
    "text", ["", "# nothing", "who is justin bieber?", "PREFIX ns: <http://x/>"]
)
def test_what_is_no_query_is_said_so(text: str) -> None:
    with pytest.raises(QuerySyntaxError, match="not a SPARQL query"):
        check_read_only(text)


@pytest.mark.parametrize("name", ["qa/webqsp.train", "qa/cwq.dev", "fidelity/queries-half"])
def test_gold_queries_parse_after_repair(shared: Path, name: str) -> None:
    store = pyoxigraph.Store()
    unreadable = set()
    with gzip.open(shared / "data" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            if number % 7 or "sparql" not in row:
                continue
            assert check_read_only(row["sparql"]) == "select"
            try:
                store.query(repair_query(row["sparql"]))
            except SyntaxError:
                unreadable.add(row["id"].partition("_")[0])
    # One projects a variable beside COUNT without GROUP BY, the other lacks brackets after HAVING.
    assert unreadable <= {"WebQTrn-2513", "WebQTrn-301"}


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


@pytest.mark.parametrize(
    ("query", "is_capped"),
    [
        ("SELECT ?x { ?x ?y ?z }", True),
        ("SELECT ?x { ?x ?y ?z } # end", True),
        ("SELECT ?x { { SELECT ?x { ?x ?y ?z } LIMIT 3 } } OFFSET 2", True),
        ("SELECT ?x { ?x ?y ?z } limit 3", False),
        ("SELECT ?x { ?x ?y ?z } VALUES ?x { <a:a> }", False),
    ],
)
def test_cap_rows(query: str, is_capped: bool) -> None:
    capped = cap_rows(query, 7)
    assert (capped != query) == is_capped
    pyoxigraph.Store().query(capped)


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("SELECT ?x { ?x ?y ?z }", None),
        ("SELECT ?x { ?x ?y ?z } OFFSET 8", None),
        ("SELECT ?x { ?x ?y ?z } OFFSET 8 LIMIT #seven\n 7", 7),
        ("SELECT ?LIMIT { ?x ?y 'LIMIT 5' } limit 12", 12),
    ],
)
def test_row_limit(query: str, limit: int | None) -> None:
    assert row_limit(query) == limit


@pytest.mark.parametrize(
    "end",
    [
        "",
        " # end",
        " ORDER BY DESC(?x)",
        " LIMIT 9",
        " OFFSET 2 LIMIT 9",
        " GROUP BY ?x HAVING (COUNT(*) > 0) ORDER BY ?x LIMIT 4",
        " LIMIT 9 VALUES ?n { 1 2 3 }",
    ],
)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_there_is_a_row_beyond_where_the_query_has_more(end: str, count: int) -> None:
    query = f"SELECT ?x {{ VALUES ?x {{ 'a' 'b' 'c' }} }}{end}"
    store = pyoxigraph.Store()

    def rows(text: str) -> int:
        solutions = store.query(text)
        assert isinstance(solutions, pyoxigraph.QuerySolutions)
        return len(list(solutions))

    has_more = rows(query) > count
    assert rows(row_beyond(query, count)) == has_more
