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
from kbqa.sparql.words import describe_crp, describe_dropped

PATH = (Hop("a.b"), Hop("c.d", inverse=True))
BIG = Compare(">", Literal("12"))


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (
            Constraint(2, (Hop("e.f"), Hop("g.h")), IsEntity(Entity("Male", "m.05zppz"))),
            "Keep those where the answer has e.f then g.h Male.",
        ),
        (
            Constraint(2, (Hop("e.f"),), IsNotEntity(Entity(mid="m.05zppz"))),
            "Keep those where the answer has e.f other than m.05zppz.",
        ),
        (
            Constraint(1, (Hop("e.f", inverse=True),), BIG),
            "Keep those where step 1 of the way has e.f backwards above 12.",
        ),
        (
            Constraint(0, (Hop("to"),), Compare(">=", Literal("2015-08-10")), optional=True),
            "Keep those where the topic has to at least 2015-08-10, or none is known.",
        ),
        (
            Constraint(2, (Hop("e.f"),), TextEquals("JMD", "en")),
            'Keep those where the answer has e.f reading "JMD" (in en).',
        ),
        (Constraint(2, (), BIG), "Keep those where the answer has a value above 12."),
        (Constraint(2, (Hop("e.f"),), None), "Keep those where the answer has e.f."),
        (
            Constraint(
                2,
                (Hop("e.f"),),
                None,
                (
                    Constraint(1, (Hop("g.h"),), BIG),
                    Constraint(1, (Hop("to"),), Compare("<=", Literal("2015")), optional=True),
                ),
            ),
            "Keep those where the answer has e.f with g.h above 12 and to at most 2015, "
            "or none is known.",
        ),
        (Order(2, (Hop("e.f"),), True), "Take the 1 largest by e.f of the answer."),
        (Order(2, (), False, 3, 1), "Take the 3 smallest, after the first 1."),
        (Order(1, (), True), "Take the 1 largest by step 1 of the way."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_part_is_said(part: Constraint | Order, sentence: str) -> None:
    is_order = isinstance(part, Order)
    crp = Crp(
        Entity("Kenya", "m.019rg5"),
        PATH,
        () if isinstance(part, Order) else (part,),
        part if is_order else None,
    )
    assert describe_crp(crp) == [
        "From Kenya, follow a.b then c.d backwards to the answers.",
        sentence,
    ]
    assert describe_dropped([part], crp) == [sentence]
