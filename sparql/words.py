"""Say a CRP in English, for people who check an answer."""

from collections.abc import Sequence

from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    Hop,
    IsEntity,
    IsNotEntity,
    Order,
    Test,
    TextEquals,
)

_OPERATORS = {
    "=": "equal to",
    "!=": "not equal to",
    "<": "below",
    "<=": "at most",
    ">": "above",
    ">=": "at least",
}


def describe_crp(crp: Crp) -> list[str]:
    """Say a CRP as a list of sentences: the way to the answers, then what they must satisfy.

    >>> from kbqa.sparql.crp import Entity
    >>> describe_crp(Crp(Entity("Kenya"), (Hop("location.country.capital"),)))
    ['From Kenya, follow location.country.capital to the answers.']
    """
    way = " then ".join(_hop(hop) for hop in crp.path)
    sentences = [f"From {crp.topic}, follow {way} to the answers."]
    sentences += [_constraint(constraint, crp.answer) for constraint in crp.constraints]
    if crp.order is not None:
        sentences.append(_order(crp.order, crp.answer))
    return sentences


def describe_dropped(dropped: Sequence[Constraint | Order], crp: Crp) -> list[str]:
    """Say what a relaxation has dropped from a CRP."""
    return [
        _order(part, crp.answer) if isinstance(part, Order) else _constraint(part, crp.answer)
        for part in dropped
    ]


def _hop(hop: Hop) -> str:
    return f"{hop.relation} backwards" if hop.inverse else hop.relation


def _place(at: int, answer: int) -> str:
    if at == answer:
        return "the answer"
    return "the topic" if at == 0 else f"step {at} of the way"


def _constraint(constraint: Constraint, answer: int) -> str:
    return f"Keep those where {_place(constraint.at, answer)} has {_demand(constraint)}."


def _demand(constraint: Constraint) -> str:
    way = " then ".join(_hop(hop) for hop in constraint.hops) or "a value"
    missing = ", or none is known" if constraint.optional else ""
    branches = " and ".join(map(_demand, constraint.branches))
    return way + _test(constraint.test) + (f" with {branches}" if branches else "") + missing


def _test(test: Test | None) -> str:
    match test:
        case IsEntity(entity):
            return f" {entity}"
        case IsNotEntity(entity):
            return f" other than {entity}"
        case Compare(operator, value):
            return f" {_OPERATORS[operator]} {value.text}"
        case TextEquals(text, language):
            return f' reading "{text}"' + (f" (in {language})" if language else "")
        case None:
            return ""


def _order(order: Order, answer: int) -> str:
    way = " then ".join(_hop(hop) for hop in order.hops)
    end = "largest" if order.descending else "smallest"
    by = f" by {way} of {_place(order.at, answer)}"
    if not way:
        by = "" if order.at == answer else f" by {_place(order.at, answer)}"
    skipped = f", after the first {order.offset}" if order.offset else ""
    return f"Take the {order.limit} {end}{by}{skipped}."
