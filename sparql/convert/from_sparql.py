"""Convert a SPARQL query to the CRP with the same meaning, or raise an error that says why not.

`select` reads what the query asks for, `query_tree` its patterns; `branches` cuts them into a main
path and constraints. Nothing is dropped silently. Not converted: sub-SELECTs and aggregates other
than those that `select` names, arithmetic other than comparing a difference with zero, and anything
that depends on SPARQL's scoping rules.

An s-expression, the logical form of GrailQA and others, is written as SPARQL first:

    (ARGMAX (AND location.country (JOIN location.location.containedby m.02j9z)) geo.area)

Source: RouterKGQA, appendix B; Gu et al., Beyond I.I.D.: Three Levels of Generalization for
Question Answering on Knowledge Bases, 2021, §3.1.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import TypeAlias

from kbqa.sparql.convert.branches import Branches, QueryWalk, find_main_path
from kbqa.sparql.convert.query_tree import (
    Call,
    Comparison,
    Expression,
    Or,
    Variable,
    mentioned_variables,
)
from kbqa.sparql.convert.select import SelectTree, parse_select
from kbqa.sparql.crp import Crp, Entity, check_depth
from kbqa.sparql.errors import CrpConversionError, QuerySyntaxError
from kbqa.sparql.terms import TYPE, LiteralTerm, is_mid

SExpression: TypeAlias = "str | tuple[SExpression, ...]"

_MAX_TRIPLES = 100  # The benchmarks' queries have some twenty at most.
_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ID = re.compile(r"[a-z_][\w.]*")
_LITERAL = re.compile(r"([^^]+)\^\^http://www\.w3\.org/2001/XMLSchema#(\w+)")
_ANYTHING = "common.topic"  # the class of every entity
_ANSWER = "?x"
_DEEPEST = 100  # brackets in each other; GrailQA's expressions have under ten


def crp_from_sparql(query: str) -> Crp:
    """Convert a query; the entities of the CRP are mids without names.

    Raises:
        QuerySyntaxError: The query does not parse.
        CrpConversionError: No CRP has the same meaning; `reason` says why.
    """
    tree = parse_select(query)
    if sum(1 for _ in tree.group.all_triples()) > _MAX_TRIPLES:
        raise CrpConversionError("too large", f"more than {_MAX_TRIPLES} triples")
    return _convert(tree, find_main_path(tree))


def _convert(tree: SelectTree, walk: QueryWalk) -> Crp:
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
    elsewhere = [ranking.value] if ranking else [] if tree.value is None else [tree.value]
    branches.grow(filters, {each for part in elsewhere for each in mentioned_variables(part)})
    order = branches.take_order(ranking) if ranking else None
    value = None if tree.value is None else branches.reference(tree.value)
    path, constraints = branches.path(), branches.constraints()
    try:
        check_depth(path, constraints)
    except ValueError as error:
        raise CrpConversionError("too large", str(error)) from None
    topic_entity, form = Entity(mid=topic), tree.form
    return Crp(topic_entity, path, constraints, order, differs_from, language, form, value)


def _excluded(expression: Expression, answer: Variable, walk: QueryWalk) -> int | None:
    """Return the position of the node that a filter excludes as an answer, if it does that."""
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


def sparql_from_s_expression(text: str) -> str:
    """Write an s-expression as a query.

    Raises:
        QuerySyntaxError: The brackets do not match.
        CrpConversionError: It has a function that is not read.
    """
    tree = _read(text)
    writer = _TripleWriter()
    match tree:
        case ("COUNT", of):
            select, order = f"SELECT (COUNT(DISTINCT {_ANSWER}) AS ?count)", ""
            triples = writer.members(of, _ANSWER)
        case ("ARGMAX" | "ARGMIN" as function, of, relation):
            value = writer.variable()
            select = f"SELECT DISTINCT {_ANSWER}"
            order = f" ORDER BY {'DESC' if function == 'ARGMAX' else 'ASC'}({value}) LIMIT 1"
            triples = [*writer.members(of, _ANSWER), *writer.step(relation, _ANSWER, value)]
        case _:
            select, order = f"SELECT DISTINCT {_ANSWER}", ""
            triples = writer.members(tree, _ANSWER)
    return f"{select} WHERE {{ {' '.join(triples)} }}{order}"


class _TripleWriter:
    """Writes the triples of expressions, with a new variable for each node."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def variable(self) -> str:
        return f"?y{next(self._numbers)}"

    def members(self, of: SExpression, node: str) -> list[str]:
        match of:
            case str():
                if is_mid(of):
                    return [f"VALUES {node} {{ ns:{of} }}"]
                return [] if of == _ANYTHING else [f"{node} ns:{TYPE} ns:{_id(of)} ."]
            case ("AND", first, second):
                return [*self.members(first, node), *self.members(second, node)]
            case ("JOIN", relation, end):
                term = _term(end)
                if term is not None:
                    return self.step(relation, node, term)
                other = self.variable()
                return [*self.step(relation, node, other), *self.members(end, other)]
            case (str() as function, relation, str() as end) if function in _COMPARISONS:
                value = self.variable()
                test = f"FILTER ({value} {_COMPARISONS[function]} {_term(end)})"
                return [*self.step(relation, node, value), test]
        raise CrpConversionError("s-expression", f"{' '.join(map(str, of))} cannot be read")

    def step(self, relation: SExpression, start: str, end: str) -> list[str]:
        """Write a relation, or a chain of relations, between two nodes."""
        match relation:
            case str():
                return [f"{start} ns:{_id(relation)} {end} ."]
            case ("R", inner):
                return self.step(inner, end, start)
            case ("JOIN", first, second):
                middle = self.variable()
                return [*self.step(first, start, middle), *self.step(second, middle, end)]
        raise CrpConversionError(
            "s-expression", f"{' '.join(map(str, relation))} is not a relation"
        )


def _term(text: SExpression) -> str | None:
    """Return an entity or a literal as a term; None for anything else."""
    if not isinstance(text, str):
        return None
    if is_mid(text):
        return f"ns:{text}"
    literal = _LITERAL.fullmatch(text)
    if literal is not None:
        return f'"{literal[1]}"^^xsd:{literal[2]}'
    return None if _ID.fullmatch(text) else f'"{text}"'


def _id(text: str) -> str:
    if _ID.fullmatch(text) is None:
        raise CrpConversionError("s-expression", f"{text} is not an id")
    return text


def _read(text: str) -> SExpression:
    tokens = iter(_TOKEN.findall(text))
    tree = _expression(next(tokens, ""), tokens)
    if next(tokens, None) is not None:
        raise QuerySyntaxError(f"not an s-expression, there is more behind its end: {text}")
    return tree


def _expression(token: str, tokens: Iterator[str], depth: int = 0) -> SExpression:
    if depth > _DEEPEST:
        raise QuerySyntaxError(f"not an s-expression: more than {_DEEPEST} brackets in each other")
    if token != "(":
        if token in ("", ")"):
            raise QuerySyntaxError("not an s-expression: a bracket or a word is missing")
        return token
    inner: list[SExpression] = []
    while (token := next(tokens, "")) != ")":
        inner.append(_expression(token, tokens, depth + 1))
    return tuple(inner)
