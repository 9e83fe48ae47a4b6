from pathlib import Path

import pytest

from kbqa.kb.graph import Graph
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.open import open_graph
from kbqa.kb.schema import LiteralForms, read_literal_forms
from kbqa.sparql.terms import LiteralTerm


@pytest.mark.parametrize(
    ("text", "expected_type", "written"),
    [
        ("4397073", "type.int", "4,397,073"),
        ("103000.0", "type.float", "103,000"),
        ("1084.62", "type.float", "1084.62"),
        ("-38.83", "type.float", "-38.83"),
        ("-1234567.50", "type.float", "-1,234,567.5"),
        ("1.0E7", "type.float", "10,000,000"),
        ("1.5e-05", "type.float", "0.000015"),
        ("1.989E30", "type.float", "1.989E30"),
        ("0", "type.int", "0"),
        ("1980", "type.int", "1980"),
        ("06037", "type.int", "06037"),
        ("NaN", "type.float", "NaN"),
        ("06037", "type.enumeration", "06037"),
        ("10000000", "type.rawstring", "10000000"),
        ("10000000", "type.text", "10000000"),
        ("1980", "type.datetime", "1980"),
        ("1980-05", "type.datetime", "May 1980"),
        ("1980-05-04", "type.datetime", "4 May 1980"),
        ("1968-03-29-08:00", "type.datetime", "29 March 1968"),
        ("1969-07-20T20:17", "type.datetime", "20 July 1969, 20:17"),
        ("-0044-03-15", "type.datetime", "15 March 44 BC"),
        ("1980-13", "type.datetime", "1980-13"),
        ("T20:17", "type.datetime", "T20:17"),
        ("true", "type.boolean", "true"),
    ],
)
def test_the_expected_type_decides_how_a_literal_is_written(
    text: str, expected_type: str, written: str
) -> None:
    forms = LiteralForms({"a.b.c": expected_type})
    assert forms.write(LiteralTerm(text), "a.b.c") == written


@pytest.mark.parametrize(
    ("literal", "written"),
    [
        (LiteralTerm("10000000"), "10000000"),
        (LiteralTerm("10000000", "integer"), "10,000,000"),
        (LiteralTerm("1980-05-04", "date"), "4 May 1980"),
        (LiteralTerm("10000000", language="en"), "10000000"),
    ],
)
def test_without_a_schema_the_datatype_decides(literal: LiteralTerm, written: str) -> None:
    assert LiteralForms().write(literal) == written
    assert LiteralForms().write(literal, "a.b.c") == written


NS = "http://rdf.freebase.com/ns/"
UNITS = """\
location.location.area type.property.expected_type type.float
location.location.area type.property.unit m.0km2
m.0km2 freebase.unit_profile.abbreviation "km²"
m.0km2 type.object.name "Square kilometer"@en
people.person.height_meters type.property.expected_type type.float
people.person.height_meters type.property.unit m.0m
m.0m type.object.name "Meter"@en
m.0m type.object.name "Mètre"@fr
a.b.nameless type.property.unit m.0x
"""


def test_units_are_those_of_the_graph(tmp_path: Path) -> None:
    lines = []
    for line in UNITS.splitlines():
        subject, relation, value = line.split(" ", 2)
        end = value if value.startswith('"') else f"<{NS}{value}>"
        lines.append(f"<{NS}{subject}>\t<{NS}{relation}>\t{end}\t.\n")
    (tmp_path / "units.nt").write_text("".join(lines), encoding="utf-8")
    load_freebase([tmp_path / "units.nt"], tmp_path / "store", rules=profile("full"))
    relations = ["location.location.area", "people.person.height_meters", "a.b.nameless"]
    with open_graph(tmp_path / "store") as graph:
        forms = read_literal_forms(graph, relations)
    assert forms.units == {relations[0]: "km²", relations[1]: "Meter"}
    assert forms.write(LiteralTerm("103000.0"), relations[0]) == "103,000 km²"
    assert forms.write(LiteralTerm("1.8"), relations[1]) == "1.8 Meter"


def test_the_demo_graph_says_what_its_literals_are(demo_store: Path) -> None:
    relations = ["location.location.area", "location.us_county.fips_6_4_code", "no.such.relation"]
    with open_graph(demo_store) as graph:
        forms = read_literal_forms(graph, relations)
    assert forms.types == {
        "location.location.area": "type.float",
        "location.us_county.fips_6_4_code": "type.enumeration",
    }
    assert forms.units == {}


def test_an_endpoint_says_the_same(graph: Graph) -> None:
    relation = "location.country.currency_used"
    assert read_literal_forms(graph, [relation]).types == {relation: "finance.currency"}
    assert read_literal_forms(graph, []) == LiteralForms()
