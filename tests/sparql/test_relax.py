from collections.abc import Callable
from dataclasses import replace

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
    Form,
    Hop,
    IsEntity,
    IsNode,
    IsNotEntity,
    IsNotNode,
    NodeRef,
    Order,
    TextEquals,
    Way,
    nested_constraints,
    path_relations,
)
from kbqa.sparql.relax import compared_entities, drop_kinds, leaves, relaxations
from kbqa.sparql.terms import LiteralTerm


def entity(name: str, at: int = 1) -> Constraint:
    return Constraint(at, (Hop("a.b"),), IsEntity(Entity(name)))


def number(value: str, at: int = 1, hops: tuple[Hop, ...] = (Hop("c.d"),)) -> Constraint:
    return Constraint(at, hops, Compare("<", LiteralTerm(value)))


NUMBER = number("12")
TEXT = Constraint(1, (Hop("e.f"),), TextEquals("x"))
LATER_TEXT = Constraint(1, (Hop("e.f"),), TextEquals("y"))
ORDER = Order(1, (Hop("g.h"),), descending=True)
A, B, C = map(entity, "ABC")
NOT_TOPIC = Constraint(1, (), IsNotNode(NodeRef(0)))


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
                ("numeric", (A, B, ORDER)),
                ("numeric", (A, NUMBER, B)),
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
        pytest.param(
            crp(TEXT, A, LATER_TEXT),
            [
                ("full", (TEXT, A, LATER_TEXT)),
                ("string", (TEXT, A)),
                ("string", (A, LATER_TEXT)),
                ("string", (A,)),
                ("main_path", ()),
            ],
            id="one string before two",
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


def from_(at: int, *branches: Constraint, label: str | None = None) -> Constraint:
    return Constraint(at, (Hop("r.s"),), None, branches, label=label)


INTERVAL = Constraint(
    1,
    (Hop("t.to"),),
    None,
    (number("2", 1, ()), Constraint(1, (), Compare(">", LiteralTerm("1")))),
    optional=True,
)
EITHER = Constraint(1, (Hop("r.s"),), AnyOf(((entity("D"),), (entity("E"), number("3")))))
NONE_SUCH = Constraint(1, (Hop("r.s"),), None, (entity("D"), number("3")), negated=True)
LABELLED = Constraint(1, (Hop("r.s"),), None, label="a")
ANCHORED = Constraint(Entity("War"), (Hop("r.s"),), None, label="a")
BELOW_A = Constraint(1, (Hop("u.v"),), Compare("<", NodeRef("a")))
BELOW_A_INSIDE = Constraint(1, (), Compare("<", NodeRef("a")))
NOT_D = Constraint(1, (), IsNotEntity(Entity("D")))
BY_A = Order("a", (), descending=True)


@pytest.mark.parametrize(
    ("full", "steps"),
    [
        pytest.param(
            crp(from_(1, entity("D"), number("3"))),
            [("numeric", (from_(1, entity("D")),)), ("main_path", ())],
            id="a branch's branches one by one",
        ),
        pytest.param(
            crp(from_(1, from_(1, A)), B),
            [("entity", (from_(1, from_(1, A)),)), ("entity", (B,)), ("main_path", ())],
            id="a branch goes with the last that hangs on it",
        ),
        pytest.param(
            crp(INTERVAL),
            [
                ("numeric", (Constraint(1, (Hop("t.to"),), None, INTERVAL.branches[:1], True),)),
                ("numeric", (Constraint(1, (Hop("t.to"),), None, INTERVAL.branches[1:], True),)),
                ("main_path", ()),
            ],
            id="an interval's ends",
        ),
        pytest.param(
            crp(EITHER, A),
            [("entity", (EITHER,)), ("entity", (A,)), ("main_path", ())],
            id="alternatives are one leaf",
        ),
        pytest.param(
            crp(A, NONE_SUCH, NOT_D),
            [("main_path", (NONE_SUCH, NOT_D))],
            id="what negates is never dropped",
        ),
        pytest.param(
            crp(LABELLED, replace(NONE_SUCH, branches=(BELOW_A_INSIDE,)), A),
            [("main_path", (LABELLED, replace(NONE_SUCH, branches=(BELOW_A_INSIDE,))))],
            id="what a negated branch refers to stays",
        ),
        pytest.param(
            crp(from_(1)), [("main_path", ())], id="a branch that need only exist is a leaf"
        ),
        pytest.param(
            crp(LABELLED, A, order=BY_A),
            [("numeric", (A,)), ("main_path", ())],
            id="a branch for its label alone goes with what refers to it",
        ),
        pytest.param(
            crp(LABELLED, BELOW_A, order=BY_A),
            [("numeric", (LABELLED, BY_A)), ("numeric", (LABELLED, BELOW_A)), ("main_path", ())],
            id="a branch stays while something refers to its label",
        ),
        pytest.param(
            crp(from_(1, A, label="a"), order=BY_A),
            [("numeric", (from_(1, A),)), ("main_path", ())],
            id="a branch loses the label that nothing refers to",
        ),
        pytest.param(
            crp(
                from_(1, entity("D"), entity("E"), label="a"),
                Constraint(1, (), IsNode(NodeRef("a"))),
            ),
            [
                ("entity", (from_(1, entity("D"), entity("E")),)),
                (
                    "entity",
                    (from_(1, entity("D"), label="a"), Constraint(1, (), IsNode(NodeRef("a")))),
                ),
                (
                    "entity",
                    (from_(1, entity("E"), label="a"), Constraint(1, (), IsNode(NodeRef("a")))),
                ),
                ("entity", (from_(1, entity("D")),)),
                ("entity", (from_(1, entity("E")),)),
                ("entity", (LABELLED, Constraint(1, (), IsNode(NodeRef("a"))))),
                ("main_path", ()),
            ],
            id="a label that is referred to outlives the branches",
        ),
        pytest.param(crp(ANCHORED, BELOW_A), [("main_path", ())], id="an anchor goes with its use"),
        pytest.param(
            crp(from_(1, A), from_(1, A, B)),
            [
                ("entity", (from_(1, A),)),
                ("entity", (from_(1, A), from_(1, B))),
                ("entity", (from_(1, A, B),)),
                ("entity", (from_(1, B),)),
                ("main_path", ()),
            ],
            id="branches that become the same are one",
        ),
    ],
)
def test_nested_leaves(full: Crp, steps: list[tuple[str, tuple[Constraint | Order, ...]]]) -> None:
    found = list(relaxations(full))
    assert found[0].crp == full
    assert [
        (step.level, (*step.crp.constraints, *filter(None, [step.crp.order]))) for step in found[1:]
    ] == steps


def test_what_hangs_on_a_fork_is_dropped_and_the_fork_kept() -> None:
    ways = (
        Way((Hop("e.f"), Hop("g.h")), (entity("D"), number("3", 2))),
        Way((Hop("i.j"),)),
    )
    full = Crp(Entity("Kenya"), (Hop("p.q"), Fork(ways)), (entity("A"),))
    found = list(relaxations(full))
    assert [(step.level, step.dropped) for step in found] == [
        ("full", ()),
        ("numeric", (number("3", 2),)),
        ("entity", (number("3", 2), entity("A"))),
        (
            "entity",
            (Constraint(1, (Hop("e.f"), Hop("a.b")), IsEntity(Entity("D"))), number("3", 2)),
        ),
        (
            "main_path",
            (
                Constraint(1, (Hop("e.f"), Hop("a.b")), IsEntity(Entity("D"))),
                number("3", 2),
                entity("A"),
            ),
        ),
    ]
    bare = Fork((Way(ways[0].path), ways[1]))
    assert found[-1].crp == Crp(Entity("Kenya"), (Hop("p.q"), bare))


@pytest.mark.parametrize(
    ("branch", "leaf"),
    [
        pytest.param(
            from_(1, from_(1, A)),
            Constraint(1, (Hop("r.s"), Hop("r.s"), Hop("a.b")), IsEntity(Entity("A"))),
            id="hops",
        ),
        pytest.param(
            Constraint(1, (Hop("t.to"),), None, (number("2", 1, ()),), optional=True),
            Constraint(1, (Hop("t.to"),), Compare("<", LiteralTerm("2")), optional=True),
            id="optional",
        ),
        pytest.param(
            Constraint(Entity("War"), (Hop("r.s"),), None, (EITHER,)),
            Constraint(
                Entity("War"),
                (Hop("r.s"), Hop("r.s")),
                AnyOf(((entity("D", 2),), (entity("E", 2), number("3", 2)))),
            ),
            id="anchored alternatives",
        ),
    ],
)
def test_a_leaf_is_told_with_all_its_hops(branch: Constraint, leaf: Constraint) -> None:
    assert list(leaves(crp(branch))) == [leaf]
    assert list(relaxations(crp(branch)))[-1].dropped == (leaf,)


def test_a_leaf_behind_two_forks_is_told_by_the_first_way() -> None:
    inner = Fork((Way((Hop("e.f"),)), Way((Hop("g.h"),))))
    outer = Fork((Way((inner, Hop("i.j")), (A,)), Way((Hop("k.l"),))))
    (leaf,) = leaves(Crp(Entity("Kenya"), (outer,)))
    assert leaf == Constraint(0, (Hop("e.f"), Hop("a.b")), IsEntity(Entity("A")))


@pytest.mark.parametrize(
    ("at", "hops"),
    [
        (0, (Hop("k.l"), Hop("c.d"))),
        (1, (Hop("k.l"), Hop("e.f"), Hop("c.d"))),
        (2, (Hop("k.l"), Hop("e.f"), Hop("g.h"), Hop("c.d"))),
    ],
    ids=["at its start", "within it", "at its end"],
)
def test_a_leaf_of_a_fork_within_a_fork_is_told_with_the_hops_to_it(
    at: int, hops: tuple[Hop, ...]
) -> None:
    inner = Fork((Way((Hop("e.f"), Hop("g.h")), (number("3", at),)), Way((Hop("i.j"),))))
    outer = Fork((Way((Hop("k.l"), inner, Hop("m.n"))), Way((Hop("m.n"),))))
    (leaf,) = leaves(Crp(Entity("Kenya"), (outer,)))
    assert leaf == number("3", 0, hops)


@pytest.mark.parametrize("place", ["path", "fork", "fork in a fork"])
def test_a_label_to_which_only_a_negated_branch_refers_is_kept(place: str) -> None:
    labelled = Constraint(1, (Hop("r.s"),), None, label="a")
    is_not_a = Constraint(1, (Hop("v.w"),), IsNode(NodeRef("a")), negated=True)
    if place == "path":
        full = crp(labelled, A, Constraint(1, (Hop("t.u"),), None, (B, is_not_a)))
    else:
        other = Way((Hop("g.h"),))
        fork = Fork((Way((Hop("e.f"),), (labelled, A, is_not_a)), other))
        if place == "fork in a fork":
            fork = Fork((Way((Hop("k.l"), fork)), other))
        full = Crp(Entity("Kenya"), (fork,))
    last = list(relaxations(full))[-1].crp
    kept = list(last.all_constraints())
    assert labelled in kept
    assert is_not_a in kept
    assert A not in kept


def test_the_least_trusted_leaf_goes_first() -> None:
    trust = {A: 0.5, B: 1.0, C: 0.9}
    steps = relaxations(crp(A, B, C), lambda leaf: trust.get(leaf, 1.0))
    assert [step.dropped for step in steps] == [
        (),
        (A,),
        (C,),
        (B,),
        (A, C),
        (A, B),
        (B, C),
        (A, B, C),
    ]


@pytest.mark.parametrize(
    ("trust", "first"), [(lambda _: 1.0, NUMBER), (lambda leaf: leaf != ORDER, ORDER)]
)
def test_the_ordering_goes_last_of_those_trusted_alike(
    trust: Callable[[Constraint | Order], float], first: Constraint | Order
) -> None:
    steps = list(relaxations(crp(NUMBER, order=ORDER), trust))
    assert steps[1].dropped == (first,)


PATH = (Hop("p.q"), Hop("p.r"))
KEEPS_OFF = Constraint(2, (), IsNotNode(NodeRef(0)))


@pytest.mark.parametrize(
    ("full", "last"),
    [
        pytest.param(
            Crp(Entity("Kenya"), PATH, (A,), differs_from=1),
            Crp(Entity("Kenya"), PATH, (KEEPS_OFF,), differs_from=1),
            id="an answer that differs from another node differs from the topic as well",
        ),
        pytest.param(
            Crp(Entity("Kenya"), PATH, (A,)),
            Crp(Entity("Kenya"), PATH),
            id="one that differs from the topic does so already",
        ),
        pytest.param(
            Crp(Entity("Kenya"), PATH, (A,), differs_from=None),
            Crp(Entity("Kenya"), PATH, differs_from=None),
            id="one that may be the topic still may",
        ),
        *(
            pytest.param(
                Crp(Entity("Kenya"), PATH, (said, A), differs_from=differs_from),
                Crp(Entity("Kenya"), PATH, (said,), differs_from=differs_from),
                id="what keeps the topic out is never dropped",
            )
            for said in (
                KEEPS_OFF,
                Constraint(0, (), IsNotNode(NodeRef(2))),
                Constraint(2, (), IsNotEntity(Entity("Kenya"))),
            )
            for differs_from in (None, 1)
        ),
    ],
)
def test_no_relaxed_form_returns_the_topic(full: Crp, last: Crp) -> None:
    assert [step.crp for step in relaxations(full)] == [full, last]


def test_a_whole_class_of_constraints_is_dropped() -> None:
    name = Constraint(1, (Hop("type.object.name"),), TextEquals("Nairobi"))
    order = Order(1, (Hop("a.b"),), descending=True)
    full = Crp(Entity("Kenya"), (Hop("location.location.contains"),), (name,), order)
    assert drop_kinds(full, {"string"}) == replace(full, constraints=())
    assert drop_kinds(full, {"numeric"}) == replace(full, order=None)
    assert drop_kinds(full, {"entity"}) == full


def test_a_step_that_drops_nothing_is_none() -> None:
    full = Crp(Entity("Kenya"), PATH, differs_from=1)
    assert [step.crp for step in relaxations(full)] == [full]


def test_many_entities_are_not_dropped_in_every_way() -> None:
    steps = list(relaxations(crp(*map(entity, "abcdefghijklmnop"))))
    assert len(steps) == 1 + 64 + 1  # in full, without some, without all
    assert steps[-1].level == "main_path"


@settings(deadline=None)
@given(crps())
def test_every_step_keeps_what_it_does_not_drop_and_the_main_path_comes_last(full: Crp) -> None:
    steps = list(relaxations(full))
    assert steps[0].crp == full
    assert len({step.crp for step in steps}) == len(steps) < 200
    if full.form != "select" or compared_entities(full):
        assert len(steps) == 1
        return
    everything = set(leaves(full))
    for step in steps[1:]:
        kept = set(leaves(step.crp))
        assert kept | set(step.dropped) == everything
        assert step.dropped
    if everything:
        assert set(steps[-1].dropped) == everything
        assert not list(leaves(steps[-1].crp))

    last = steps[-1].crp
    keeps_off = Constraint(full.answer, (), IsNotNode(NodeRef(0)))
    assert list(path_relations(last.path)) == list(path_relations(full.path))
    assert (last.topic, last.differs_from, last.order) == (full.topic, full.differs_from, None)
    assert last.answer_language == full.answer_language
    assert all(
        constraint in full.constraints
        or constraint == keeps_off
        or any(
            # What is left of a branch whose label a negation refers to.
            _negates(nested) or nested.label is not None
            for nested in nested_constraints((constraint,))
        )
        for constraint in last.constraints
    )
    assert set(filter(_negates, full.constraints)) <= set(last.constraints)


def _negates(constraint: Constraint) -> bool:
    return constraint.negated or (not constraint.hops and isinstance(constraint.test, IsNotEntity))


@pytest.mark.parametrize("form", ["count", "count bindings", "ask"])
def test_a_count_or_yes_no_question_is_not_relaxed(form: Form) -> None:
    full = replace(crp(A, NUMBER), form=form)
    assert [step.crp for step in relaxations(full)] == [full]


def test_a_comparison_of_entities_is_not_relaxed() -> None:
    named = (Constraint(0, (), IsEntity(Entity(name))) for name in ("Spain", "Germany"))
    full = crp(Constraint(1, (), AnyOf(tuple((each,) for each in named))), order=ORDER)
    assert [step.crp for step in relaxations(full)] == [full]
    assert len(list(relaxations(replace(full, order=None)))) == 2


def test_alternatives_behind_a_hop_are_no_compared_entities() -> None:
    named = (Constraint(1, (), IsEntity(Entity(name))) for name in ("Spain", "Germany"))
    either = AnyOf(tuple((each,) for each in named))
    full = crp(Constraint(1, (Hop("r.s"),), either), order=ORDER)
    assert compared_entities(full) == ()
    assert len(list(relaxations(full))) > 1


def test_alternatives_before_the_answer_are_no_compared_entities() -> None:
    named = (Constraint(0, (), IsEntity(Entity(name))) for name in ("Spain", "Germany"))
    either = Constraint(1, (), AnyOf(tuple((each,) for each in named)))
    full = Crp(Entity("Kenya"), PATH, (either,), ORDER)
    assert compared_entities(full) == ()
    assert compared_entities(replace(full, constraints=(replace(either, at=2),))) != ()
