"""Convert a SPARQL query to the CRP with the same meaning, or raise an error that says why not.

The triples are a graph of variables and terms. `kbqa.sparql.convert.walk` chooses the topic entity
and the main path; `kbqa.sparql.convert.branches` attaches the rest to it and cuts that into
constraints. Nothing is dropped silently.

`kbqa.sparql.convert.select` reads what the query asks for. Not converted: other sub-SELECTs and
aggregates, arithmetic other than comparing a difference with zero, and anything that depends on
SPARQL's scoping rules.

Source: RouterKGQA, appendix B.
"""

from dataclasses import replace

from kbqa.sparql.convert.branches import Branches
from kbqa.sparql.convert.filters import strip_casts
from kbqa.sparql.convert.query_tree import (
    Call,
    Comparison,
    Expression,
    Or,
    Variable,
    mentioned_variables,
)
from kbqa.sparql.convert.select import Ranking, SelectTree, parse_select
from kbqa.sparql.convert.walk import Walk, find_main_path
from kbqa.sparql.crp import MAX_ROWS, Crp, Entity, Order, check_depth
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
    ranking = tree.ranking
    branches = Branches(tree.group, walk)
    branches.grow(filters, mentioned_variables(ranking.value) if ranking else ())
    order = _take_order(branches, ranking) if ranking else None
    path, constraints = branches.path(), branches.constraints()
    try:
        check_depth(path, constraints)
    except ValueError as error:
        raise CrpConversionError("too large", str(error)) from None
    return Crp(Entity(mid=topic), path, constraints, order, differs_from, language, tree.form)


def _take_order(branches: Branches, ranking: Ranking) -> Order:
    if max(ranking.limit, ranking.offset) > MAX_ROWS:
        raise CrpConversionError("unsupported order", f"more than {MAX_ROWS} rows")
    variable = strip_casts(ranking.value)
    if ranking.value == Call("str", (variable,)):
        raise CrpConversionError("unsupported order", "ORDER BY letters")
    order = branches.take_order(variable, ranking.descending, ranking.limit, ranking.offset)
    return replace(order, ties=ranking.ties, counted=ranking.counted)


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
