"""Describe a CRP in English, for people who check an answer.

Relations stay Freebase ids. The nodes of the main path are "the topic", "step 1 of the way" and
"the answer"; the end of a branch that others refer to is called by its label, as ``?a``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

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
    Step,
    Test,
    TextEquals,
    Way,
)
from kbqa.sparql.terms import LiteralTerm

_OPERATORS = {
    "=": "equal to",
    "!=": "not equal to",
    "<": "below",
    "<=": "at most",
    ">": "above",
    ">=": "at least",
}


Part: TypeAlias = Constraint | Order | None
"""A constraint or the ordering of a CRP; None for its main path."""


def describe_crp(crp: Crp) -> list[str]:
    """Describe a CRP in sentences: the path to the answers, then what they must satisfy.

    What holds for most questions is left out: that the topic is not an answer, and that answers
    that are texts are in English.

    >>> describe_crp(Crp(Entity("Kenya"), (Hop("location.country.capital"),)))
    ['From Kenya, follow location.country.capital to the answers.']
    """
    return [sentence.text for sentence in _sentences(crp)]


def find_sentence(crp: Crp, part: Part) -> int | None:
    """Find the sentence of `describe_crp` that says a part of a CRP.

    Args:
        crp: What is described.
        part: A part of it, or what a relaxation has left of one.

    Returns:
        Its index; None if no sentence says the part.

    >>> crp = Crp(Entity("Kenya"), (Hop("a.b"),), order=Order(1, (Hop("c.d"),), True))
    >>> find_sentence(crp, None), find_sentence(crp, crp.order)
    (0, 1)
    """
    said = [(index, each) for index, (_, parts) in enumerate(_sentences(crp)) for each in parts]
    exact = (index for index, each in said if each == part)
    left = (index for index, each in said if _is_left_of(part, each))
    return next(exact, next(left, None))


def describe_dropped(dropped: Sequence[Constraint | Order], crp: Crp) -> list[str]:
    """Describe what a relaxation has dropped from a CRP."""
    return [
        _order(part, crp.answer) if isinstance(part, Order) else _constraint(part, crp.answer)
        for part in dropped
    ]


class _Sentence(NamedTuple):
    """A sentence, and the parts of the CRP that it says."""

    text: str
    parts: tuple[Part, ...] = ()


def _sentences(crp: Crp) -> Iterator[_Sentence]:
    comma = "," if isinstance(crp.path[-1], Fork) else ""
    path = f"From {crp.topic}, follow {_path(crp.path)}{comma} to the answers."
    yield _Sentence(path, (None,))
    asked = crp.asked
    for constraint in crp.constraints:
        if constraint not in asked:
            yield _Sentence(_constraint(constraint, crp.answer), (constraint,))
    yield from map(_Sentence, _scope(crp))
    if crp.order is not None:
        yield _Sentence(_order(crp.order, crp.answer), (crp.order,))
    match crp.form:
        case "count":
            yield _Sentence("Count the answers.")
        case "count bindings":
            yield _Sentence("Count the ways to bind all nodes, which may be more than the answers.")
        case "ask":
            tests = " and ".join(_demand(test, crp.answer, inner=True) for test in asked)
            yield _Sentence(f"Say whether one of them {tests or 'exists'}.", asked)


def _is_left_of(part: Part, whole: Part) -> bool:
    """Return whether a part is a constraint without some of its inner branches and labels."""
    if not isinstance(part, Constraint) or not isinstance(whole, Constraint):
        return False
    bare, of_whole = (replace(each, branches=(), label=None) for each in (part, whole))
    return bare == of_whole and all(
        any(branch == other or _is_left_of(branch, other) for other in whole.branches)
        for branch in part.branches
    )


def _scope(crp: Crp) -> Iterator[str]:
    if crp.differs_from is None:
        yield "The topic itself may be an answer."
    elif crp.differs_from:
        yield f"The answers are not {_node(crp.differs_from, crp.answer)}."
    if crp.answer_language is None:
        yield "Answers that are texts may be in any language."
    elif crp.answer_language != "en":
        yield f"Answers that are texts are in {crp.answer_language}."


def _path(path: tuple[Step, ...], held: Mapping[int, str] | None = None) -> str:
    """Describe successive steps, each with the constraints on the node that it leads to.

    >>> fork = Fork((Way((Hop("c.d"),)), Way((Hop("e.f"), Hop("g.h")))))
    >>> _path((Hop("a.b"), fork, Hop("i.j", inverse=True)))
    'a.b, then either c.d or e.f then g.h, then i.j backwards'
    """
    words = ""
    for position, step in enumerate(path):
        if position:
            forks = isinstance(step, Fork) or isinstance(path[position - 1], Fork)
            words += ", then " if forks else " then "
        words += _step(step) + (held or {}).get(position + 1, "")
    return words


def _step(step: Step) -> str:
    if isinstance(step, Hop):
        return f"{step.relation} backwards" if step.inverse else step.relation
    return "either " + " or ".join(map(_way, step.ways))


def _way(way: Way) -> str:
    held: dict[int, str] = {}
    provided = ""
    for constraint in way.constraints:
        demand = _demand(constraint, None, inner=True)
        if isinstance(constraint.at, int):
            held[constraint.at] = held.get(constraint.at, "") + f" (which {demand})"
        else:
            provided += f" (provided that {constraint.at} {demand})"
    start = f"from there{held[0]} " if 0 in held else ""
    words = f"{start}{_path(way.path, held)}{provided}"
    return f"({words})" if any(isinstance(step, Fork) for step in way.path) else words


def _node(node: int | str | Entity, answer: int | None) -> str:
    match node:
        case str():
            return f"?{node}"
        case Entity():
            return str(node)
        case 0:
            return "the topic"
        case _:
            return "the answer" if node == answer else f"step {node} of the way"


def _hops(hops: tuple[Hop, ...]) -> str:
    return " then ".join(map(_step, hops))


def _constraint(constraint: Constraint, answer: int) -> str:
    place = _node(constraint.at, answer)
    if constraint.label is not None and not constraint.branches:
        return f"Let ?{constraint.label} be {_hops(constraint.hops)} of {place}."
    return f"Keep those where {place} {_demand(constraint, answer)}."


def _demand(constraint: Constraint, answer: int | None, *, inner: bool = False) -> str:
    """Describe what a node must be or have.

    Args:
        constraint: The constraint.
        answer: Position of the answer; None inside a fork, which cannot refer to positions.
        inner: The words are one of several, so that a list in them needs brackets.
    """
    if not constraint.hops:
        return _is(constraint.test, answer)
    words = f"{'has no' if constraint.negated else 'has'} {_hops(constraint.hops)}"
    if constraint.label is not None:
        words += f" (call it ?{constraint.label})"
    words += _ending(constraint.test, answer)
    if constraint.branches:
        words += f" that {_all_of(constraint.branches, answer, brackets=inner)}"
    return f"{words}, or none is known" if constraint.optional else words


def _all_of(constraints: Sequence[Constraint], answer: int | None, *, brackets: bool = True) -> str:
    words = " and ".join(_demand(constraint, answer, inner=True) for constraint in constraints)
    return f"({words})" if brackets and len(constraints) > 1 else words


def _either(test: AnyOf, answer: int | None) -> str:
    return "either " + " or ".join(_all_of(each, answer) for each in test.alternatives)


def _is(test: Test | None, answer: int | None) -> str:
    """Describe what a node itself must be."""
    match test:
        case IsNotEntity(entity):
            return f"is not {entity}"
        case IsNotNode(other):
            return f"is not {_node(other.node, answer)}"
        case IsNode(other):
            return f"is {_node(other.node, answer)}"
        case TextEquals():
            return f"reads {_text(test)}"
        case AnyOf():
            return _either(test, answer)
        case _:
            return f"is{_ending(test, answer)}"


def _ending(test: Test | None, answer: int | None) -> str:
    """Describe what a branch must end in; this follows its hops."""
    match test:
        case IsEntity(entity):
            return f" {entity}"
        case IsNotEntity(entity):
            return f" other than {entity}"
        case IsNode(other):
            return f" that is {_node(other.node, answer)}"
        case IsNotNode(other):
            return f" other than {_node(other.node, answer)}"
        case Compare(operator, LiteralTerm(value)):
            return f" {_OPERATORS[operator]} {value}"
        case Compare(operator, NodeRef(node)):
            return f" {_OPERATORS[operator]} {_node(node, answer)}"
        case TextEquals():
            return f" reading {_text(test)}"
        case AnyOf():
            return f" that {_either(test, answer)}"
        case _:
            return ""


def _text(test: TextEquals) -> str:
    if test.language is None:
        return f'"{test.text}"'
    return f'"{test.text}" ' + (f"(in {test.language})" if test.language else "(untagged)")


def _order(order: Order, answer: int) -> str:
    end = "largest" if order.descending else "smallest"
    place = _node(order.at, answer)
    if order.counted:
        end = "with the most" if order.descending else "with the fewest"
        by = f" {_hops(order.hops)} of {place}"
    elif order.hops:
        by = f" by {_hops(order.hops)} of {place}"
    else:
        by = "" if order.at == answer else f" by {place}"
    skipped = f", after the first {order.offset}" if order.offset else ""
    ties = ", ties included" if order.ties else ""
    return f"Take the {order.limit} {end}{by}{skipped}{ties}."
