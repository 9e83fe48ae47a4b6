from pathlib import Path

import pytest

from kbqa.kb.schema.properties import Property, Schema, SchemaBuilder
from kbqa.sparql.errors import StoreError

STATEMENTS = [
    ("people.person.place_of_birth", "type.property.schema", "people.person"),
    ("people.person.place_of_birth", "type.property.expected_type", "location.location"),
    ("people.person.place_of_birth", "type.property.unique", "true"),
    ("people.person.place_of_birth", "type.object.name", "Place of birth"),
    ("people.person.place_of_birth", "type.object.name", "a second name"),
    (
        "people.person.place_of_birth",
        "type.property.reverse_property",
        "location.location.people_born_here",
    ),
    ("location.location.people_born_here", "type.property.expected_type", "people.person"),
    ("people.marriage", "freebase.type_hints.mediator", "true"),
    ("people.person", "freebase.type_hints.mediator", "false"),
    ("people.person", "type.object.name", "Person"),
]


@pytest.fixture
def schema() -> Schema:
    builder = SchemaBuilder()
    for statement in STATEMENTS:
        builder.add(*statement)
    return builder.build()


def test_a_property_gathers_what_is_stated(schema: Schema) -> None:
    assert schema.property("people.person.place_of_birth") == Property(
        id="people.person.place_of_birth",
        domain="people.person",
        expected_type="location.location",
        reverse="location.location.people_born_here",
        is_unique=True,
        name="Place of birth",
    )


def test_what_is_not_stated_is_derived_or_none(schema: Schema) -> None:
    born_here = schema.property("location.location.people_born_here")
    assert born_here is not None
    assert born_here.domain == "location.location"
    assert born_here.reverse == "people.person.place_of_birth"
    assert not born_here.is_unique
    assert born_here.name is None
    assert schema.property("people.person") is None


def test_mediators(schema: Schema) -> None:
    assert schema.is_mediator("people.marriage")
    assert not schema.is_mediator("people.person")
    assert schema.mediators == {"people.marriage"}


def test_a_saved_schema_opens_the_same(schema: Schema, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    schema.save(path)
    opened = Schema.open(path)
    assert opened.properties == schema.properties
    assert opened.mediators == schema.mediators


@pytest.mark.parametrize("content", [None, "", "{}", '{"properties": [{}], "mediators": []}'])
def test_what_is_no_schema_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StoreError, match=r"schema\.json holds no schema"):
        Schema.open(path)
