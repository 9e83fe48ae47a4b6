"""Read the filters of a query as tests of one node or comparisons of two.

Casts add nothing to the values, so they are dropped; ``str`` around a variable makes a comparison
one of texts.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import cast

from kbqa.sparql.compiler.values import is_date, is_number
from kbqa.sparql.convert.query_tree import (
    And,
    Call,
    Comparison,
    Exists,
    Expression,
    Group,
    Node,
    TriplePart,
    Variable,
    mentioned_variables,
)
from kbqa.sparql.crp import (
    Compare,
    Entity,
    IsEntity,
    IsNode,
    IsNotEntity,
    IsNotNode,
    NodeRef,
    Operator,
    Test,
    TextEquals,
)
from kbqa.sparql.errors import CrpConversionError
from kbqa.sparql.terms import LiteralTerm

_SWAPPED: dict[str, Operator] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_CASTS = frozenset(("dateTime", "date", "integer", "int", "float", "double", "decimal"))


@dataclass(frozen=True, slots=True)
class NodeTest:
    """A filter that tests one node."""

    variable: Variable
    test: Test


@dataclass(frozen=True, slots=True)
class NodeComparison:
    """Two nodes and how they compare.

    Attributes:
        left: The one node.
        operator: How it compares with the other.
        right: The other node.
        is_plain: Neither side is cast: ``=`` and ``!=`` compare the nodes, not their values.
    """

    left: Variable
    operator: Operator
    right: Variable
    is_plain: bool

    def swapped(self) -> "NodeComparison":
        """Return the same comparison with the nodes swapped."""
        return NodeComparison(self.right, _SWAPPED[self.operator], self.left, self.is_plain)

    def test(self, right: NodeRef) -> Test:
        """Return it as a test of the left node."""
        if self.is_plain and self.operator in ("=", "!="):
            return (IsNode if self.operator == "=" else IsNotNode)(right)
        return Compare(self.operator, right)


def strip_casts(expression: Expression) -> Expression:
    """Return the expression inside any casts."""
    match expression:
        case Call(function, (argument,)) if function in _CASTS or function == "str":
            return strip_casts(argument)
        case _:
            return expression


def read_comparison(expression: Expression) -> NodeTest | NodeComparison:
    """Read a filter that compares a node with a term or with another node.

    Raises:
        CrpConversionError: It is another kind of filter.
    """
    match expression:
        case Comparison(left, operator, right) if operator in _SWAPPED:
            as_written, swapped = cast(Operator, operator), _SWAPPED[operator]
        case _:
            raise CrpConversionError("unsupported filter", type(expression).__name__)
    match left, right:  # the difference of two values against zero compares them
        case Call("minus", (minuend, subtrahend)), LiteralTerm() as zero if _is_zero(zero):
            left, right = minuend, subtrahend
        case LiteralTerm() as zero, Call("minus", (minuend, subtrahend)) if _is_zero(zero):
            left, right = subtrahend, minuend
    match strip_casts(left), strip_casts(right):
        case Variable() as one, Variable() as other if not (_is_text(left) or _is_text(right)):
            return NodeComparison(one, as_written, other, one == left and other == right)
        case (Variable() as one, str() as mid) | (str() as mid, Variable() as one) if operator in (
            "=",
            "!=",
        ) and not (_is_text(left) or _is_text(right)):
            return NodeTest(one, (IsEntity if operator == "=" else IsNotEntity)(Entity(mid=mid)))
        case Variable() as one, LiteralTerm() as value:
            return NodeTest(one, _value_test(as_written, value, left))
        case LiteralTerm() as value, Variable() as one:
            return NodeTest(one, _value_test(swapped, value, right))
        case _:
            raise CrpConversionError("unsupported filter", operator)


def equality(term: str | LiteralTerm) -> Test:
    """Return the test that a node is this term."""
    if isinstance(term, str):
        return IsEntity(Entity(mid=term))
    return _value_test("=", term, compared=None)


def as_group(expression: Expression) -> Group:
    """Return one side of an ``||`` as a group."""
    match expression:
        case Exists(group, False):
            return group
        case And(parts):  # each EXISTS has its own variables
            return Group((), parts)
        case _:
            return Group((), (expression,))


def read_interval(
    absent: Group, present: Group, known: Collection[Node]
) -> tuple[TriplePart, Expression] | None:
    """Read the interval idiom: no such triple, or one whose object passes the comparison."""
    match absent, present:
        case (
            Group((TriplePart(subject, relation, Variable() as nothing),), ()),
            Group(
                (TriplePart(same_subject, same_relation, Variable() as value) as triple,), (test,)
            ),
        ) if (
            (subject, relation) == (same_subject, same_relation)
            and subject in known
            and nothing not in known
            and value not in known
            and isinstance(test, Comparison)
            and value in mentioned_variables(test)
        ):
            return triple, test
        case _:
            return None


def _is_zero(literal: LiteralTerm) -> bool:
    return is_number(literal) and float(literal.text) == 0


def _value_test(operator: Operator, value: LiteralTerm, compared: Expression | None) -> Test:
    if not _is_text(compared) and _is_value(value):
        return Compare(operator, _plain(value))
    if operator != "=":
        raise CrpConversionError("unsupported filter", f"string {operator}")
    if _is_text(compared):
        return TextEquals(value.text)
    if value.datatype not in (None, "string"):
        return Compare(operator, value)
    return TextEquals(value.text, value.language or "")


def _is_text(expression: Expression | None) -> bool:
    return isinstance(expression, Call) and expression.function == "str"


def _is_value(literal: LiteralTerm) -> bool:
    return literal.language is None and (is_date(literal) or is_number(literal))


def _plain(value: LiteralTerm) -> LiteralTerm:
    """Drop a datatype that is clear from the text; RouterKGQA's form marks integers."""
    plain = replace(value, datatype=None)
    same = (is_date(plain), is_number(plain)) == (is_date(value), is_number(value))
    return plain if same and value.datatype != "integer" else value
