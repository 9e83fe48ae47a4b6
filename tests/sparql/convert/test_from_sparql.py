import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.sparql.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql, sparql_from_s_expression
from kbqa.sparql.crp import (
    Aggregate,
    AnyOf,
    Compare,
    Constraint,
    Crp,
    Entity,
    Fork,
    Hop,
    IsEntity,
    IsNode,
    IsNotEntity,
    IsNotNode,
    NodeRef,
    Order,
    TextEquals,
    Way,
)
from kbqa.sparql.crp_match import match_crps
from kbqa.sparql.errors import CrpConversionError, KbqaError, QuerySyntaxError
from kbqa.sparql.forms import parse_crp, parse_routerkgqa, read_crp, render_crp
from kbqa.sparql.terms import FREEBASE_NS, LiteralTerm

LANGUAGE = "FILTER (!isLiteral(?x) OR lang(?x) = '' OR langMatches(lang(?x), 'en'))"
BASE = Crp(Entity(mid="m.0a"), (Hop("a.b"),), differs_from=None, answer_language=None)


def keep(*constraints: Constraint, order: Order | None = None) -> Crp:
    return replace(BASE, constraints=constraints, order=order)


def about_answer(*hops: str, test: Any = None) -> Constraint:
    return Constraint(1, tuple(map(Hop, hops)), test)


def branch(hop: str, *branches: Constraint) -> Constraint:
    return Constraint(1, (Hop(hop),), None, branches)


def on_node(*hops: str, test: Any = None) -> Constraint:
    return replace(about_answer(*hops, test=test), at=0)


@pytest.mark.parametrize(
    ("where", "crp"),
    [
        pytest.param("", BASE, id="main path"),
        pytest.param(
            LANGUAGE, replace(BASE, answer_language="en"), id="the benchmarks' language filter"
        ),
        pytest.param("FILTER (?x != ns:m.0a)", replace(BASE, differs_from=0), id="not the topic"),
        pytest.param("FILTER (ns:m.0a != ?x)", replace(BASE, differs_from=0), id="topic is not"),
        pytest.param(
            "FILTER (?x != ns:m.0b)",
            keep(about_answer(test=IsNotEntity(Entity(mid="m.0b")))),
            id="not an entity",
        ),
        pytest.param(
            "FILTER (ns:m.0b = ?x)",
            keep(about_answer(test=IsEntity(Entity(mid="m.0b")))),
            id="an entity is the answer",
        ),
        pytest.param(
            "?x ns:c.d ns:m.0b . ns:m.0c ns:e.f ?x .",
            keep(
                about_answer("c.d", test=IsEntity(Entity(mid="m.0b"))),
                Constraint(1, (Hop("e.f", inverse=True),), IsEntity(Entity(mid="m.0c"))),
            ),
            id="entities in both directions",
        ),
        pytest.param(
            "?x ns:type.object.type ns:location.country .",
            keep(about_answer("type.object.type", test=IsEntity(Entity(mid="location.country")))),
            id="type",
        ),
        pytest.param(
            "?x ns:c.d ?c . ?c ns:e.f ns:m.0b . ?c ns:g.h ?d . ?d ns:i.j ns:m.0c .",
            keep(
                Constraint(
                    1,
                    (Hop("c.d"),),
                    None,
                    (
                        about_answer("e.f", test=IsEntity(Entity(mid="m.0b"))),
                        about_answer("g.h", "i.j", test=IsEntity(Entity(mid="m.0c"))),
                    ),
                )
            ),
            id="branch with branches",
        ),
        pytest.param(
            "?c ns:e.f ns:m.0b . ?x ns:c.d ?c .",
            keep(about_answer("c.d", "e.f", test=IsEntity(Entity(mid="m.0b")))),
            id="branch written from its end",
        ),
        pytest.param(
            "?x ns:c.d ns:m.0a .",
            keep(about_answer("c.d", test=IsEntity(Entity(mid="m.0a")))),
            id="branch back to the topic",
        ),
        pytest.param(
            "?c ns:e.f ns:m.0a . ?x ns:c.d ?c .",
            keep(about_answer("c.d", "e.f", test=IsEntity(Entity(mid="m.0a")))),
            id="branch back to the topic, written from its end",
        ),
        pytest.param(
            "ns:m.0a ns:c.d ?c . ns:m.0a ns:e.f ns:m.0b .",
            keep(
                Constraint(0, (Hop("c.d"),), None),
                Constraint(0, (Hop("e.f"),), IsEntity(Entity(mid="m.0b"))),
            ),
            id="constraints on the topic",
        ),
        pytest.param(
            '?x ns:c.d "2004"^^xsd:dateTime ; ns:e.f "34" ; ns:g.h "JMD" ; ns:i.j "1984"@en .',
            keep(
                about_answer("c.d", test=Compare("=", LiteralTerm("2004", "dateTime"))),
                about_answer("e.f", test=Compare("=", LiteralTerm("34"))),
                about_answer("g.h", test=TextEquals("JMD", "")),
                about_answer("i.j", test=TextEquals("1984", "en")),
            ),
            id="literals as objects",
        ),
        pytest.param(
            '?x ns:c.d ?d FILTER (xsd:datetime(?d) <= "2011-12-31" ^^ xsd:dateTime)',
            keep(about_answer("c.d", test=Compare("<=", LiteralTerm("2011-12-31")))),
            id="date compared",
        ),
        pytest.param(
            "?x ns:c.d ?n FILTER (5.5 < xsd:float(?n) && ?n != -7)",
            keep(
                Constraint(
                    1,
                    (Hop("c.d"),),
                    None,
                    (
                        about_answer(test=Compare(">", LiteralTerm("5.5"))),
                        about_answer(test=Compare("!=", LiteralTerm("-7", "integer"))),
                    ),
                )
            ),
            id="numbers compared, one of them negative",
        ),
        pytest.param(
            '?x ns:c.d ?n FILTER (str(?n) = "1984")',
            keep(about_answer("c.d", test=TextEquals("1984"))),
            id="string that looks like a year",
        ),
        pytest.param(
            '?x ns:c.d ?n FILTER (?n = "1984"@en)',
            keep(about_answer("c.d", test=TextEquals("1984", "en"))),
            id="string of a language that looks like a year",
        ),
        pytest.param(
            'FILTER (NOT EXISTS {?x ns:c.d ?v} || EXISTS {?x ns:c.d ?v FILTER(?v <= "2010")})'
            'FILTER (NOT EXISTS {?x ns:e.f ?v} || EXISTS {?x ns:e.f ?v FILTER(?v >= "2010")})',
            keep(
                replace(
                    about_answer("c.d", test=Compare("<=", LiteralTerm("2010"))), optional=True
                ),
                replace(
                    about_answer("e.f", test=Compare(">=", LiteralTerm("2010"))), optional=True
                ),
            ),
            id="interval",
        ),
        pytest.param(
            "FILTER EXISTS {?x ns:c.d ?v . ?v ns:e.f ns:m.0b FILTER(?v != ns:m.0c)}",
            keep(
                Constraint(
                    1,
                    (Hop("c.d"),),
                    None,
                    (
                        about_answer(test=IsNotEntity(Entity(mid="m.0c"))),
                        about_answer("e.f", test=IsEntity(Entity(mid="m.0b"))),
                    ),
                )
            ),
            id="exists",
        ),
        pytest.param(
            "?x ns:c.d ?c . ?c ns:e.f ?n } ORDER BY DESC(xsd:integer(?n)) LIMIT 2 OFFSET 1 #",
            keep(order=Order(1, (Hop("c.d"), Hop("e.f")), True, 2, 1)),
            id="superlative",
        ),
        pytest.param(
            "} ORDER BY ?x LIMIT 1 #", keep(order=Order(1, (), False)), id="ordered by the answer"
        ),
        pytest.param("} ORDER BY ?x #", BASE, id="order of a set"),
        pytest.param(
            "?x ns:c.d ?c . ?c ns:e.f ns:m.0b . ?c ns:g.h ?n } ORDER BY DESC(?n) LIMIT 1 #",
            keep(
                replace(
                    branch("c.d", about_answer("e.f", test=IsEntity(Entity(mid="m.0b")))), label="a"
                ),
                order=Order("a", (Hop("g.h"),), True),
            ),
            id="ordered by what hangs on a branch with a constraint",
        ),
        pytest.param(
            "?x ns:c.d ?n FILTER (?n > 5) } ORDER BY ?n LIMIT 1 #",
            keep(
                replace(
                    branch("c.d", about_answer(test=Compare(">", LiteralTerm("5", "integer")))),
                    label="a",
                ),
                order=Order("a", (), False),
            ),
            id="ordered by what a constraint tests",
        ),
        pytest.param(
            "?x ns:c.d ?y . ?y ns:e.f ?x",
            keep(about_answer("c.d", "e.f", test=IsNode(NodeRef(1)))),
            id="a circle back to the answer",
        ),
        pytest.param(
            "?x ns:c.d ?y . ns:m.0a ns:e.f ?y",
            keep(
                Constraint(1, (Hop("c.d"), Hop("e.f", inverse=True)), IsEntity(Entity(mid="m.0a")))
            ),
            id="a circle over the topic",
        ),
        pytest.param(
            "?x ns:c.d ?y . ?x ns:e.f ?z . ?z ns:g.h ?y",
            keep(
                replace(about_answer("c.d"), label="a"),
                about_answer("e.f", "g.h", test=IsNode(NodeRef("a"))),
            ),
            id="two branches that meet",
        ),
        pytest.param(
            "?x ns:c.d ?x", keep(about_answer("c.d", test=IsNode(NodeRef(1)))), id="of itself"
        ),
        pytest.param(
            "?x ns:c.d ?n . ?x ns:e.f ?m FILTER (?n < ?m)",
            keep(
                about_answer("c.d", test=Compare("<", NodeRef("a"))),
                replace(about_answer("e.f"), label="a"),
            ),
            id="two values compared",
        ),
        pytest.param(
            "?x ns:c.d ?n . ?x ns:e.f ?m FILTER (xsd:dateTime(?n) - xsd:datetime(?m) <= 0)",
            keep(
                about_answer("c.d", test=Compare("<=", NodeRef("a"))),
                replace(about_answer("e.f"), label="a"),
            ),
            id="the difference of two dates",
        ),
        pytest.param(
            "?x ns:c.d ?n FILTER (0 < xsd:dateTime('2015-01-01') - xsd:dateTime(?n))",
            keep(about_answer("c.d", test=Compare("<", LiteralTerm("2015-01-01")))),
            id="the difference to a date",
        ),
        pytest.param(
            "?x ns:c.d ?n . ?x ns:e.f ?m FILTER (?n = ?m && ?m != ?x)",
            keep(
                about_answer("c.d", test=IsNode(NodeRef("a"))),
                replace(branch("e.f", about_answer(test=IsNotNode(NodeRef(1)))), label="a"),
            ),
            id="two nodes that are the same",
        ),
        pytest.param(
            "?x ns:c.d ?n . ?x ns:e.f ?m FILTER (xsd:float(?n) = xsd:float(?m))",
            keep(
                about_answer("c.d", test=Compare("=", NodeRef("a"))),
                replace(about_answer("e.f"), label="a"),
            ),
            id="two values that are the same",
        ),
        pytest.param(
            "ns:m.0w ns:c.d ?from . ?x ns:e.f ?n FILTER (?n > ?from)",
            keep(
                about_answer("e.f", test=Compare(">", NodeRef("a"))),
                replace(about_answer("c.d"), at=Entity(mid="m.0w"), label="a"),
            ),
            id="compared with a value of another entity",
        ),
        pytest.param(
            "ns:m.0b ns:c.d ns:m.0c",
            keep(Constraint(Entity(mid="m.0b"), (Hop("c.d"),), IsEntity(Entity(mid="m.0c")))),
            id="a fact about other entities",
        ),
        pytest.param(
            "FILTER NOT EXISTS { ?x ns:c.d [] }",
            keep(replace(about_answer("c.d"), negated=True)),
            id="nothing there",
        ),
        pytest.param(
            "FILTER NOT EXISTS { ?x ns:c.d ?y . ?y ns:e.f ns:m.0b FILTER (?y != ns:m.0c) }",
            keep(
                replace(
                    branch(
                        "c.d",
                        about_answer(test=IsNotEntity(Entity(mid="m.0c"))),
                        about_answer("e.f", test=IsEntity(Entity(mid="m.0b"))),
                    ),
                    negated=True,
                )
            ),
            id="no branch that is so",
        ),
        pytest.param(
            "?x ns:c.d [ ns:e.f ns:m.0b ]",
            keep(about_answer("c.d", "e.f", test=IsEntity(Entity(mid="m.0b")))),
            id="a node without a name",
        ),
        pytest.param(
            "?x ns:c.d ?k FILTER (?k = ns:m.0b || ns:m.0c = ?k)",
            keep(
                about_answer(
                    "c.d",
                    test=AnyOf(
                        (
                            (about_answer(test=IsEntity(Entity(mid="m.0b"))),),
                            (about_answer(test=IsEntity(Entity(mid="m.0c"))),),
                        )
                    ),
                )
            ),
            id="one of two entities",
        ),
        pytest.param(
            "FILTER (?x = ns:m.0b || (EXISTS { ?x ns:c.d ?n FILTER (?n > 1.5) } && ?x != ns:m.0c))",
            keep(
                about_answer(
                    test=AnyOf(
                        (
                            (on_node(test=IsEntity(Entity(mid="m.0b"))),),
                            (
                                on_node(test=IsNotEntity(Entity(mid="m.0c"))),
                                on_node("c.d", test=Compare(">", LiteralTerm("1.5"))),
                            ),
                        )
                    )
                )
            ),
            id="either of two conditions",
        ),
        pytest.param(
            "{ ?x ns:c.d ns:m.0b } UNION { ?x ns:e.f ?y . ?y ns:g.h ns:m.0c }",
            keep(
                about_answer(
                    test=AnyOf(
                        (
                            (on_node("c.d", test=IsEntity(Entity(mid="m.0b"))),),
                            (on_node("e.f", "g.h", test=IsEntity(Entity(mid="m.0c"))),),
                        )
                    )
                )
            ),
            id="union beside the main path",
        ),
        pytest.param(
            "?x ns:z.z ?z . { ?x ns:c.d ?z } UNION { ?x ns:e.f ?z FILTER (?z != ?x) }",
            keep(
                about_answer(
                    test=AnyOf(
                        (
                            (on_node("c.d", test=IsNode(NodeRef("a"))),),
                            (
                                on_node(test=IsNotNode(NodeRef("a"))),
                                on_node("e.f", test=IsNode(NodeRef("a"))),
                            ),
                        )
                    )
                ),
                replace(about_answer("z.z"), label="a"),
            ),
            id="union between two nodes",
        ),
        pytest.param(
            "{ ?x ns:c.d ns:m.0b }",
            keep(about_answer("c.d", test=IsEntity(Entity(mid="m.0b")))),
            id="group",
        ),
    ],
)
def test_convert(where: str, crp: Crp) -> None:
    assert crp_from_sparql(f"SELECT DISTINCT ?x WHERE {{ ns:m.0a ns:a.b ?x . {where} }}") == crp


@pytest.mark.parametrize(
    ("where", "topic", "path", "differs_from"),
    [
        pytest.param(
            "FILTER (?x != ?c) ?c ns:a.b ns:m.0a . ?c ns:c.d ?y . ?y ns:e.f ?x",
            "m.0a",
            "^a.b c.d e.f",
            1,
            id="from the object of a triple",
        ),
        pytest.param(
            "?y ns:a.b ns:m.0a . ?y ns:c.d ?x . ?x ns:e.f ns:m.0b",
            "m.0a",
            "^a.b c.d",
            None,
            id="the first entity of the text",
        ),
        pytest.param(
            "ns:m.0z ns:e.f ns:m.0z . ns:location.country ns:g.h ?x . ns:m.0b ns:c.d ?x",
            "m.0b",
            "c.d",
            None,
            id="past what leads nowhere, and past what is no mid",
        ),
        pytest.param(
            "ns:m.0a ns:a.b ?y . ?y ns:c.d ?x . ?x ns:e.f ns:m.0a",
            "m.0a",
            "a.b c.d",
            None,
            id="the way that is written first, where a shorter one closes a circle",
        ),
        pytest.param(
            "ns:m.0a ns:a.b ?y . ?y ns:z.z ?z . ?y ns:c.d ?x",
            "m.0a",
            "a.b c.d",
            None,
            id="round a dead end",
        ),
    ],
)
def test_topic_and_main_path(where: str, topic: str, path: str, differs_from: int | None) -> None:
    crp = crp_from_sparql(f"SELECT ?x {{ {where} }}")
    assert crp.topic.mid == topic
    assert " ".join("^" * hop.inverse + hop.relation for hop in crp.path) == path
    assert crp.differs_from == differs_from


def way(*hops: str, **constraints: Any) -> Way:
    return Way(tuple(map(Hop, hops)), **constraints)


@pytest.mark.parametrize(
    ("where", "path"),
    [
        pytest.param(
            "{ ns:m.0a ns:a.b ?x } UNION { ns:m.0a ns:c.d ?y . ?y ns:e.f ?x }",
            (Fork((way("a.b"), way("c.d", "e.f"))),),
            id="from the topic to the answer",
        ),
        pytest.param(
            "ns:m.0a ns:a.b ?c . { ?c ns:c.d ?y . ?y ns:e.f ?x } UNION { ?x ns:g.h ?c }",
            (Hop("a.b"), Fork((way("c.d", "e.f"), Way((Hop("g.h", inverse=True),))))),
            id="a part of the way",
        ),
        pytest.param(
            "{ ns:m.0a ns:a.b ?y . ?y ns:c.d ?x . ?y ns:e.f ns:m.0v } UNION"
            "{ ns:m.0a ns:g.h ?y . ?y ns:i.j ?x FILTER (?x != ns:m.0c) }",
            (
                Fork(
                    (
                        way(
                            "a.b",
                            "c.d",
                            constraints=(about_answer("e.f", test=IsEntity(Entity(mid="m.0v"))),),
                        ),
                        way(
                            "g.h",
                            "i.j",
                            constraints=(Constraint(2, (), IsNotEntity(Entity(mid="m.0c"))),),
                        ),
                    )
                ),
            ),
            id="each with its own constraints",
        ),
        pytest.param(
            "{ { ns:m.0a ns:a.b ?x } UNION { ns:m.0a ns:c.d ?x } } UNION { ns:m.0a ns:e.f ?x }",
            (Fork((Way((Fork((way("a.b"), way("c.d"))),)), way("e.f"))),),
            id="one in another",
        ),
    ],
)
def test_union_on_the_main_path(where: str, path: tuple[Any, ...]) -> None:
    crp = crp_from_sparql(f"SELECT DISTINCT ?x WHERE {{ {where} }}")
    assert (crp.topic.mid, crp.path, crp.constraints) == ("m.0a", path, ())


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("?x ns:c.d ?y { ns:m.0b ns:e.f ?z } UNION { ns:m.0b ns:g.h ?z }", "union"),
        (
            "{ ?x ns:c.d ?y } UNION { ?x ns:e.f ?y } { ?x ns:g.h ?y } UNION { ?x ns:i.j ?z }",
            "union",
        ),
        ("{ ?x ns:c.d ?y } UNION { ?x ns:e.f ?y } FILTER EXISTS { ?x ns:g.h ?y }", "union"),
        ("{ ?x ns:c.d ns:m.0b } UNION { ?x ns:e.f ?y . ?z ns:g.h ?w }", "disconnected"),
        (
            "?x ns:c.d ?n { ?x ns:e.f ns:m.0b FILTER (?n > 1) } UNION { ?x ns:g.h ns:m.0c }",
            "unbound variable",
        ),
        (
            "FILTER EXISTS { { ?x ns:c.d ?z } UNION { ?x ns:e.f ?z }"
            " { ?x ns:g.h ?z } UNION { ?z ns:i.j ?x } }",
            "union",
        ),
        (
            "FILTER EXISTS { { ?x ns:a ?z } UNION { ?x ns:b ?z } FILTER EXISTS { ?z ns:c ?x } }",
            "union",
        ),
        ("FILTER (?x = ns:m.0b || (EXISTS { ?x ns:c.d ?z } && ?z > 1))", "unbound variable"),
        (
            "?x ns:c.d ?n FILTER (NOT EXISTS { ?x ns:e.f ?a } || EXISTS { ?x ns:e.f ?b"
            " FILTER (?n > 1) })",
            "unbound variable",
        ),
        (
            "FILTER (NOT EXISTS { ?x ns:e.f ?a } || EXISTS { ?x ns:e.f ?b FILTER (?b = ?b) })",
            "unsupported filter",
        ),
        ("FILTER NOT EXISTS { ?x ns:c.d ?y . ?y ns:e.f ?y }", "unsupported filter"),
        ("FILTER NOT EXISTS { ns:m.0b ns:c.d ?y }", "unsupported filter"),
        ("FILTER (str(?x) = ns:m.0b)", "unsupported filter"),
        ("?x ns:c.d ?y FILTER (str(?x) = ?y)", "unsupported filter"),
        ("?x ns:c.d ?n } ORDER BY str(?n) LIMIT 1 #", "unsupported order"),
        ("?x ns:c.d ?n } ORDER BY ?n LIMIT 2 #", "unsupported order"),
        ("?x ns:c.d ?n } ORDER BY ?n LIMIT 1 OFFSET 1 #", "unsupported order"),
        ("?x ns:c.d ?n } ORDER BY ?n LIMIT 99999999999 #", "unsupported order"),
        (
            "?x ns:c.d ?0 . " + " ".join(f"?{i} ns:c.d ns:m.0b, ?{i + 1} ." for i in range(40)),
            "too large",
        ),
        (
            "?x ns:c.d ?n { ?x ns:e.f ?z FILTER EXISTS { ?z ns:g.h ?n } } UNION { ?x ns:i.j ?z }",
            "unbound variable",
        ),
        ("FILTER (?x = ns:m.0b || ns:m.0c = ns:m.0d)", "union"),
        ("?x ns:c.d ?n FILTER (?x = ns:m.0b || ?n > 1)", "union"),
        ("{ SELECT ?y { ?x ns:c.d ?y } }", "sub-select"),
        ("OPTIONAL { ?x ns:c.d ?y }", "unsupported pattern"),
        ("MINUS { ?x ns:c.d ?y FILTER (?y > 1) }", "unsupported pattern"),
        ("BIND (1 AS ?y)", "unsupported pattern"),
        ("VALUES (?x ?y) { (ns:m.0b ns:m.0c) }", "unsupported pattern"),
        ("?x ns:c.d ?y VALUES ?y { ns:m.0b } VALUES ?y { ns:m.0c ns:m.0d }", "union"),
        ("{ SELECT (MAX(?b) AS ?y) { ?a ns:c.d ?b } } ?x ns:c.d ?y", "sub-select"),
        ("{ SELECT (MAX(?b) AS ?y) { ns:m.0a ns:a.b ?x } GROUP BY ?x }", "sub-select"),
        ("{ SELECT (AVG(?b) AS ?y) { ns:m.0a ns:a.b ?x } }", "sub-select"),
        ("?x ns:c.d ?n OPTIONAL { ?x ns:type.object.name ?n }", "unsupported pattern"),
        ("} VALUES ?x { ns:m.0b } #", "unsupported pattern"),
        ("GRAPH <http://g> { ?x ns:c.d ?y }", "unsupported pattern"),
        ("SERVICE <http://s> { ?x ns:c.d ?y }", "unsupported pattern"),
        ("{ FILTER (?x != ns:m.0a) }", "unsupported pattern"),
        ("?x ns:c.d/ns:e.f ?y", "property path"),
        ("?x ns:c.d|ns:e.f ?y", "property path"),
        ("?x ns:c.d* ?y", "property path"),
        ("?x ^ns:c.d ?y", "property path"),
        ("?x !ns:c.d ?y", "property path"),
        ("?x ?p ?y", "free relation"),
        ("?y ns:c.d ?z", "disconnected"),
        ("FILTER (?y > 1)", "unbound variable"),
        ("FILTER EXISTS { ?x ns:c.d ?v } FILTER (?v > 1)", "unbound variable"),
        ("FILTER (!isLiteral(?x) || lang(?x) = 'de')", "unsupported filter"),
        ("FILTER (regex(str(?x), 'a'))", "unsupported filter"),
        ("FILTER (str(?x) < 'a')", "unsupported filter"),
        ("FILTER (?x < ns:m.0b)", "unsupported filter"),
        ("FILTER (bound(?x))", "unsupported filter"),
        ("FILTER (?x IN (1, 2))", "unsupported expression"),
        ("FILTER (?x - 1 > 2)", "unsupported filter"),
        ("FILTER (?x + 1 > 0)", "unsupported expression"),
        ("FILTER (-?x > 0)", "unsupported expression"),
        ("} LIMIT 3 #", "unsupported order"),
        ("} ORDER BY ?x LIMIT 0 #", "unsupported order"),
        ("} ORDER BY ?x OFFSET 1 #", "unsupported order"),
        ("} ORDER BY ?none LIMIT 1 #", "unsupported order"),
        ("?x ns:c.d ?n } ORDER BY ?n ?x LIMIT 1 #", "order by several keys"),
        ("} GROUP BY ?x #", "aggregate"),
        ("?x ns:c.d ?n } GROUP BY ?n ORDER BY COUNT(?x) LIMIT 1 #", "aggregate"),
        ("?x ns:c.d ?n } GROUP BY ?x ORDER BY DESC(COUNT(?n)) LIMIT 1 #", "aggregate"),
        ("?x ns:c.d ?n } GROUP BY ?x ORDER BY ?n LIMIT 1 #", "aggregate"),
        ("} HAVING (?x > 1) #", "aggregate"),
        ("?x ns:c.d " + ", ".join(f"ns:m.0{i}" for i in range(100)), "too large"),
    ],
)
def test_what_no_crp_says_is_named(where: str, reason: str) -> None:
    with pytest.raises(CrpConversionError) as caught:
        crp_from_sparql(f"SELECT ?x WHERE {{ ns:m.0a ns:a.b ?x . {where} }}")
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("DESCRIBE ns:m.0a", "not a question"),
        ("ASK {}", "no topic entity"),
        ("SELECT * { ns:m.0a ns:a.b ?x }", "projection"),
        ("SELECT ?x ?y { ns:m.0a ns:a.b ?x }", "projection"),
        ("SELECT (COUNT(*) AS ?n) { ns:m.0a ns:a.b ?x }", "aggregate"),
        ("SELECT (SUM(?x + 1) AS ?n) { ns:m.0a ns:a.b ?x }", "unsupported expression"),
        ("SELECT (MIN(?x) AS ?n) { ns:m.0a ns:a.b ?x }", "projection"),
        ("SELECT (SUM(?x) AS ?n) ?x { ns:m.0a ns:a.b ?x } GROUP BY ?x", "aggregate"),
        (
            "SELECT (SUM(?x) AS ?n) { { SELECT DISTINCT ?y ?x { ns:m.0a ns:a.b ?x } } }",
            "sub-select",
        ),
        ("SELECT (SUM(?v) AS ?n) { ns:m.0a ns:a.b ?x }", "no topic entity"),
        (
            "SELECT (SUM(?x) AS ?n) { ns:m.0a ns:a.b ?x OPTIONAL { ?x ns:type.object.name ?y } }",
            "aggregate",
        ),
        ("SELECT (?x + 1 AS ?n) { ns:m.0a ns:a.b ?x }", "unsupported expression"),
        ("SELECT ?x { { SELECT ?x ?y { ns:m.0a ns:a.b ?x } } }", "projection"),
        ("SELECT ?x { { SELECT ?x { ns:m.0a ns:a.b ?x } LIMIT 9 } }", "unsupported order"),
        ("SELECT ?x { { SELECT ?x { ns:m.0a ns:a.b ?x } } } LIMIT 9", "sub-select"),
        (
            "SELECT (COUNT(?x) AS ?n) { { SELECT DISTINCT ?x { ns:m.0a ns:a.b ?x } ORDER BY ?x"
            " LIMIT 3 } }",
            "aggregate",
        ),
        ("SELECT ?x FROM <http://g> { ns:m.0a ns:a.b ?x }", "unsupported pattern"),
        ("SELECT ?x {}", "no topic entity"),
        ("SELECT ?x { ?x ns:common.topic.alias 'EU'@en }", "no topic entity"),
    ],
)
def test_other_queries_are_named(query: str, reason: str) -> None:
    with pytest.raises(CrpConversionError) as caught:
        crp_from_sparql(query)
    assert caught.value.reason == reason


_LARGEST_OF_EACH = """SELECT (AVG(?n) AS ?average) { { SELECT ?x (MAX(xsd:double(?v)) AS ?n)
    { ns:m.0a ns:a.b ?x . ?x ns:c.d ?v } GROUP BY ?x } }"""


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ("SELECT (SUM(?v) AS ?n) { ns:m.0a ns:a.b ?v }", "m.0a -> a.b\nsum bindings ?x"),
        (
            "SELECT (AVG(xsd:double(?v)) AS ?n) { ns:m.0a ns:a.b ?x . ?x ns:c.d ?v ; ns:e.f ?y }",
            "m.0a -> a.b -> c.d\n?1 -> e.f\naverage bindings ?x",
        ),
        ("SELECT (SUM(DISTINCT ?v) AS ?n) { ns:m.0a ns:a.b ?v }", "m.0a -> a.b\nsum ?x"),
        ("SELECT (MAX(?v) - MIN(?v) AS ?n) { ns:m.0a ns:a.b ?v }", "m.0a -> a.b\ndifference ?x"),
        (_LARGEST_OF_EACH, "m.0a -> a.b\n?x -> c.d ?a\naverage ?a"),
        (
            "SELECT (AVG(?n) AS ?m) { { SELECT ?x ?n { ns:m.0a ns:a.b ?x . ?x ns:c.d ?n } } }",
            "m.0a -> a.b\n?x -> c.d ?a\naverage bindings ?a",
        ),
    ],
    ids=["sum", "average", "distinct", "difference", "largest of each", "of a sub-select"],
)
def test_a_sum_in_sparql_is_a_path(query: str, lines: str) -> None:
    topic, *rest = lines.split("\n")
    text = "\n".join([topic, *rest[:-1], "distinct from none", "any language", rest[-1]])
    assert render_crp(crp_from_sparql(query)) == text


@pytest.mark.parametrize("form", get_args(Aggregate))
@pytest.mark.parametrize(
    "lines", ["{} ?x", "?x -> c.d ?a\n{} ?a", "?x -> c.d {{-> e.f = m.0b, -> g.h ?a}}\n{} ?a"]
)
def test_a_sum_comes_back_from_its_sparql(form: str, lines: str) -> None:
    crp = parse_crp(f"m.0a -> a.b -> a.c\n{lines.format(form)}").crp
    assert (crp.form, crp_from_sparql(compile_crp(crp))) == (form, crp)


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("", id="empty"),
        pytest.param("who is justin bieber?", id="question"),
        pytest.param("SELECT ?x {", id="open bracket"),
        pytest.param("INSERT DATA { <a:a> <a:b> <a:c> }", id="update"),
        pytest.param("SELECT ?x { foo:a foo:b ?x }", id="undeclared prefix"),
        pytest.param(
            f"SELECT ?x {{ ns:m.0a ns:b ?x FILTER {'(' * 500}?x = 1{')' * 500} }}", id="deep"
        ),
    ],
)
def test_what_is_no_query_is_said_so(query: str) -> None:
    with pytest.raises(QuerySyntaxError):
        crp_from_sparql(query)


TOKENS = r"""
SELECT ASK DISTINCT ?x ?y * WHERE { } ( ) . ; , ns:m.0a ns:a.b foo:b _:b [ ] <http://a/> <a>
"1980" ^^ xsd:date "a"@en '\uD800' 5 -7 FILTER OR && = != < > ! EXISTS NOT str lang isLiteral
ORDER BY DESC LIMIT OFFSET 0 1 UNION OPTIONAL VALUES # \
"""
WELL_FORMED = (
    f"SELECT DISTINCT ?x WHERE {{ FILTER ( ?x != ?c ) {LANGUAGE} ?c ns:a.b ns:m.0a . "
    "?c ns:c.d ?x . FILTER ( NOT EXISTS { ?x ns:e.f ?v } || EXISTS { ?x ns:e.f ?v "
    'FILTER ( ?v <= "2010" ^^ xsd:dateTime ) } ) ?x ns:g.h ?n . } ORDER BY DESC ( ?n ) LIMIT 1'
).split()


@st.composite
def _mutations(draw: st.DrawFn) -> str:
    tokens = list(WELL_FORMED)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(tokens) - 1))
        tokens[at : at + draw(st.integers(0, 2))] = draw(
            st.lists(st.sampled_from(TOKENS.split()), max_size=2)
        )
    return " ".join(tokens)


@settings(deadline=None, max_examples=60)
@given(_mutations())
def test_every_text_is_converted_or_refused_by_name(query: str) -> None:
    try:
        crp = crp_from_sparql(query)
        pyoxigraph.Store().query(compile_crp(crp))
    except KbqaError:
        pass


def read_rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def sample(rows: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    return random.Random(0).sample(rows, size)


def test_conversions_agree_with_the_published_main_paths(shared: Path) -> None:
    agreed = 0
    for row in sample(read_rows(shared / "data/qa/cwq.test-half.jsonl.gz"), 150):
        crp = crp_from_sparql(row["sparql"])
        entities = [*row.get("topic_entities", ()), *row["entities_in_sparql"]]
        names = {entity["mid"]: entity["name"] for entity in entities}
        published = parse_routerkgqa(row["crp_routerkgqa"]).crp
        agreed += crp.path == published.path
        # g.… ids have no names in the question sets.
        assert (names.get(crp.topic.mid) or str(published.topic)) == str(published.topic)
    assert agreed >= 147  # of a union they kept the first alternative alone


@pytest.fixture(scope="module")
def fidelity(shared: Path) -> Iterator[pyoxigraph.Store]:
    store = pyoxigraph.Store()
    with gzip.open(shared / "data/fidelity/graph.nt.gz") as file:
        store.bulk_load(file, pyoxigraph.RdfFormat.N_TRIPLES, lenient=True)
    yield store


def test_a_query_that_became_a_crp_and_a_query_again_has_the_gold_answers(
    shared: Path, fidelity: pyoxigraph.Store
) -> None:
    refused: Counter[str] = Counter()
    rows = read_rows(shared / "data/fidelity/queries-half.jsonl.gz")
    unions = [row for row in rows if "UNION" in row["sparql"]]
    for row in (*sample(rows, 150), *unions):
        try:
            query = compile_crp(crp_from_sparql(row["sparql"]))
        except CrpConversionError as error:
            refused[error.reason] += 1
            continue
        solutions = fidelity.query(query)
        assert isinstance(solutions, pyoxigraph.QuerySolutions)
        found = {solution["x"].value.removeprefix(FREEBASE_NS) for solution in solutions}
        assert found == set(row["gold"]), row["id"]
    # Over all 5,685 (tools/convert/fidelity.py): sub-select 8, no topic 1; none is wrong.
    assert refused.keys() <= {"sub-select"} and refused.total() <= 2, refused


@pytest.mark.parametrize("value", ["true", '"true"^^xsd:boolean'])
def test_a_datatype_that_is_neither_a_number_nor_a_date_is_kept(value: str) -> None:
    crp = crp_from_sparql(f"SELECT ?x {{ ns:m.0a ns:a.b ?x . ?x ns:c.d {value} }}")
    assert [constraint.test for constraint in crp.constraints] == [
        Compare("=", LiteralTerm("true", "boolean"))
    ]


def test_what_an_interval_compares_may_stand_on_either_side() -> None:
    filters = (
        f"FILTER (NOT EXISTS {{ ?x ns:e.f ?a }} || EXISTS {{ ?x ns:e.f ?b FILTER ({test}) }})"
        for test in ("?n < ?b", "?b > ?n")
    )
    one, other = (
        crp_from_sparql(f"SELECT ?x {{ ns:m.0a ns:a.b ?x . ?x ns:c.d ?n {text} }}")
        for text in filters
    )
    assert one == other


def test_a_node_inside_of_a_negation_that_is_compared_there_is_no_crash() -> None:
    where = "?x ns:c.d ?v . ?v ns:e.f ?w . ?w ns:g.h ?u FILTER (?u > ?w)"
    crp = crp_from_sparql(f"SELECT ?x {{ ns:m.0a ns:a.b ?x FILTER NOT EXISTS {{ {where} }} }}")
    later = Constraint(1, (Hop("g.h"),), Compare(">", NodeRef("a")))
    inside = Constraint(1, (Hop("e.f"),), None, (later,), label="a")
    assert crp == keep(Constraint(1, (Hop("c.d"),), None, (inside,), negated=True))


def test_each_exists_in_a_condition_has_variables_of_its_own() -> None:
    crp = crp_from_sparql(
        "SELECT ?x { ns:m.0a ns:a.b ?x FILTER (?x = ns:m.0b ||"
        " (EXISTS { ?x ns:c.d ?z } && EXISTS { ?x ns:e.f ?z })) }"
    )
    assert not any(constraint.label for constraint in crp.all_constraints())


@pytest.mark.parametrize(
    ("text", "crp"),
    [
        ("(JOIN (R a.b.c) m.0a)", "m.0a -> a.b.c"),
        ("(JOIN a.b.c m.0a)", "m.0a <- a.b.c"),
        ("(JOIN (R a.b.c) (JOIN (R d.e.f) m.0a))", "m.0a -> d.e.f -> a.b.c"),
        (
            "(AND (JOIN (R a.b.c) m.0a) (JOIN d.e.f (JOIN g.h.i m.0b)))",
            "m.0a -> a.b.c\n?x -> d.e.f -> g.h.i = m.0b",
        ),
        ("(AND x.y (JOIN a.b.c m.0a))", "m.0a <- a.b.c\n?x -> type.object.type = ns:x.y"),
        ("(JOIN (R a.b.c) (AND common.topic (JOIN d.e.f m.0a)))", "m.0a <- d.e.f -> a.b.c"),
        ("(COUNT (JOIN (R a.b.c) m.0a))", "m.0a -> a.b.c\ncount"),
        ("(ARGMAX (JOIN (R a.b.c) m.0a) d.e.f)", "m.0a -> a.b.c\nlargest ?x -> d.e.f"),
        (
            "(ARGMIN (JOIN (R a.b.c) m.0a) (JOIN d.e.f g.h.i))",
            "m.0a -> a.b.c\nsmallest ?x -> d.e.f -> g.h.i",
        ),
        (
            "(AND (JOIN (R a.b.c) m.0a) (ge d.e.f 12))",
            "m.0a -> a.b.c\n?x -> d.e.f >= 12",
        ),
    ],
)
def test_an_s_expression_says_what_a_path_says(text: str, crp: str) -> None:
    found = crp_from_sparql(sparql_from_s_expression(text))
    said = read_crp(crp).crp
    assert replace(found, differs_from=0, answer_language="en") == said


def test_literals_keep_their_datatype() -> None:
    text = "(lt d.e.f 12^^http://www.w3.org/2001/XMLSchema#integer)"
    assert '< "12"^^xsd:integer' in sparql_from_s_expression(f"(AND a.b {text})")


@pytest.mark.parametrize("text", ["", "(", "(JOIN a.b.c", "m.0a)", "(JOIN a.b.c m.0a) m.0b"])
def test_brackets_that_do_not_match_are_refused(text: str) -> None:
    with pytest.raises(QuerySyntaxError, match="not an s-expression"):
        sparql_from_s_expression(text)


@pytest.mark.parametrize(
    "text", ["(TC (JOIN a.b.c m.0a) d.e.f 2015)", "()", "(JOIN (COUNT a) m.0a)", "(AND <x> m.0a)"]
)
def test_other_functions_are_refused_by_name(text: str) -> None:
    with pytest.raises(CrpConversionError, match="s-expression"):
        sparql_from_s_expression(text)


def test_grailqa_s_own_queries_say_the_same(shared: Path) -> None:
    with gzip.open(shared / "data/qa/grailqa.train-partial.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    same = total = 0
    for row in rows:
        if row["function"] != "none":
            continue  # Its other queries take ties, which s-expressions do not say.
        try:
            gold = crp_from_sparql(row["sparql"])
            ours = crp_from_sparql(sparql_from_s_expression(row["s_expression"]))
        except CrpConversionError:
            continue
        total += 1
        same += match_crps(gold, ours).main_path
        if total == 200:
            break
    assert total == 200
    assert same >= 190


def test_brackets_nested_without_end_are_a_syntax_error() -> None:
    with pytest.raises(QuerySyntaxError, match="in each other"):
        sparql_from_s_expression("(" * 5000)
