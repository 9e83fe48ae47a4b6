"""Read a query of the benchmarks' dialect into a small tree of its parts, in reading order.

rdflib parses the query, after `repair_query`; this module unwraps its parse tree, which unlike the
algebra keeps the order of the triples, by which the topic entity is chosen.

Filters are read as tests of one node or comparisons of two. Casts add nothing to the values, so
they are dropped; ``str`` around a variable makes a comparison one of texts.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from kbqa.sparql.crp import (
    Compare,
    Entity,
    IsNode,
    IsNotNode,
    NodeRef,
    Operator,
    Test,
    TextEquals,
    compare_with,
)
from kbqa.sparql.dialect import repair_query
from kbqa.sparql.errors import CrpConversionError, QuerySyntaxError
from kbqa.sparql.terms import XSD_NS, LiteralTerm, resource_id
from kbqa.sparql.values import is_date, is_number

if TYPE_CHECKING:
    from rdflib.plugins.sparql.parserutils import CompValue


_SWAPPED: dict[str, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CASTS = frozenset(("dateTime", "date", "integer", "int", "float", "double", "decimal"))


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, without its question mark."""

    name: str


Node: TypeAlias = Variable | str | LiteralTerm


class TriplePart(NamedTuple):
    """A triple of the query."""

    subject: Node
    relation: str
    object: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied to arguments; a cast has its datatype's name: ``dateTime``."""

    function: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two expressions and the operator between them."""

    left: "Expression"
    operator: str
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Or:
    """Alternatives."""

    alternatives: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class And:
    """Expressions that must all be true, within an `Or`."""

    parts: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """A group that must match, or must not where `negated`."""

    group: "Group"
    negated: bool


Expression: TypeAlias = Variable | str | LiteralTerm | Call | Comparison | Or | And | Exists


@dataclass(frozen=True, slots=True)
class Union:
    """Alternative groups; at least one must match."""

    alternatives: tuple["Group", ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Triples, unions and filters that hold together."""

    parts: tuple[TriplePart | Union, ...]  # in reading order
    filters: tuple[Expression, ...]  # with conjunctions taken apart

    @property
    def triples(self) -> tuple[TriplePart, ...]:
        """The triples outside of unions."""
        return tuple(part for part in self.parts if isinstance(part, TriplePart))

    @property
    def unions(self) -> tuple[Union, ...]:
        """The group's unions."""
        return tuple(part for part in self.parts if isinstance(part, Union))

    def all_triples(self) -> Iterator[TriplePart]:
        """Yield the triples of the group and of its unions, in reading order."""
        for part in self.parts:
            if isinstance(part, Union):
                for alternative in part.alternatives:
                    yield from alternative.all_triples()
            else:
                yield part


@dataclass(frozen=True, slots=True)
class NodeTest:
    """A filter that tests one node."""

    variable: Variable
    test: Test


@dataclass(frozen=True, slots=True)
class NodeComparison:
    """A filter that compares two nodes."""

    left: Variable
    operator: Operator
    right: Variable
    is_plain: bool  # neither side is cast: = and != compare the nodes, not their values

    def swapped(self) -> "NodeComparison":
        """Return the same comparison with the nodes swapped."""
        return NodeComparison(self.right, _SWAPPED[self.operator], self.left, self.is_plain)

    def test(self, right: NodeRef) -> Test:
        """Return it as a test of the left node."""
        if self.is_plain and self.operator in ("=", "!="):
            return (IsNode if self.operator == "=" else IsNotNode)(right)
        return Compare(self.operator, right)


def mentioned_variables(
    part: "Expression | TriplePart | Union | Group", *, into_groups: bool = True
) -> set[Variable]:
    """Collect the variables in an expression or pattern, and in the groups of EXISTS in it."""
    match part:
        case Variable():
            return {part}
        case TriplePart(subject, _, object_):
            return {node for node in (subject, object_) if isinstance(node, Variable)}
        case Comparison(left, _, right):
            inner: tuple[Expression | TriplePart | Union | Group, ...] = (left, right)
        case Call(_, parts) | Or(parts) | And(parts) | Union(parts):
            inner = parts
        case Group(parts, filters):
            inner = (*parts, *filters)
        case Exists(group, _) if into_groups:
            inner = (group,)
        case _:
            return set()
    return {v for each in inner for v in mentioned_variables(each, into_groups=into_groups)}


def substitute(group: Group, terms: Mapping[Variable, Node]) -> Group:
    """Return a group with variables replaced by other terms, at any depth."""

    def node(term: Node) -> Node:
        return terms.get(term, term) if isinstance(term, Variable) else term

    def expression(part: Expression) -> Expression:
        match part:
            case Comparison(left, operator, right):
                return Comparison(expression(left), operator, expression(right))
            case Call(function, arguments):
                return Call(function, tuple(map(expression, arguments)))
            case Or(alternatives):
                return Or(tuple(map(expression, alternatives)))
            case And(parts):
                return And(tuple(map(expression, parts)))
            case Exists(inner, negated):
                return Exists(substitute(inner, terms), negated)
            case _:
                return node(part)

    def pattern(part: TriplePart | Union) -> TriplePart | Union:
        if isinstance(part, Union):
            return Union(tuple(substitute(each, terms) for each in part.alternatives))
        return TriplePart(node(part.subject), part.relation, node(part.object))

    if not terms:
        return group
    return Group(tuple(map(pattern, group.parts)), tuple(map(expression, group.filters)))


def parse_query(query: str) -> "CompValue":
    """Parse a query of any form into rdflib's parse tree."""
    import rdflib
    from pyparsing.exceptions import ParseBaseException
    from rdflib.plugins.sparql.parser import parseQuery

    # Otherwise rdflib rewrites "2004"^^xsd:dateTime and "01" on sight, and logs a traceback each.
    rdflib.NORMALIZE_LITERALS = False
    logging.getLogger("rdflib.term").setLevel(logging.CRITICAL)
    try:
        root: CompValue = parseQuery(repair_query(query))[1]
    except ParseBaseException as error:
        raise QuerySyntaxError(f"not a SPARQL query: {error}") from None
    except RecursionError:
        raise QuerySyntaxError("the query is nested too deeply to be read") from None
    return root


def read_group(group: "CompValue", aside: "list[CompValue] | None" = None) -> Group:
    """Read a group; its sub-selects, optional patterns and VALUES are put aside for the caller."""
    if group.name == "SubSelect":
        if aside is None:
            raise CrpConversionError("sub-select", "within a group")
        aside.append(group)
        return Group((), ())
    parts: list[TriplePart | Union] = []
    filters: list[Expression] = []
    for part in group.part or []:
        match part.name:
            case "TriplesBlock":
                parts += _triples(part)
            case "Filter":
                filters += _conjuncts(part.expr)
            case "GroupOrUnionGraphPattern" if len(part.graph) == 1:
                inner = read_group(part.graph[0], aside)
                if inner.filters and len(group.part) > 1:
                    # They see their own group's variables alone, and would see more out here.
                    raise CrpConversionError("unsupported pattern", "filters in a nested group")
                parts += inner.parts
                filters += inner.filters
            case "GroupOrUnionGraphPattern":
                parts.append(Union(tuple(map(read_group, part.graph))))
            case "OptionalGraphPattern" | "InlineData" if aside is not None:
                aside.append(part)
            case "InlineData":
                filters.append(is_one_of(*read_values(part)))
            case "MinusGraphPattern":
                if (minus := read_group(part.graph)).filters:
                    raise CrpConversionError("unsupported pattern", "MINUS with filters")
                filters.append(Exists(minus, negated=True))
            case name:
                raise CrpConversionError("unsupported pattern", name)
    return Group(tuple(parts), tuple(filters))


def read_values(data: "CompValue") -> tuple[Variable, tuple[Node, ...]]:
    """Read VALUES: the variable, and the terms that it may be."""
    if len(data.var) != 1 or not data.value:
        raise CrpConversionError(
            "unsupported pattern", "VALUES of several variables, or of nothing"
        )
    return Variable(str(data.var[0])), tuple(map(read_node, data.value))


def is_one_of(variable: Variable, terms: Sequence[Node]) -> Expression:
    """Return the filter that VALUES is."""
    equal = tuple(Comparison(variable, "=", term) for term in terms)
    return equal[0] if len(equal) == 1 else Or(equal)


def read_expression(expression: object) -> Expression:
    """Read an expression of a parse tree."""
    node = unwrap(expression)
    name = node_name(node)
    if not isinstance(node, dict) or name == "literal":
        return read_node(node)
    if name == "ConditionalOrExpression":
        return Or(tuple(map(read_expression, (node["expr"], *node["other"]))))
    if name == "ConditionalAndExpression":
        return And(tuple(_conjuncts(node)))
    if name == "AdditiveExpression" and list(node["op"]) == ["-"]:
        return Call("minus", (read_expression(node["expr"]), *map(read_expression, node["other"])))
    if name == "RelationalExpression":
        if "IN" in node["op"]:
            raise CrpConversionError("unsupported expression", str(node["op"]))
        return Comparison(
            read_expression(node["expr"]), str(node["op"]), read_expression(node["other"])
        )
    if name in ("Builtin_EXISTS", "Builtin_NOTEXISTS"):
        return Exists(read_group(node["graph"]), negated=name == "Builtin_NOTEXISTS")
    if name == "Function":
        function = str(node["iri"]).removeprefix(XSD_NS)
        return Call(function, tuple(map(read_expression, node["expr"])))
    if name == "UnaryNot":
        return Call("not", (read_expression(node["expr"]),))
    if name == "UnaryMinus":
        return _negative(read_expression(node["expr"]))
    if name.startswith("Builtin_"):
        return Call(
            name.removeprefix("Builtin_").lower(), tuple(map(read_expression, node.values()))
        )
    raise CrpConversionError("unsupported expression", name)


def unwrap(expression: object) -> object:
    """Unwrap the grammar's layers that hold a single thing."""
    while (
        isinstance(expression, dict)
        and list(expression) == ["expr"]
        and not node_name(expression).startswith("Unary")
    ):
        expression = expression["expr"]
    return expression


def node_name(node: object) -> str:
    """Return the grammar's name of a node of a parse tree; empty for other things."""
    return str(getattr(node, "name", ""))


def read_node(term: object) -> Node:
    """Read a variable or term of a parse tree."""
    from rdflib import term as rdf

    if isinstance(term, rdf.Variable):
        return Variable(str(term))
    if isinstance(term, rdf.BNode):
        return Variable(f"_:{term}")  # no name that a query can give a variable
    if isinstance(term, rdf.URIRef):
        return resource_id(str(term))
    if isinstance(term, dict) and node_name(term) == "pname":
        raise QuerySyntaxError(f"the prefix {dict(term).get('prefix', '')}: is not declared")
    if isinstance(term, dict) and node_name(term) == "literal":
        parts = dict(term)  # a CompValue's own get() returns the key if there is no value
        return _literal(str(parts["string"]), parts.get("datatype"), parts.get("lang"))
    if isinstance(term, rdf.Literal):
        return _literal(str(term), term.datatype, term.language)
    raise CrpConversionError("unsupported term", type(term).__name__)


def strip_casts(expression: Expression) -> Expression:
    """Return the expression inside any casts."""
    match expression:
        case Call(function, (argument,)) if function in _CASTS or function == "str":
            return strip_casts(argument)
        case _:
            return expression


def read_comparison(expression: Expression) -> NodeTest | NodeComparison:
    """Read a filter that compares a node with a term or with another node."""
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
            return NodeTest(one, compare_with(as_written, Entity(mid=mid)))
        case Variable() as one, LiteralTerm() as value:
            return NodeTest(one, _value_test(as_written, value, left))
        case LiteralTerm() as value, Variable() as one:
            return NodeTest(one, _value_test(swapped, value, right))
        case _:
            raise CrpConversionError("unsupported filter", operator)


def equality(term: str | LiteralTerm) -> Test:
    """Return the test that a node is this term."""
    if isinstance(term, str):
        return compare_with("=", Entity(mid=term))
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


def _triples(block: "CompValue") -> Iterator[TriplePart]:
    for run in block.triples:
        terms = list(run)
        for subject, path, object_ in zip(terms[::3], terms[1::3], terms[2::3], strict=True):
            yield TriplePart(read_node(subject), _relation(path), read_node(object_))


def _relation(path: "CompValue") -> str:
    """Take the relation out of the grammar's property path."""
    while (name := node_name(path)).startswith("Path"):
        parts = path.part if isinstance(path.part, list) else [path.part]
        if path.mod or len(parts) > 1 or name in ("PathEltOrInverse", "PathNegatedPropertySet"):
            raise CrpConversionError("property path")
        path = parts[0]
    node = read_node(path)
    if not isinstance(node, str):
        raise CrpConversionError("free relation")
    return node


def _conjuncts(expression: object) -> Iterator[Expression]:
    match unwrap(expression):
        case {"expr": first, "other": list(others)} as node if (
            node_name(node) == "ConditionalAndExpression"
        ):
            for part in (first, *others):
                yield from _conjuncts(part)
        case node:
            yield read_expression(node)


def _negative(number: Expression) -> LiteralTerm:
    if not isinstance(number, LiteralTerm) or number.text.startswith("-"):
        raise CrpConversionError("unsupported expression", "minus")
    return LiteralTerm(f"-{number.text}", number.datatype)


def _literal(text: str, datatype: object, language: object) -> LiteralTerm:
    return LiteralTerm(
        text,
        None if datatype is None else str(datatype).removeprefix(XSD_NS),
        None if language is None else str(language),
    )


def _is_zero(literal: LiteralTerm) -> bool:
    return is_number(literal) and float(literal.text) == 0


def _value_test(operator: Operator, value: LiteralTerm, compared: Expression | None) -> Test:
    is_value = value.language is None and (is_date(value) or is_number(value))
    if is_value and not _is_text(compared):
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


def _plain(value: LiteralTerm) -> LiteralTerm:
    """Drop a datatype that is clear from the text; RouterKGQA's form marks integers."""
    plain = replace(value, datatype=None)
    same = (is_date(plain), is_number(plain)) == (is_date(value), is_number(value))
    return plain if same and value.datatype != "integer" else value
