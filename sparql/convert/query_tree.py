"""Read a SELECT query of the benchmarks' dialect into a small tree of its parts, in reading order.

A real parser does the reading (rdflib's, after `repair_query`); this module only unwraps its parse
tree. The parse tree is used rather than the algebra because it keeps the order of the triples, by
which the topic entity is chosen. What no CRP can express is refused with a `CrpConversionError`
whose reason names it.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kbqa.sparql.errors import CrpConversionError, QuerySyntaxError
from kbqa.sparql.queries.dialect import repair_query
from kbqa.sparql.terms import XSD_NS, LiteralTerm, resource_id

if TYPE_CHECKING:
    from rdflib.plugins.sparql.parserutils import CompValue


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
    """Groups of which at least one must match."""

    alternatives: tuple["Group", ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Triples, unions and filters that hold together.

    Attributes:
        parts: Triples and unions, in reading order.
        filters: With conjunctions taken apart.
    """

    parts: tuple[TriplePart | Union, ...]
    filters: tuple[Expression, ...]

    @property
    def triples(self) -> tuple[TriplePart, ...]:
        """The group's own triples, without those of its unions."""
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
class SelectTree:
    """A SELECT of one variable.

    Attributes:
        answer: The projected variable.
        order_by: What the rows are sorted by; None if they are not.
        limit: How many rows are kept; None for all.
        offset: How many rows are skipped first.
        distinct: Each row counts once.
    """

    answer: Variable
    group: Group
    order_by: Expression | None
    descending: bool
    limit: int | None
    offset: int
    distinct: bool


def mentioned_variables(
    part: "Expression | TriplePart | Union | Group", *, into_groups: bool = True
) -> set[Variable]:
    """Collect the variables in an expression or pattern.

    Args:
        part: Where to look.
        into_groups: Look into the groups of EXISTS as well.
    """
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


def parse_select(query: str) -> SelectTree:
    """Read a query.

    Raises:
        QuerySyntaxError: It does not parse.
        CrpConversionError: It has a construct that no CRP can express.
    """
    root = parse_query(query)
    if root.name != "SelectQuery":
        raise CrpConversionError("not a SELECT", root.name)
    if root.groupby or root.having:
        raise CrpConversionError("aggregate", "GROUP BY or HAVING")
    if root.datasetClause:
        raise CrpConversionError("unsupported pattern", "FROM")
    if root.valuesClause:
        raise CrpConversionError("unsupported pattern", "VALUES")
    projection = [item.var for item in root.projection or []]
    if len(projection) != 1 or projection[0] is None:
        raise CrpConversionError("projection", "the answer must be exactly one plain variable")
    order_by, descending = _order(root)
    limit, offset = _slice(root)
    return SelectTree(
        answer=Variable(str(projection[0])),
        group=_group(root.where),
        order_by=order_by,
        descending=descending,
        limit=limit,
        offset=offset,
        distinct=root.modifier == "DISTINCT",
    )


def parse_query(query: str) -> "CompValue":
    """Parse a query of any form into rdflib's parse tree.

    Raises:
        QuerySyntaxError: It does not parse.
    """
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


def _order(root: "CompValue") -> tuple[Expression | None, bool]:
    if not root.orderby:
        return None, False
    condition, *others = root.orderby.condition
    if others:
        raise CrpConversionError("order by several keys")
    if _name(condition) == "OrderCondition":
        return _expression(condition["expr"]), str(condition.order).upper() == "DESC"
    return _expression(condition), False


def _slice(root: "CompValue") -> tuple[int | None, int]:
    clauses = dict(root.limitoffset or {})
    limit, offset = clauses.get("limit"), clauses.get("offset")
    return None if limit is None else int(limit), 0 if offset is None else int(offset)


def _group(group: "CompValue") -> Group:
    if group.name == "SubSelect":
        raise CrpConversionError("sub-select")
    parts: list[TriplePart | Union] = []
    filters: list[Expression] = []
    for part in group.part or []:
        match part.name:
            case "TriplesBlock":
                parts += _triples(part)
            case "Filter":
                filters += _conjuncts(part.expr)
            case "GroupOrUnionGraphPattern" if len(part.graph) == 1:
                inner = _group(part.graph[0])
                if inner.filters and len(group.part) > 1:
                    # They see their own group's variables alone, and would see more out here.
                    raise CrpConversionError("unsupported pattern", "filters in a nested group")
                parts += inner.parts
                filters += inner.filters
            case "GroupOrUnionGraphPattern":
                parts.append(Union(tuple(map(_group, part.graph))))
            case name:
                raise CrpConversionError("unsupported pattern", name)
    return Group(tuple(parts), tuple(filters))


def _triples(block: "CompValue") -> Iterator[TriplePart]:
    for run in block.triples:
        terms = list(run)
        for subject, path, object_ in zip(terms[::3], terms[1::3], terms[2::3], strict=True):
            yield TriplePart(_node(subject), _relation(path), _node(object_))


def _relation(path: "CompValue") -> str:
    """Take the relation out of what the grammar holds for a property path."""
    while (name := _name(path)).startswith("Path"):
        parts = path.part if isinstance(path.part, list) else [path.part]
        if path.mod or len(parts) > 1 or name in ("PathEltOrInverse", "PathNegatedPropertySet"):
            raise CrpConversionError("property path")
        path = parts[0]
    node = _node(path)
    if not isinstance(node, str):
        raise CrpConversionError("free relation")
    return node


def _conjuncts(expression: object) -> Iterator[Expression]:
    match _unwrap(expression):
        case {"expr": first, "other": list(others)} as node if (
            _name(node) == "ConditionalAndExpression"
        ):
            for part in (first, *others):
                yield from _conjuncts(part)
        case node:
            yield _expression(node)


def _expression(expression: object) -> Expression:
    node = _unwrap(expression)
    name = _name(node)
    if not isinstance(node, dict) or name == "literal":
        return _node(node)
    if name == "ConditionalOrExpression":
        return Or(tuple(map(_expression, (node["expr"], *node["other"]))))
    if name == "ConditionalAndExpression":
        return And(tuple(_conjuncts(node)))
    if name == "AdditiveExpression" and list(node["op"]) == ["-"]:
        return Call("minus", (_expression(node["expr"]), *map(_expression, node["other"])))
    if name == "RelationalExpression":
        if "IN" in node["op"]:
            raise CrpConversionError("unsupported expression", str(node["op"]))
        return Comparison(_expression(node["expr"]), str(node["op"]), _expression(node["other"]))
    if name in ("Builtin_EXISTS", "Builtin_NOTEXISTS"):
        return Exists(_group(node["graph"]), negated=name == "Builtin_NOTEXISTS")
    if name == "Function":
        function = str(node["iri"]).removeprefix(XSD_NS)
        return Call(function, tuple(map(_expression, node["expr"])))
    if name == "UnaryNot":
        return Call("not", (_expression(node["expr"]),))
    if name == "UnaryMinus":
        return _negative(_expression(node["expr"]))
    if name.startswith("Builtin_"):
        return Call(name.removeprefix("Builtin_").lower(), tuple(map(_expression, node.values())))
    raise CrpConversionError("unsupported expression", name)


def _negative(number: Expression) -> LiteralTerm:
    if not isinstance(number, LiteralTerm) or number.text.startswith("-"):
        raise CrpConversionError("unsupported expression", "minus")
    return LiteralTerm(f"-{number.text}", number.datatype)


def _unwrap(expression: object) -> object:
    """Return what is inside the grammar's layers that hold a single thing."""
    while (
        isinstance(expression, dict)
        and list(expression) == ["expr"]
        and not _name(expression).startswith("Unary")
    ):
        expression = expression["expr"]
    return expression


def _name(node: object) -> str:
    return str(getattr(node, "name", ""))


def _node(term: object) -> Node:
    from rdflib import term as rdf

    if isinstance(term, rdf.Variable):
        return Variable(str(term))
    if isinstance(term, rdf.BNode):
        return Variable(f"_:{term}")  # no name that a query can give a variable
    if isinstance(term, rdf.URIRef):
        return resource_id(str(term))
    if isinstance(term, dict) and _name(term) == "pname":
        raise QuerySyntaxError(f"the prefix {dict(term).get('prefix', '')}: is not declared")
    if isinstance(term, dict) and _name(term) == "literal":
        parts = dict(term)  # a CompValue's own get() returns the key if there is no value
        return _literal(str(parts["string"]), parts.get("datatype"), parts.get("lang"))
    if isinstance(term, rdf.Literal):
        return _literal(str(term), term.datatype, term.language)
    raise CrpConversionError("unsupported term", type(term).__name__)


def _literal(text: str, datatype: object, language: object) -> LiteralTerm:
    return LiteralTerm(
        text,
        None if datatype is None else str(datatype).removeprefix(XSD_NS),
        None if language is None else str(language),
    )
