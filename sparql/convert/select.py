"""Read what a query asks for: its answers, a number, or whether there are any.

A sub-select that only passes its column on is unwrapped. An optional name of the answer is
dropped, and so is a limit that only bounds a server's page. VALUES of one term puts it into the
patterns. A sub-select of the largest or smallest value over the same patterns is an order with
ties. A sum or average of a variable counts every binding, as in SPARQL; that of a sub-select of the
largest number for each answer is the one of answers.

Source: the queries of GrailQA, GraphQuestions and Free917.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kbqa.sparql.convert.query_tree import (
    Call,
    Comparison,
    Expression,
    Group,
    Node,
    TriplePart,
    Variable,
    is_one_of,
    mentioned_variables,
    node_name,
    parse_query,
    read_expression,
    read_group,
    read_node,
    read_values,
    strip_casts,
    substitute,
    unwrap,
)
from kbqa.sparql.crp import Form
from kbqa.sparql.errors import CrpConversionError
from kbqa.sparql.terms import NAME, LiteralTerm
from kbqa.sparql.values import NUMBER_SHAPE

if TYPE_CHECKING:
    from rdflib.plugins.sparql.parserutils import CompValue

_PAGE_ROWS = 1000  # a limit from here on without an order bounds a page; the question has none


@dataclass(frozen=True, slots=True)
class Ranking:
    """An order of the answers by a value, like `kbqa.sparql.crp.Order`."""

    value: Expression
    descending: bool
    limit: int
    offset: int = 0
    ties: bool = False
    counted: bool = False


@dataclass(frozen=True, slots=True)
class SelectTree:
    """The parts of a query."""

    form: Form
    answer: Variable
    group: Group
    ranking: Ranking | None = None
    value: Variable | None = None  # whose numbers are added up


def parse_select(query: str) -> SelectTree:
    """Read a query."""
    root = parse_query(query)
    if root.datasetClause:
        raise CrpConversionError("unsupported pattern", "FROM")
    if root.name == "AskQuery":
        return _ask(root)
    if root.name != "SelectQuery":
        raise CrpConversionError("not a question", root.name)
    return _select(root)


def _ask(root: "CompValue") -> SelectTree:
    """Read ASK; its answer is ``?x`` if there is one, else the last node of a triple."""
    group = _patterns(root.where, Variable("x")).group
    variables = [v for t in group.all_triples() for v in t[::2] if isinstance(v, Variable)]
    answer = Variable("x")
    if variables and answer not in variables:
        answer = variables[-1]
    if not variables:  # a fact: what its relation leads to is compared with its object
        if not isinstance(triple := next(iter(group.parts), None), TriplePart):
            raise CrpConversionError("no topic entity", "ASK of no triple")
        fact = TriplePart(triple.subject, triple.relation, answer)
        same = Comparison(answer, "=", triple.object)
        group = Group((fact, *group.parts[1:]), (*group.filters, same))
    return SelectTree("ask", answer, _without_certain(group, None))


def _select(root: "CompValue") -> SelectTree:
    if root.having:
        raise CrpConversionError("aggregate", "HAVING")
    if root.valuesClause:
        raise CrpConversionError("unsupported pattern", "VALUES after the pattern")
    column, *names = _columns(root)
    if (aggregate := _read_aggregate(root, column)) is not None:
        return aggregate
    clauses = {name: int(number) for name, number in (root.limitoffset or {}).items()}
    limit, offset = clauses.get("limit"), clauses.get("offset", 0)
    if (inner := _only_sub_select(root.where)) is not None and not root.orderby:
        if names or offset or (limit is not None and limit < _PAGE_ROWS):
            raise CrpConversionError("sub-select", "what it returns is not passed on as it is")
        return _unwrapped(_select(inner), column, is_set=inner.modifier == "DISTINCT")
    patterns = _patterns(root.where, column)
    if not set(names) <= set(patterns.names):  # an optional name says nothing
        raise CrpConversionError("projection", "the answer must be exactly one variable")
    form: Form = "select"
    match column:
        case Variable():
            answer = column
        case Call("count", (Variable() as answer,)):
            form = "count bindings"
        case Call("count distinct", (Variable() as answer,)):
            form = "count"
        case _:
            raise CrpConversionError("projection", "the answer must be one variable or its count")
    ranking = patterns.extreme
    if root.groupby or root.orderby:
        if ranking is not None or form != "select":
            raise CrpConversionError("aggregate", "with another order")
        ranking = _ranking(root, answer, limit, offset)
    elif form == "select" and (offset or (limit is not None and limit < _PAGE_ROWS)):
        raise CrpConversionError("unsupported order", f"LIMIT {limit} without ORDER BY")
    if ranking is not None and form != "select":
        raise CrpConversionError("aggregate", "a count of ordered answers")
    return SelectTree(form, answer, _without_certain(patterns.group, ranking), ranking)


def _read_aggregate(root: "CompValue", column: Expression) -> SelectTree | None:
    """Read a query for a sum, an average or a difference; None if it is another one."""
    match column:
        case Call("sum" | "avg" | "sum distinct" | "avg distinct" as function, (argument,)):
            form: Form = "sum" if function.startswith("sum") else "average"
            is_each = function.endswith("distinct")
        case Call("minus", (Call("max", (argument,)), Call("min", (other,)))) if argument == other:
            form, is_each = "difference", True
        case _:
            return None
    if len(root.projection) > 1 or root.groupby or root.orderby or root.limitoffset:
        raise CrpConversionError("aggregate", "with other columns, groups or an order")
    variable, where = _number_in(argument), root.where
    answer = variable
    if (inner := _only_sub_select(where)) is not None:
        where, is_each = inner.where, is_each or bool(inner.groupby)
        answer, variable = _largest_of_each(inner, variable)
    group, names, extreme = _patterns(where, answer)
    if names or extreme:
        raise CrpConversionError("aggregate", "with optional or largest values")
    shape = Call("regex", (Call("str", (variable,)), LiteralTerm(NUMBER_SHAPE)))
    group = Group(group.parts, tuple(each for each in group.filters if each != shape))
    if not is_each:
        form = "sum bindings" if form == "sum" else "average bindings"
    return SelectTree(form, answer, _without_certain(group, None), value=variable)


def _largest_of_each(inner: "CompValue", named: Variable) -> tuple[Variable, Variable]:
    """Read a sub-select of answers with all their numbers or the largest: an answer, a number."""
    columns = [(each.var or each.evar, each.expr) for each in inner.projection or ()]
    groups = list(map(_aggregate, inner.groupby.condition)) if inner.groupby else []
    is_plain = not (inner.having or inner.orderby or inner.limitoffset or inner.modifier)
    match [(read_node(name), number and _aggregate(number)) for name, number in columns]:
        case [(Variable() as answer, None), (name, number)] if is_plain and name == named:
            match number, groups:
                case Call("max", (largest,)), [group] if group == answer:
                    return answer, _number_in(largest)
                case Call(), []:
                    return answer, _number_in(number)
                case None, []:
                    return answer, named
    raise CrpConversionError("sub-select", "of numbers, other than all or the largest of each")


def _number_in(expression: Expression) -> Variable:
    """Return the variable whose number is meant: cast, and perhaps only if it is one."""
    match expression:
        case Call("if", (Call("regex", (_, LiteralTerm(shape))), number, _)) if (
            shape == NUMBER_SHAPE
        ):
            expression = number
    variable = strip_casts(expression)
    if not isinstance(variable, Variable):
        raise CrpConversionError("aggregate", "of what is no variable")
    return variable


def _unwrapped(inner: SelectTree, column: Expression, *, is_set: bool) -> SelectTree:
    """Read a query that only passes on, or counts, the column of a sub-select."""
    match column:
        case Variable():
            return inner
        case Call("count" | "count distinct" as function, (Variable(),)) if inner.form == "select":
            if inner.ranking is not None:
                raise CrpConversionError("aggregate", "a count of ordered answers")
            is_distinct = is_set or function == "count distinct"
            return replace(inner, form="count" if is_distinct else "count bindings")
        case _:
            raise CrpConversionError("sub-select", "its column is not passed on")


def _only_sub_select(group: "CompValue") -> "CompValue | None":
    """Return the sub-select that is alone in a group, if there is one."""
    while node_name(group) != "SubSelect":
        match group.part or ():
            case [part] if node_name(part) == "GroupOrUnionGraphPattern" and len(part.graph) == 1:
                group = part.graph[0]
            case _:
                return None
    return group


def _columns(root: "CompValue") -> list[Expression]:
    """Read the projected columns; a count is a call of ``count`` or ``count distinct``."""
    if not root.projection:
        raise CrpConversionError("projection", "SELECT *")
    return [
        read_node(item.var) if item.var is not None else _aggregate(item.expr)
        for item in root.projection
    ]


def _aggregate(expression: object) -> Expression:
    """Read an aggregate of one variable as a call of its name, or another expression."""
    node = unwrap(expression)
    if (
        isinstance(node, dict)
        and node_name(node) == "AdditiveExpression"
        and [*node["op"]] == ["-"]
    ):
        return Call("minus", tuple(map(_aggregate, (node["expr"], *node["other"]))))
    if not node_name(node).startswith("Aggregate_"):
        return read_expression(node)
    parts = dict(node)  # type: ignore[call-overload]
    name = node_name(node).removeprefix("Aggregate_").lower()
    value = unwrap(parts["vars"])
    if value == "*":
        raise CrpConversionError("aggregate", "COUNT(*)")
    return Call(f"{name} distinct" if parts["distinct"] else name, (read_expression(value),))


def _ranking(root: "CompValue", answer: Variable, limit: int | None, offset: int) -> Ranking | None:
    """Read ORDER BY; None without a limit, as the order of a set says nothing."""
    if root.groupby and list(map(_aggregate, root.groupby.condition)) != [answer]:
        raise CrpConversionError("aggregate", "GROUP BY anything but the answer")
    if not root.orderby:
        raise CrpConversionError("aggregate", "GROUP BY without ORDER BY")
    condition, *others = root.orderby.condition
    if others:
        raise CrpConversionError("order by several keys")
    descending = False
    if node_name(condition) == "OrderCondition":
        descending = str(condition.order).upper() == "DESC"
        condition = condition["expr"]
    value = _aggregate(condition)
    counted = False
    match value:
        case Call("count distinct", (counts,)):
            value, counted = counts, True
        case Call("count" | "sum" | "avg" | "min" | "max" | "sample", _):
            raise CrpConversionError("aggregate", "ORDER BY anything but COUNT(DISTINCT)")
    if root.groupby and not counted:
        raise CrpConversionError("aggregate", "GROUP BY without an aggregate")
    if limit is None and not offset:
        return None
    if not limit:
        raise CrpConversionError("unsupported order", f"LIMIT {limit}")
    if not (root.modifier == "DISTINCT" or root.groupby) and (limit, offset) != (1, 0):
        raise CrpConversionError("unsupported order", "LIMIT of rows that are not DISTINCT")
    return Ranking(value, descending, limit, offset, counted=counted)


class _Patterns(NamedTuple):
    """The patterns of a query that must match, and its other clauses."""

    group: Group
    names: Sequence[Variable]  # of optional names
    extreme: Ranking | None  # from a sub-select of the largest or smallest value


def _patterns(where: "CompValue", column: Expression) -> _Patterns:
    """Read a query's patterns; its column stays a variable even if VALUES binds it."""
    aside: list[CompValue] = []
    group = read_group(where, aside)
    names: list[Variable] = []
    terms: dict[Variable, Node] = {}
    extremes = []
    for part in aside:
        match part.name:
            case "InlineData":
                variable, values = read_values(part)
                if len(values) == 1 and variable not in {*terms, *mentioned_variables(column)}:
                    terms[variable] = values[0]
                else:
                    group = Group(group.parts, (*group.filters, is_one_of(variable, values)))
            case "OptionalGraphPattern":
                names.append(_optional_name(part, group))
            case _:
                extremes.append(part)
    group = substitute(group, terms)
    if not extremes:
        return _Patterns(group, names, None)
    if len(extremes) > 1:
        raise CrpConversionError("sub-select", "several in one group")
    return _Patterns(group, names, _extreme(extremes[0], group))


def _optional_name(part: "CompValue", group: Group) -> Variable:
    """Return the variable of ``OPTIONAL { ?x type.object.name ?name }``, which is used nowhere."""
    match read_group(part.graph):
        case Group((TriplePart(Variable(), relation, Variable() as name),), ()) if (
            relation == NAME and name not in mentioned_variables(group)
        ):
            return name
        case _:
            raise CrpConversionError("unsupported pattern", "OPTIONAL other than a name")


def _extreme(sub_select: "CompValue", around: Group) -> Ranking:
    """Read a sub-select of the largest or smallest value over the patterns around it."""
    if sub_select.groupby or sub_select.having or sub_select.orderby or sub_select.limitoffset:
        raise CrpConversionError("sub-select", "other than of a largest or smallest value")
    if len(sub_select.projection or ()) != 1 or sub_select.projection[0].evar is None:
        raise CrpConversionError("sub-select", "within a group")
    column = sub_select.projection[0]
    match _aggregate(column.expr), read_node(column.evar):
        case Call("max" | "min" as function, (Variable() as value,)), Variable() as name:
            patterns = _patterns(sub_select.where, value)
            if patterns.extreme or not _is_same(patterns.group, around, {value: name}):
                raise CrpConversionError("sub-select", f"{function.upper()} over other patterns")
            return Ranking(name, descending=function == "max", limit=1, ties=True)
        case _:
            raise CrpConversionError("sub-select", "other than of a largest or smallest value")


def _is_same(inner: Group, outer: Group, known: Mapping[Variable, Variable]) -> bool:
    """Return whether two groups differ only in the names of variables."""
    names: dict[Variable, Node] = dict(known)
    for mine, other in zip(inner.triples, outer.triples, strict=False):
        for one, two in ((mine.subject, other.subject), (mine.object, other.object)):
            if isinstance(one, Variable):
                names.setdefault(one, two)
    renamed = substitute(inner, names)
    return (
        len(set(names.values())) == len(names)
        and renamed.parts == outer.parts
        and set(map(_unordered, renamed.filters)) == set(map(_unordered, outer.filters))
    )


def _unordered(expression: Expression) -> object:
    match expression:
        case Comparison(left, "!=", right):
            return frozenset((left, right))
        case _:
            return expression


def _without_certain(group: Group, ranking: Ranking | None) -> Group:
    """Drop the filters by which things differ that always do."""
    # GrailQA demands that any two nodes of a query differ, be they entities or numbers.
    resources = {triple.subject for triple in group.triples}
    values = {ranking.value} if ranking is not None else set()
    for expression in group.filters:
        if isinstance(expression, Comparison) and expression.operator != "!=":
            sides = strip_casts(expression.left), strip_casts(expression.right)
            values |= {*sides} if any(isinstance(side, LiteralTerm) for side in sides) else set()

    def is_value(term: Expression) -> bool:
        return isinstance(term, LiteralTerm) or term in values

    def is_resource(term: Expression) -> bool:
        return isinstance(term, str) or term in resources

    def is_certain(expression: Expression) -> bool:
        match expression:
            case Comparison(str() | LiteralTerm() as left, "!=", str() | LiteralTerm() as right):
                return left != right
            case Comparison(left, "!=", right):
                return (is_value(left) and is_resource(right)) or (
                    is_value(right) and is_resource(left)
                )
            case _:
                return False

    return Group(group.parts, tuple(f for f in group.filters if not is_certain(f)))
