from collections.abc import Callable
from dataclasses import replace

import pytest

from kbqa.sparql.crp import (
    MAX_DEPTH,
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
    Step,
    TextEquals,
    Way,
)
from kbqa.sparql.forms import parse_crp, render_crp
from kbqa.sparql.terms import LiteralTerm

HOP = (Hop("a.b"),)
MALE = IsEntity(Entity("Male"))
YEAR = Compare("<", LiteralTerm("1980"))
NAME = TextEquals("x")
IS_A = IsNode(NodeRef("a"))
WAY = Way(HOP)


def crp(*constraints: Constraint, order: Order | None = None, path: Fork | Hop = HOP[0]) -> Crp:
    return Crp(Entity("A"), (path,), constraints, order)


def labelled(*branches: Constraint, label: str = "a", at: int | Entity = 1) -> Constraint:
    return Constraint(at, HOP, None, branches, label=label)


def either(*constraints: Constraint) -> Constraint:
    return Constraint(1, HOP, AnyOf((constraints, (Constraint(1, HOP, MALE),))))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Entity(), id="entity without name and mid"),
        pytest.param(lambda: Entity(name=""), id="entity with an empty name"),
        pytest.param(lambda: Hop(""), id="hop without relation"),
        pytest.param(lambda: Way(()), id="way without steps"),
        pytest.param(lambda: Way(HOP, (Constraint(2, HOP, MALE),)), id="constraint past a way"),
        pytest.param(lambda: Fork((WAY,)), id="fork of one way"),
        pytest.param(lambda: Compare("=", LiteralTerm("a", language="en")), id="number in English"),
        pytest.param(lambda: AnyOf(((Constraint(0, HOP, MALE),),)), id="one alternative"),
        pytest.param(lambda: AnyOf(((Constraint(0, HOP, MALE),), ())), id="empty alternative"),
        pytest.param(lambda: Constraint(-1, HOP, MALE), id="constraint before the topic"),
        pytest.param(lambda: Constraint(1, (), None), id="constraint that says nothing"),
        pytest.param(
            lambda: Constraint(1, HOP, MALE, (Constraint(1, HOP, MALE),)), id="test and branches"
        ),
        pytest.param(lambda: Constraint(1, HOP, MALE, label="a"), id="test and label"),
        pytest.param(lambda: Constraint(1, (), YEAR, optional=True), id="optional node"),
        pytest.param(lambda: Constraint(1, (), YEAR, negated=True), id="negated node"),
        pytest.param(
            lambda: Constraint(1, HOP, YEAR, optional=True, negated=True),
            id="optional and negated",
        ),
        pytest.param(lambda: replace(labelled(), optional=True), id="label on what may be missing"),
        pytest.param(lambda: replace(labelled(), negated=True), id="label on what must be missing"),
        *(
            pytest.param(lambda label=label: labelled(label=label), id=f"label {label!r}")
            for label in ("", "A", "1", "a b", "é", "a\n")
        ),
        pytest.param(
            lambda: Constraint(1, HOP, None, (Constraint(2, HOP, MALE),)), id="branch past the end"
        ),
        pytest.param(
            lambda: Constraint(1, HOP * 2, None, (Constraint(1, HOP, MALE),)),
            id="branch before the end",
        ),
        pytest.param(
            lambda: Constraint(1, HOP, None, (Constraint(Entity("B"), HOP, MALE),)),
            id="branch that hangs elsewhere",
        ),
        pytest.param(
            lambda: Constraint(
                1, HOP, AnyOf(((Constraint(1, HOP, MALE),), (Constraint(0, HOP, MALE),)))
            ),
            id="alternative before the end",
        ),
        pytest.param(
            lambda: Constraint(1, HOP, None, (Constraint(1, HOP, MALE),), optional=True),
            id="hops behind an optional branch",
        ),
        pytest.param(
            lambda: replace(either(Constraint(1, (), MALE)), optional=True),
            id="alternatives with hops behind an optional branch",
        ),
        pytest.param(
            lambda: Constraint(
                1,
                HOP,
                None,
                (Constraint(1, (), AnyOf(((Constraint(0, HOP, MALE),),) * 2)),),
                optional=True,
            ),
            id="hops in an alternative on an optional branch",
        ),
        pytest.param(lambda: Order(-1, HOP, descending=True), id="order before the topic"),
        pytest.param(lambda: Order(1, HOP, descending=True, limit=0), id="none to keep"),
        pytest.param(lambda: Order(1, HOP, descending=True, offset=-1), id="negative offset"),
        pytest.param(lambda: Crp(Entity("A"), ()), id="no path"),
        pytest.param(lambda: crp(Constraint(2, HOP, MALE)), id="constraint past the end"),
        pytest.param(lambda: crp(order=Order(2, HOP, descending=True)), id="order past the end"),
        pytest.param(lambda: replace(crp(), differs_from=1), id="differs from itself"),
        pytest.param(lambda: replace(crp(), differs_from=-1), id="differs from nowhere"),
    ],
)
def test_what_makes_no_sense_cannot_be_made(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        make()


IS_2 = Constraint(1, (), IsNode(NodeRef(2)))
SAME = Constraint(1, HOP, IS_A)
BEFORE = Constraint(0, HOP, Compare("<", NodeRef("a")))


@pytest.mark.parametrize(
    ("constraints", "order", "path"),
    [
        pytest.param((IS_2,), None, HOP[0], id="position past the end"),
        pytest.param((SAME,), None, HOP[0], id="no such label"),
        pytest.param((), Order("a", HOP, descending=True), HOP[0], id="no such label to order by"),
        pytest.param((labelled(),), None, HOP[0], id="label that nothing refers to"),
        pytest.param((labelled(), labelled(), SAME), None, HOP[0], id="label of two branches"),
        pytest.param((either(labelled()), SAME), None, HOP[0], id="label inside of an alternative"),
        pytest.param(
            (Constraint(1, HOP, AnyOf(((labelled(),), (SAME,)))),),
            None,
            HOP[0],
            id="label inside of the other alternative",
        ),
        pytest.param(
            (Constraint(1, HOP, None, (labelled(),), negated=True), SAME),
            None,
            HOP[0],
            id="label inside of a negated branch",
        ),
        pytest.param(
            (SAME,), None, Fork((Way(HOP, (labelled(),)), WAY)), id="label inside of a way"
        ),
        pytest.param(
            (labelled(),), None, Fork((Way(HOP, (SAME,)), WAY)), id="way that refers out of itself"
        ),
        pytest.param(
            (),
            None,
            Fork((Way(HOP, (Constraint(1, (), IsNotNode(NodeRef(0))),)), WAY)),
            id="way that refers to a position",
        ),
        pytest.param(
            (),
            None,
            Fork((Way(HOP, (labelled(),)), Way(HOP, (SAME,)))),
            id="way that refers to another",
        ),
    ],
)
def test_a_reference_that_cannot_be_seen_is_refused(
    constraints: tuple[Constraint, ...], order: Order | None, path: Fork | Hop
) -> None:
    with pytest.raises(ValueError):
        crp(*constraints, order=order, path=path)


@pytest.mark.parametrize(
    ("constraints", "order", "path"),
    [
        pytest.param((Constraint(1, HOP, IsNode(NodeRef(0))),), None, HOP[0], id="position"),
        pytest.param((SAME, labelled()), None, HOP[0], id="label that is borne later"),
        pytest.param((labelled(), BEFORE), None, HOP[0], id="compared"),
        pytest.param((labelled(at=Entity("B")), BEFORE), None, HOP[0], id="anchored"),
        pytest.param((labelled(),), Order("a", (), descending=True), HOP[0], id="ordered by"),
        pytest.param(
            (Constraint(1, HOP, None, (labelled(),)), SAME), None, HOP[0], id="label on a branch"
        ),
        pytest.param((labelled(SAME),), None, HOP[0], id="from the labelled branch itself"),
        pytest.param((labelled(), either(SAME)), None, HOP[0], id="from an alternative"),
        pytest.param((either(labelled(), SAME),), None, HOP[0], id="within an alternative"),
        pytest.param(
            (labelled(), Constraint(1, HOP, None, (SAME,), negated=True)),
            None,
            HOP[0],
            id="from a negated branch",
        ),
        pytest.param(
            (Constraint(1, HOP, None, (labelled(), SAME), negated=True),),
            None,
            HOP[0],
            id="within a negated branch",
        ),
        pytest.param((), None, Fork((Way(HOP, (labelled(), SAME)), WAY)), id="within a way"),
    ],
)
def test_a_reference_is_seen(
    constraints: tuple[Constraint, ...], order: Order | None, path: Fork | Hop
) -> None:
    assert crp(*constraints, order=order, path=path).constraints == constraints


@pytest.mark.parametrize(
    ("constraint", "kind"),
    [
        (Constraint(1, HOP, MALE), "entity"),
        (Constraint(1, HOP, IsNotEntity(Entity("Male"))), "entity"),
        (Constraint(1, HOP, IS_A), "entity"),
        (Constraint(1, HOP, None), "entity"),
        (Constraint(1, HOP, YEAR), "numeric"),
        (BEFORE, "numeric"),
        (Constraint(1, HOP, NAME), "string"),
        (Constraint(1, HOP, None, (Constraint(1, HOP, YEAR),)), "numeric"),
        (either(Constraint(1, HOP, NAME)), "string"),
        (labelled(), "entity"),
    ],
)
def test_kinds(constraint: Constraint, kind: str) -> None:
    assert constraint.kind == kind


INNER = Fork(
    (
        Way((Hop("f.a"),), (Constraint(1, (Hop("f.b"),), IsEntity(Entity("Peru"))),)),
        Way((Hop("f.c"), Fork((Way((Hop("f.d"),)), Way((Hop("f.e"),)))))),
    )
)
CRP = Crp(
    Entity("Kenya"),
    (Hop("p.q"), INNER, Hop("r.s", inverse=True)),
    (
        Constraint(1, (Hop("t.u"),), None, (Constraint(1, (Hop("v.w"),), MALE),)),
        Constraint(
            3,
            (Hop("x.y"),),
            AnyOf(
                (
                    (Constraint(1, (Hop("y.a"),), IsNotEntity(Entity("Mali"))),),
                    (Constraint(1, (), IsEntity(Entity("Chad"))),),
                )
            ),
        ),
        Constraint(Entity("War"), (Hop("y.b"),), YEAR),
    ),
    Order(2, (Hop("z.z"),), descending=True),
)
ENTITIES = ["Kenya", "Peru", "Male", "Mali", "Chad", "War"]


def test_entities_and_relations_come_in_reading_order() -> None:
    assert [str(entity) for entity in CRP.entities()] == ENTITIES
    on_path = ["p.q", "f.a", "f.c", "f.d", "f.e", "r.s"]
    assert list(CRP.relations()) == [
        *on_path,
        *("f.b", "t.u", "v.w", "x.y", "y.a", "y.b"),
        "z.z",
    ]
    assert CRP.answer == 3


def test_every_entity_is_changed_and_nothing_else() -> None:
    changed = CRP.with_entities(lambda entity: Entity(entity.name, f"m.{len(str(entity))}"))
    assert [entity.mid for entity in changed.entities()] == [f"m.{len(name)}" for name in ENTITIES]
    assert all(entity.is_grounded for entity in changed.entities())
    assert changed.with_entities(lambda entity: Entity(entity.name)) == CRP


def test_every_constraint_is_changed_the_innermost_first() -> None:
    met: list[Constraint] = []

    def seen(constraint: Constraint) -> Constraint:
        met.append(constraint)
        return constraint

    assert CRP.with_constraints(seen) == CRP
    assert sorted(map(repr, met)) == sorted(map(repr, CRP.all_constraints()))
    outer, male = CRP.constraints[0], CRP.constraints[0].branches[0]
    assert met.index(male) < met.index(outer)


def test_an_entity_reads_as_its_name_or_else_its_mid() -> None:
    assert [str(Entity("A", "m.0a")), str(Entity("A")), str(Entity(mid="m.0a"))] == [
        "A",
        "A",
        "m.0a",
    ]


def _deep_branches(depth: int) -> Crp:
    constraint = Constraint(1, (Hop("c.d"),), None)
    for _ in range(depth):
        constraint = Constraint(1, (Hop("c.d"),), None, (constraint,))
    return Crp(Entity("Kenya"), (Hop("a.b"),), (constraint,))


def _deep_alternatives(depth: int) -> Crp:
    held = other = Constraint(0, (), IsEntity(Entity("Peru")))
    for _ in range(depth):
        held = Constraint(0, (), AnyOf(((held,), (other,))))
    return Crp(Entity("Kenya"), (Hop("a.b"),), (held,))


def _deep_forks(depth: int) -> Crp:
    step: Step = Hop("a.b")
    for _ in range(depth):
        step = Fork((Way((step,)), Way((Hop("c.d"),))))
    return Crp(Entity("Kenya"), (step,))


@pytest.mark.parametrize("build", [_deep_branches, _deep_alternatives, _deep_forks])
def test_what_is_nested_too_deep_is_refused_and_all_else_has_a_text(
    build: Callable[[int], Crp],
) -> None:
    deepest = build(MAX_DEPTH)
    assert parse_crp(render_crp(deepest)) == (deepest, ())
    for depth in (MAX_DEPTH + 1, 2000):
        with pytest.raises(ValueError, match="nested deeper than 32"):
            build(depth)
