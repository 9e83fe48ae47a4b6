import pytest
from hypothesis import given, settings
from strategies import crps

from kbqa.sparql.crp import Compare, Constraint, Crp, Entity, Hop, IsEntity, Order, TextEquals
from kbqa.sparql.relax import relaxations
from kbqa.sparql.terms import Literal


def entity(name: str) -> Constraint:
    return Constraint(1, (Hop("a.b"),), IsEntity(Entity(name)))


NUMBER = Constraint(1, (Hop("c.d"),), Compare("<", Literal("12")))
TEXT = Constraint(1, (Hop("e.f"),), TextEquals("x"))
ORDER = Order(1, (Hop("g.h"),), descending=True)
A, B, C = map(entity, "ABC")


def crp(*constraints: Constraint, order: Order | None = None) -> Crp:
    return Crp(Entity("Kenya"), (Hop("p.q"),), constraints, order)


@pytest.mark.parametrize(
    ("full", "steps"),
    [
        pytest.param(crp(), [("full", ())], id="nothing to drop"),
        pytest.param(crp(TEXT), [("full", (TEXT,)), ("main_path", ())], id="a string"),
        pytest.param(crp(order=ORDER), [("full", (ORDER,)), ("main_path", ())], id="a superlative"),
        pytest.param(
            crp(A, NUMBER, B, TEXT, order=ORDER),
            [
                ("full", (A, NUMBER, B, TEXT, ORDER)),
                ("string", (A, NUMBER, B, ORDER)),
                ("numeric", (A, B)),
                ("entity", (A,)),
                ("entity", (B,)),
                ("main_path", ()),
            ],
            id="string, then numeric, then entity",
        ),
        pytest.param(
            crp(A, B, C),
            [
                ("full", (A, B, C)),
                ("entity", (A, B)),
                ("entity", (A, C)),
                ("entity", (B, C)),
                ("entity", (A,)),
                ("entity", (B,)),
                ("entity", (C,)),
                ("main_path", ()),
            ],
            id="one entity before two",
        ),
        pytest.param(crp(A, A), [("full", (A, A)), ("main_path", ())], id="the same one twice"),
    ],
)
def test_steps(full: Crp, steps: list[tuple[str, tuple[Constraint | Order, ...]]]) -> None:
    found = list(relaxations(full))
    assert [
        (step.level, (*step.crp.constraints, *filter(None, [step.crp.order]))) for step in found
    ] == steps
    everything = {*full.constraints, *filter(None, [full.order])}
    for step, (_, kept) in zip(found, steps, strict=True):
        assert set(step.dropped) == everything - set(kept)


def test_many_entities_are_not_dropped_in_every_way() -> None:
    steps = list(relaxations(crp(*map(entity, "abcdefghijklmnop"))))
    assert len(steps) < 100
    assert steps[-1].level == "main_path"


@settings(deadline=None)
@given(crps())
def test_no_form_comes_twice_and_the_main_path_comes_last(full: Crp) -> None:
    steps = list(relaxations(full))
    assert steps[0].crp == full
    assert len({step.crp for step in steps}) == len(steps)
    last = steps[-1].crp
    assert (last.topic, last.path, last.differs_from) == (full.topic, full.path, full.differs_from)
    assert not last.constraints
    assert last.order is None
