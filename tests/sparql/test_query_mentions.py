import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbqa.sparql.convert.query_tree import parse_query
from kbqa.sparql.dialect import query_mentions
from kbqa.sparql.errors import QueryRefused, QuerySyntaxError
from kbqa.sparql.terms import resource_id

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


@pytest.mark.parametrize(
    ("pattern", "relations"),
    [
        ("ns:m.0a ns:a.b ?x . ?x ns:c.d ns:m.0b", {"a.b", "c.d"}),
        ("?x ns:a.b ns:e.f ; ns:c.d ns:e.g , ns:e.h .", {"a.b", "c.d"}),
        ("?x a ns:people.person", {RDF_TYPE}),
        ("?x ?p ns:people.person", set()),
        ("?x ns:a.b 12.5 . ?x ns:c.d '3'^^xsd:int", {"a.b", "c.d"}),
        ("?x ns:a.b/^ns:c.d ?y", {"a.b", "c.d"}),
        ("?x (ns:a.b|ns:c.d)+ ns:e.f", {"a.b", "c.d"}),
        ("?x ns:a.b [ ns:c.d ?y ; ns:e.f ?z ] . ?z ns:g.h ?w", {"a.b", "c.d", "e.f", "g.h"}),
        ("{ ?x ns:a.b ?y } UNION { ?x ns:c.d ?y }", {"a.b", "c.d"}),
        ("?x ns:a.b ?y FILTER (?y != ns:m.0a) ?x ns:c.d ?z", {"a.b", "c.d"}),
        ("FILTER (NOT EXISTS { ?x ns:a.b ?y } || EXISTS { ?x ns:c.d ?y })", {"a.b", "c.d"}),
        ("FILTER regex(?n, 'ns:a.b') FILTER xsd:boolean(?x) ?x ns:c.d ?n", {"c.d"}),
        ("VALUES ?x { ns:m.0a ns:m.0b } ?x ns:a.b ?y", {"a.b"}),
        ("VALUES (?x ?y) { (ns:m.0a ns:m.0b) } ?x ns:a.b ?y", {"a.b"}),
        ("{ SELECT ?y { ?y ns:a.b ?z } ORDER BY xsd:int(?z) } ?x ns:c.d ?y", {"a.b", "c.d"}),
        ("?x ns:a.b ?y BIND (ns:m.0a AS ?z) ?z ns:c.d ?y", {"a.b", "c.d"}),
        ("?x ns:a.b ?y . # ?x ns:c.d ?y\n", {"a.b"}),
    ],
)  # fmt: skip
def test_relations_stand_where_relations_stand(pattern: str, relations: set[str]) -> None:
    assert query_mentions(f"SELECT ?x WHERE {{ {pattern} }} LIMIT 3").relations == relations


def test_entities_stand_anywhere() -> None:
    query = "PREFIX f: <http://rdf.freebase.com/ns/> ASK { f:m.0a ?p ?x FILTER (?x != f:g.1b) }"
    assert query_mentions(query).entities == {"m.0a", "g.1b"}


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("hello", QuerySyntaxError, "begins with 'hello'"),
        ("ASK { ex:a ns:a.b ?x }", QuerySyntaxError, "the prefix ex: is not declared"),
        ("ASK { ?x ns:a.b ?y ", QuerySyntaxError, "is not closed"),
        ("ASK { ?x ns:a.b ?y } }", QuerySyntaxError, "was never opened"),
        ("DELETE { ?x ns:a.b ?y } WHERE {}", QueryRefused, "would write"),
    ],
)
def test_what_is_no_query_is_told(query: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        query_mentions(query)


@pytest.mark.parametrize("name", ["webqsp.test-half", "webqsp.train", "cwq.test-half", "cwq.dev"])
def test_the_relations_are_those_that_a_parser_finds(shared: Path, name: str) -> None:
    with gzip.open(shared / "data" / "qa" / f"{name}.jsonl.gz") as rows:
        queries = [json.loads(row)["sparql"] for row in rows]
    # rdflib takes up to 50 ms a query.
    for query in queries[7::200]:
        assert query_mentions(query).relations == set(_relations(parse_query(query)))


def _relations(node: Any, *, is_relation: bool = False) -> Iterator[str]:
    from pyparsing import ParseResults
    from rdflib import URIRef

    if is_relation and isinstance(node, URIRef):
        yield resource_id(str(node))
    elif isinstance(node, dict):
        is_block = getattr(node, "name", "") == "TriplesBlock"
        for value in node.values():
            if is_block:
                for run in value:
                    for relation in list(run)[1::3]:
                        yield from _relations(relation, is_relation=True)
            else:
                yield from _relations(value, is_relation=is_relation)
    elif isinstance(node, list | tuple | ParseResults):
        for value in node:
            yield from _relations(value, is_relation=is_relation)
