"""Convert a SPARQL query to the CRP that means the same, or say by name why there is none.

The triples are a graph of variables and terms. `kbqa.sparql.walk` chooses the topic entity and the
main path; `kbqa.sparql.branches` hangs on it whatever is left, and cuts that into constraints.
Nothing is dropped silently.

Not converted: sub-SELECT, aggregates, arithmetic but for a difference against zero, and what only
SPARQL's scopes can say.

Source: RouterKGQA, appendix B.
"""

from kbqa.sparql.branches import Branches
from kbqa.sparql.constraints import check_depth
from kbqa.sparql.crp import MAX_ROWS, Crp, Entity
from kbqa.sparql.errors import CrpConversionError
from kbqa.sparql.filters import strip_casts
from kbqa.sparql.query_tree import (
    Call,
    Comparison,
    Expression,
    Or,
    SelectTree,
    Variable,
    mentioned_variables,
    parse_select,
)
from kbqa.sparql.terms import Literal
from kbqa.sparql.walk import Walk, find_main_path

_MAX_TRIPLES = 100  # The benchmarks' queries have some twenty at most.


def crp_from_sparql(query: str) -> Crp:
    """Convert a query; its entities come back as mids without names.

    >>> crp_from_sparql("SELECT ?x WHERE { ns:m.019rg5 ns:location.country.capital ?x }").path
    (Hop(relation='location.country.capital', inverse=False),)

    Raises:
        QuerySyntaxError: The query does not parse.
        CrpConversionError: No CRP says the same; `reason` names why.
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
    """Return the position of the main path's node that a filter tells the answer from."""
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
                Comparison(untagged, "=", Literal("")),
                Call("langmatches", (matched, Literal(language))),
            )
        ) if variable == answer and untagged == tag == matched:
            return language
        case _:
            return None
