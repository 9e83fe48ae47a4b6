from itertools import islice

import pytest
from hypothesis import given, settings
from strategies import crps

from kbqa.sparql.crp import (
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
from kbqa.sparql.english import describe_crp, describe_dropped, find_sentence, path_words
from kbqa.sparql.forms import parse_crp
from kbqa.sparql.relax import leaves, relaxations
from kbqa.sparql.terms import LiteralTerm

PATH = (Hop("a.b"), Hop("c.d", inverse=True))
BIG = Compare(">", LiteralTerm("12"))
HAS_BIG = Constraint(1, (Hop("g.h"),), BIG)
IS_MALE = IsEntity(Entity("Male", "m.05zppz"))


def ref(node: int | str, *hops: Hop, at: int = 2) -> Constraint:
    return Constraint(at, hops, IsNode(NodeRef(node)))


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (
            Constraint(2, (Hop("e.f"), Hop("g.h")), IS_MALE),
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
            Constraint(0, (Hop("to"),), Compare(">=", LiteralTerm("2015-08-10")), optional=True),
            "Keep those where the topic has to at least 2015-08-10, or none is known.",
        ),
        (
            Constraint(2, (Hop("e.f"),), TextEquals("JMD", "en")),
            'Keep those where the answer has e.f reading "JMD" (in en).',
        ),
        (
            Constraint(2, (Hop("e.f"),), TextEquals("JMD", "")),
            'Keep those where the answer has e.f reading "JMD" (untagged).',
        ),
        (Constraint(2, (), TextEquals("JMD")), 'Keep those where the answer reads "JMD".'),
        (Constraint(2, (), BIG), "Keep those where the answer is above 12."),
        (Constraint(2, (), IS_MALE), "Keep those where the answer is Male."),
        (
            Constraint(2, (), IsNotEntity(Entity("Male"))),
            "Keep those where the answer is not Male.",
        ),
        (
            Constraint(2, (), IsNotNode(NodeRef(0))),
            "Keep those where the answer is not the topic.",
        ),
        (ref(1), "Keep those where the answer is step 1 of the way."),
        (ref(0, Hop("e.f")), "Keep those where the answer has e.f that is the topic."),
        (
            Constraint(1, (Hop("e.f"),), IsNotNode(NodeRef(2))),
            "Keep those where step 1 of the way has e.f other than the answer.",
        ),
        (
            Constraint(1, (Hop("e.f"),), Compare("<", NodeRef(2))),
            "Keep those where step 1 of the way has e.f below the answer.",
        ),
        (
            Constraint(Entity("War"), (Hop("e.f"),), BIG),
            "Keep those where War has e.f above 12.",
        ),
        (Constraint(2, (Hop("e.f"),), None), "Keep those where the answer has e.f."),
        (
            Constraint(2, (Hop("e.f"),), None, negated=True),
            "Keep those where the answer has no e.f.",
        ),
        (
            Constraint(2, (Hop("e.f"),), IS_MALE, negated=True),
            "Keep those where the answer has no e.f Male.",
        ),
        (
            Constraint(
                2,
                (Hop("e.f"),),
                None,
                (
                    HAS_BIG,
                    Constraint(1, (Hop("to"),), Compare("<=", LiteralTerm("2015")), optional=True),
                ),
            ),
            "Keep those where the answer has e.f that has g.h above 12 and has to at most 2015, "
            "or none is known.",
        ),
        (
            Constraint(
                2,
                (Hop("i.j"),),
                None,
                (Constraint(1, (Hop("e.f"),), None, (HAS_BIG, HAS_BIG)),),
                negated=True,
            ),
            "Keep those where the answer has no i.j that has e.f that "
            "(has g.h above 12 and has g.h above 12).",
        ),
        (
            Constraint(
                2, (), AnyOf(((Constraint(0, (Hop("g.h"),), BIG),), (ref(1, at=0), ref(0, at=0))))
            ),
            "Keep those where the answer either has g.h above 12 "
            "or (is step 1 of the way and is the topic).",
        ),
        (
            Constraint(2, (Hop("e.f"),), AnyOf(((HAS_BIG,), (Constraint(1, (), IS_MALE),)))),
            "Keep those where the answer has e.f that either has g.h above 12 or is Male.",
        ),
        (Order(2, (Hop("e.f"),), True), "Take the 1 largest by e.f of the answer."),
        (Order(2, (), False, 3, 1), "Take the 3 smallest, after the first 1."),
        (Order(1, (), True), "Take the 1 largest by step 1 of the way."),
        (
            Order(2, (Hop("e.f"),), True, ties=True),
            "Take the 1 largest by e.f of the answer, ties included.",
        ),
        (
            Order(2, (Hop("e.f"),), True, offset=2, counted=True),
            "Take the 1 with the most e.f of the answer, after the first 2.",
        ),
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


@pytest.mark.parametrize(
    ("constraints", "order", "sentences"),
    [
        pytest.param(
            (Constraint(2, (Hop("e.f"), Hop("g.h")), None, label="a"),),
            Order("a", (), descending=True),
            ["Let ?a be e.f then g.h of the answer.", "Take the 1 largest by ?a."],
            id="a label for the ordering",
        ),
        pytest.param(
            (Constraint(2, (Hop("e.f"),), None, (HAS_BIG,), label="a"),),
            Order("a", (Hop("i.j"),), descending=False),
            [
                "Keep those where the answer has e.f (call it ?a) that has g.h above 12.",
                "Take the 1 smallest by i.j of ?a.",
            ],
            id="a label on a branch",
        ),
        pytest.param(
            (
                Constraint(Entity("War"), (Hop("e.f"),), None, label="a"),
                Constraint(1, (Hop("i.j"),), Compare(">=", NodeRef("a"))),
            ),
            None,
            [
                "Let ?a be e.f of War.",
                "Keep those where step 1 of the way has i.j at least ?a.",
            ],
            id="a label at an anchor",
        ),
    ],
)
def test_labels(
    constraints: tuple[Constraint, ...], order: Order | None, sentences: list[str]
) -> None:
    assert describe_crp(Crp(Entity("Kenya"), PATH, constraints, order))[1:] == sentences


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        pytest.param(
            (Fork((Way(PATH), Way((Hop("e.f"),)))),),
            "From Kenya, follow either a.b then c.d backwards or e.f, to the answers.",
            id="two ways",
        ),
        pytest.param(
            (
                Hop("a.b"),
                Fork(
                    (
                        Way(
                            (Hop("c.d"), Hop("e.f")),
                            (HAS_BIG, Constraint(2, (), BIG), HAS_BIG),
                        ),
                        Way(
                            (Hop("i.j"),),
                            (
                                Constraint(0, (Hop("g.h"),), IS_MALE),
                                Constraint(Entity("War"), (Hop("g.h"),), BIG),
                            ),
                        ),
                    )
                ),
                Hop("k.l"),
            ),
            "From Kenya, follow a.b, then either c.d (which has g.h above 12) "
            "(which has g.h above 12) then e.f (which is above 12) or "
            "from there (which has g.h Male) i.j (provided that War has g.h above 12), "
            "then k.l to the answers.",
            id="ways with constraints",
        ),
        pytest.param(
            (Fork((Way((Fork((Way(PATH), Way(PATH))), Hop("e.f"))), Way((Hop("e.f"),)))),),
            "From Kenya, follow either (either a.b then c.d backwards or a.b then c.d backwards, "
            "then e.f) or e.f, to the answers.",
            id="a fork within a fork",
        ),
    ],
)
def test_forks(path: tuple[Hop | Fork, ...], sentence: str) -> None:
    assert describe_crp(Crp(Entity("Kenya"), path)) == [sentence]


@pytest.mark.parametrize(
    ("differs_from", "language", "sentences"),
    [
        (0, "en", []),
        (1, "en", ["The answers are not step 1 of the way."]),
        (None, "en", ["The topic itself may be an answer."]),
        (0, None, ["Answers that are texts may be in any language."]),
        (0, "de", ["Answers that are texts are in de."]),
    ],
)
def test_what_most_questions_ask_for_is_not_said(
    differs_from: int | None, language: str | None, sentences: list[str]
) -> None:
    crp = Crp(Entity("A"), PATH, differs_from=differs_from, answer_language=language)
    assert describe_crp(crp)[1:] == sentences


@settings(deadline=None)
@given(crps())
def test_any_crp_is_said(crp: Crp) -> None:
    assert len(describe_crp(crp)) > len(crp.constraints)
    found = list(leaves(crp))
    assert len(describe_dropped(found, crp)) == len(found)


@pytest.mark.parametrize(
    ("crp", "sentence"),
    [
        (Crp(Entity("Kenya"), PATH, form="count"), "Count the answers."),
        (Crp(Entity("Kenya"), PATH, form="ask"), "Say whether one of them exists."),
        (
            Crp(Entity("Kenya"), PATH, (Constraint(2, (), IS_MALE),), form="ask"),
            "Say whether one of them is Male.",
        ),
    ],
)
def test_what_is_asked_comes_last(crp: Crp, sentence: str) -> None:
    start = "From Kenya, follow a.b then c.d backwards to the answers."
    assert describe_crp(crp) == [start, sentence]


@settings(deadline=None)
@given(crps())
def test_every_part_of_a_crp_has_its_sentence_even_when_relaxed(crp: Crp) -> None:
    sentences = describe_crp(crp)
    assert find_sentence(crp, None) == 0
    for constraint in crp.constraints:
        at = find_sentence(crp, constraint)
        assert at is not None
        assert constraint in crp.asked or [sentences[at]] == describe_dropped([constraint], crp)
    for relaxed in islice(relaxations(crp), 20):
        parts = (c for c in relaxed.crp.constraints if c.hops)
        assert None not in {find_sentence(crp, part) for part in parts}


def test_what_is_left_of_a_part_has_the_sentence_of_the_whole() -> None:
    male, big = Constraint(1, (Hop("g.h"),), IS_MALE), Constraint(1, (Hop("i.j"),), BIG)
    plain = Constraint(2, (Hop("e.f"),), None)
    both, only = (Constraint(2, (Hop("e.f"),), None, held) for held in ((male, big), (big,)))
    crp = Crp(Entity("Kenya"), PATH, (HAS_BIG, both, only, plain))
    parts = (HAS_BIG, both, only, plain, Constraint(2, (Hop("e.f"),), None, (male,)))
    assert [find_sentence(crp, part) for part in parts] == [1, 2, 3, 4, 2]
    assert find_sentence(crp, Order(2, (Hop("e.f"),), descending=True)) is None


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ("sum", "Add up ?a, one for each answer."),
        ("sum bindings", "Add up ?a, once for each way to bind all nodes."),
        ("average", "Take the average of ?a, one for each answer."),
        (
            "difference",
            "Take the difference between the largest and the smallest of ?a, one for each answer.",
        ),
    ],
)
def test_a_sum_is_said_last(form: str, sentence: str) -> None:
    crp = parse_crp(f"Europe -> a.contains\n?x -> a.area ?a\n{form} ?a").crp
    assert describe_crp(crp)[1:] == ["Let ?a be a.area of the answer.", sentence]
    assert path_words(crp) == f"Europe: a contains; a area; {form}"
