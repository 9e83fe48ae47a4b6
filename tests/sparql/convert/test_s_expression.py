import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.convert.s_expression import sparql_from_s_expression
from kbqa.sparql.errors import CrpConversionError, QuerySyntaxError
from kbqa.sparql.forms import read_crp
from tools.crp_match import match_crps


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
