"""Convert a SPARQL query to the CRP with the same meaning, or raise an error that says why not.

The triples are a graph of variables and terms. `kbqa.sparql.convert.walk` chooses the topic entity
and the main path; `kbqa.sparql.convert.branches` attaches the rest to it and cuts that into
constraints. Nothing is dropped silently.

Not converted: sub-SELECT, aggregates, arithmetic other than comparing a difference with zero, and
anything that depends on SPARQL's scoping rules.

Source: RouterKGQA, appendix B.
"""

from kbqa.sparql.convert.branches import Branches
from kbqa.sparql.convert.filters import strip_casts
from kbqa.sparql.convert.query_tree import (
    Call,
    Comparison,
    Expression,
    Or,
    SelectTree,
    Variable,
    mentioned_variables,
    parse_select,
)
from kbqa.sparql.convert.walk import Walk, find_main_path
from kbqa.sparql.crp import MAX_ROWS, Crp, Entity, check_depth
from kbqa.sparql.errors import CrpConversionError
from kbqa.sparql.terms import LiteralTerm

_MAX_TRIPLES = 100  # The benchmarks' queries have some twenty at most.


def crp_from_sparql(query: str) -> Crp:
    """Convert a query; the entities of the CRP are mids without names.

    >>> crp_from_sparql("SELECT ?x WHERE { ns:m.019rg5 ns:location.country.capital ?x }").path
    (Hop(relation='location.country.capital', inverse=False),)

    Raises:
        QuerySyntaxError: The query does not parse.
        CrpConversionError: No CRP has the same meaning; `reason` says why.
    """
    tree = parse_select(query)
    if sum(1 for _ in tree.group.all_triples()) > _MAX_TRIPLES:
        raise CrpConversionError("too large", f"more than {_MAX_TRIPLES} triples")
    return _convert(tree, find_main_path(tree))


def _convert(tree: SelectTree, walk: Walk) -> Crp:
    topic = walk.start
    assert isinstance(topic, str)
    differs_from: int | None = None
    language: str | None = None
    filters = []
    for expression in tree.group.filters:
        if differs_from is None and (at := _excluded(expression, tree.answer, walk)) is not None:
            differs_from = at
        elif language is None and (tag := _answer_language(expression, tree.answer)) is not None:
            language = tag
        else:
            filters.append(expression)
    ordered_by = set() if tree.order_by is None else mentioned_variables(tree.order_by)
    branches = Branches(tree.group, walk)
    branches.grow(filters, ordered_by)
    order = None
    # Answers are a set: without a limit, their order says nothing.
    if tree.limit is not None or tree.offset:
        if tree.order_by is None or not tree.limit:
            raise CrpConversionError("unsupported order", f"LIMIT {tree.limit}")
        if max(tree.limit, tree.offset) > MAX_ROWS:
            raise CrpConversionError("unsupported order", f"more than {MAX_ROWS} rows")
        if not tree.distinct and (tree.limit, tree.offset) != (1, 0):
            raise CrpConversionError("unsupported order", "LIMIT of rows that are not DISTINCT")
        if tree.order_by == Call("str", (strip_casts(tree.order_by),)):
            raise CrpConversionError("unsupported order", "ORDER BY letters")
        variable = strip_casts(tree.order_by)
        order = branches.take_order(variable, tree.descending, tree.limit, tree.offset)
    path, constraints = branches.path(), branches.constraints()
    try:
        check_depth(path, constraints)
    except ValueError as error:
        raise CrpConversionError("too large", str(error)) from None
    return Crp(Entity(mid=topic), path, constraints, order, differs_from, language)


def _excluded(expression: Expression, answer: Variable, walk: Walk) -> int | None:
    """Return the position of the node that a filter excludes as an answer, if it is that."""
    match expression:
        case Comparison(left, "!=", right) if left == answer:
            other = right
        case Comparison(left, "!=", right) if right == answer:
            other = left
        case _:
            return None
    inner = walk.nodes[:-1]
    return inner.index(other) if isinstance(other, Variable | str) and other in inner else None


def _answer_language(expression: Expression, answer: Variable) -> str | None:
    """Return the language of the benchmarks' filter on answers, if it is that."""
    tag = Call("lang", (answer,))
    match expression:
        case Or(
            (
                Call("not", (Call("isliteral", (variable,)),)),
                Comparison(untagged, "=", LiteralTerm("")),
                Call("langmatches", (matched, LiteralTerm(language))),
            )
        ) if variable == answer and untagged == tag == matched:
            return language
        case _:
            return None
