from collections.abc import Callable
from dataclasses import replace

import pytest

from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    IsNotEntity,
    Order,
    TextEquals,
)
from kbqa.sparql.terms import Literal

HOP = (Hop("a.b"),)
MALE = IsEntity(Entity("Male"))
YEAR = Compare("<", Literal("1980"))
NAME = TextEquals("x")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Entity(), id="entity without name and mid"),
        pytest.param(lambda: Entity(name=""), id="entity with an empty name"),
        pytest.param(lambda: Hop(""), id="hop without relation"),
        pytest.param(lambda: Compare("=", Literal("a", language="en")), id="number in English"),
        pytest.param(lambda: Constraint(-1, HOP, MALE), id="constraint before the topic"),
        pytest.param(lambda: Constraint(1, (), None), id="constraint that says nothing"),
        pytest.param(lambda: Constraint(1, (), YEAR, optional=True), id="optional node"),
        pytest.param(
            lambda: Constraint(1, HOP, None, (Constraint(2, HOP, MALE),)), id="branch past the end"
        ),
        pytest.param(
            lambda: Constraint(1, HOP, None, (Constraint(1, HOP, MALE),), optional=True),
            id="hops behind an optional branch",
        ),
        pytest.param(lambda: Order(-1, HOP, descending=True), id="order before the topic"),
        pytest.param(lambda: Order(1, HOP, descending=True, limit=0), id="none to keep"),
        pytest.param(lambda: Order(1, HOP, descending=True, offset=-1), id="negative offset"),
        pytest.param(lambda: Crp(Entity("A"), ()), id="no path"),
        pytest.param(
            lambda: Crp(Entity("A"), HOP, (Constraint(2, HOP, MALE),)), id="constraint past the end"
        ),
        pytest.param(
            lambda: Crp(Entity("A"), HOP, order=Order(2, HOP, descending=True)),
            id="order past the end",
        ),
        pytest.param(lambda: Crp(Entity("A"), HOP, differs_from=1), id="differs from itself"),
    ],
)
def test_what_makes_no_sense_cannot_be_made(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        make()


@pytest.mark.parametrize(
    ("constraint", "kind"),
    [
        (Constraint(1, HOP, MALE), "entity"),
        (Constraint(1, HOP, IsNotEntity(Entity("Male"))), "entity"),
        (Constraint(1, HOP, None), "entity"),
        (Constraint(1, HOP, YEAR), "numeric"),
        (Constraint(1, HOP, NAME), "string"),
        (Constraint(1, HOP, None, (Constraint(1, HOP, YEAR),)), "numeric"),
        (Constraint(1, HOP, MALE, (Constraint(1, HOP, YEAR),)), "entity"),
    ],
)
def test_kinds(constraint: Constraint, kind: str) -> None:
    assert constraint.kind == kind


CRP = Crp(
    Entity("Kenya"),
    (Hop("p.q"), Hop("r.s", inverse=True)),
    (
        Constraint(1, (Hop("t.u"),), None, (Constraint(1, (Hop("v.w"),), MALE),)),
        Constraint(2, (Hop("x.y"),), IsNotEntity(Entity("Mali"))),
    ),
    Order(2, (Hop("z.z"),), descending=True),
)


def test_entities_and_relations_come_in_reading_order() -> None:
    assert [str(entity) for entity in CRP.entities()] == ["Kenya", "Male", "Mali"]
    assert list(CRP.relations()) == ["p.q", "r.s", "t.u", "v.w", "x.y", "z.z"]
    assert CRP.answer == 2


def test_every_entity_is_changed_and_nothing_else() -> None:
    changed = CRP.with_entities(lambda entity: Entity(entity.name, f"m.{len(str(entity))}"))
    assert [entity.mid for entity in changed.entities()] == ["m.5", "m.4", "m.4"]
    assert all(entity.is_grounded for entity in changed.entities())
    assert changed.with_entities(lambda entity: Entity(entity.name)) == CRP
    assert replace(changed, topic=CRP.topic, constraints=CRP.constraints) == CRP


def test_an_entity_reads_as_its_name_or_else_its_mid() -> None:
    assert [str(Entity("A", "m.0a")), str(Entity("A")), str(Entity(mid="m.0a"))] == [
        "A",
        "A",
        "m.0a",
    ]
