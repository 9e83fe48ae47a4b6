"""Describe a CRP: in sentences for people who check an answer, in few words for a judge.

In the sentences, relations stay Freebase ids, and labels are written as variables: ``?a``. A judge
reads relations without their domains, and neither ids nor variables.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kbqa.sparql.crp import (
    Aggregate,
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
    Part,
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


def describe_crp(crp: Crp) -> list[str]:
    """Describe a CRP in sentences: the path to the answers, then what they must satisfy.

    Two things that hold for most questions are left out: the topic is not an answer, and answers
    that are texts are in English.

    >>> describe_crp(Crp(Entity("Kenya"), (Hop("location.country.capital"),)))
    ['From Kenya, follow location.country.capital to the answers.']
    """
    return [sentence.text for sentence in _sentences(crp)]


def find_sentence(crp: Crp, part: Part | None) -> int | None:
    """Return the index of the sentence of `describe_crp` that says a part; None is the main path.

    The part may lack inner branches that a relaxation has dropped.
    """
    said = [(index, each) for index, (_, parts) in enumerate(_sentences(crp)) for each in parts]
    exact = (index for index, each in said if each == part)
    left = (index for index, each in said if _is_left_of(part, each))
    return next(exact, next(left, None))


def describe_dropped(dropped: Sequence[Part], crp: Crp) -> list[str]:
    """Describe the parts that a relaxation has dropped from a CRP."""
    return [
        _order(part, crp.answer) if isinstance(part, Order) else _constraint(part, crp.answer)
        for part in dropped
    ]


class _Sentence(NamedTuple):
    """A sentence, and the parts of the CRP that it says."""

    text: str
    parts: tuple[Part | None, ...] = ()


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
        case "sum" | "sum bindings" | "average" | "average bindings" | "difference" as form:
            yield _Sentence(_aggregate(form, _node(crp.value or 0, crp.answer)))
        case "ask":
            tests = " and ".join(_demand(test, crp.answer, inner=True) for test in asked)
            yield _Sentence(f"Say whether one of them {tests or 'exists'}.", asked)


def _aggregate(form: Aggregate, values: str) -> str:
    each = "once for each way to bind all nodes" if "bindings" in form else "one for each answer"
    match form:
        case "sum" | "sum bindings":
            return f"Add up {values}, {each}."
        case "average" | "average bindings":
            return f"Take the average of {values}, {each}."
        case "difference":
            return f"Take the difference between the largest and the smallest of {values}, {each}."


def _is_left_of(part: Part | None, whole: Part | None) -> bool:
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
    """Describe successive steps, each with the constraints on the node that it leads to."""
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
    """Describe what a node must be or have; `inner` words are one of several.

    The answer is None inside a fork, which cannot refer to positions.
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


def path_words(crp: Crp) -> str:
    """Write a CRP in few words, as a judge reads it.

    >>> path_words(Crp(Entity("Kenya"), (Hop("location.country.official_language"),)))
    'Kenya: country official language'
    """
    parts = [f"{crp.topic}: {_brief_path(crp.path)}"]
    parts += [_brief_constraint(each, crp.answer) for each in crp.constraints]
    if crp.order is not None:
        parts.append(_brief_order(crp.order, crp.answer))
    if crp.form != "select":
        parts.append(crp.form)
    return "; ".join(parts)


def relation_words(relation: str) -> str:
    """Return the words of a relation's, or a type's, last two parts, without the domain.

    >>> relation_words("people.person.place_of_birth")
    'person place of birth'
    """
    return " ".join(relation.split(".")[-2:]).replace("_", " ")


def _brief_path(path: Sequence[Step]) -> str:
    return " > ".join(map(_brief_step, path))


def _brief_step(step: Step) -> str:
    if isinstance(step, Fork):
        return f"({' or '.join(map(_brief_way, step.ways))})"
    return f"{relation_words(step.relation)}{' of' if step.inverse else ''}"


def _brief_way(way: Way) -> str:
    constraints = (_brief_constraint(each, len(way.path)) for each in way.constraints)
    return "; ".join((_brief_path(way.path), *constraints))


def _brief_constraint(constraint: Constraint, answer: int) -> str:
    """Write a constraint; one that is not on the answer begins with its node."""
    demand = _brief_demand(constraint)
    return " ".join(filter(None, (_brief_place(constraint.at, answer), *demand)))


def _brief_demand(constraint: Constraint) -> Iterator[str]:
    if constraint.negated:
        yield "no"
    if constraint.optional:
        yield "if any"
    yield _brief_path(constraint.hops)
    if constraint.test is not None:
        yield _brief_test(constraint.test)
    inner = len(constraint.hops)
    yield " and ".join(_brief_constraint(each, inner) for each in constraint.branches)


def _brief_test(test: Test) -> str:
    match test:
        case IsEntity(entity):
            return str(entity)
        case IsNotEntity(entity):
            return f"not {entity}"
        case IsNode(other):
            return f"same as {_brief_node(other)}"
        case IsNotNode(other):
            return f"other than {_brief_node(other)}"
        case Compare(operator, LiteralTerm(value)):
            return f"{operator} {value}"
        case Compare(operator, NodeRef() as other):
            return f"{operator} {_brief_node(other)}"
        case TextEquals(text):
            return text
        case AnyOf(alternatives):
            return " or ".join(
                " and ".join(" ".join(_brief_demand(each)) for each in alternative)
                for alternative in alternatives
            )
    raise AssertionError(test)


def _brief_order(order: Order, answer: int) -> str:
    rank = f"{order.offset + 1}. " if order.offset else ""
    number = f"{order.limit} " if order.limit > 1 else ""
    which = "most" if order.descending else "least"
    counted = "number of " if order.counted else ""
    value = f"{rank}{number}{which} {counted}{_brief_path(order.hops)}"
    return f"{_brief_place(order.at, answer)} {value}".strip()


def _brief_place(at: int | str | Entity, answer: int) -> str:
    return "" if at == answer else f"step {at}" if isinstance(at, int) else str(at)


def _brief_node(reference: NodeRef) -> str:
    return f"step {reference.node}" if isinstance(reference.node, int) else reference.node
