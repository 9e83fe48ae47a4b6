"""No text, name or id that a CRP holds changes the shape of the query that it compiles to."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pyoxigraph
import pytest
from hypothesis import given, settings
from rdflib.plugins.sparql.parser import parseQuery
from strategies import HOSTILE, crps

from kbqa.sparql.compile import (
    compile_crp,
    compile_evidence,
    compile_skeleton,
    compile_skeleton_prefixes,
)
from kbqa.sparql.crp import (
    AnyOf,
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    Order,
    Step,
    TextEquals,
    nested_constraints,
)
from kbqa.sparql.errors import InputError, UnlinkedName
from kbqa.sparql.forms import parse_crp
from kbqa.sparql.terms import LiteralTerm, is_well_formed, quote
from kbqa.sparql.values import is_date

BASE = Crp(Entity(mid="m.t"), (Hop("a.b"),))
# Other texts are ids that a graph may hold.
NO_IDS = [text for text in HOSTILE if not is_well_formed(text)]
# Dates are compared otherwise than texts.
NO_DATES = [text for text in HOSTILE if not is_date(LiteralTerm(text))]


def keep(*constraints: Constraint, order: Order | None = None) -> Crp:
    return replace(BASE, constraints=constraints, order=order)


def about_answer(relation: str, test: TextEquals | Compare | IsEntity | None) -> Constraint:
    return Constraint(1, (Hop(relation),), test)


@pytest.mark.parametrize("text", NO_DATES, ids=ascii)
def test_no_text(text: str) -> None:
    def compiled(word: str) -> str:
        return compile_crp(
            keep(
                about_answer("c.d", TextEquals(word)),
                about_answer("c.d", TextEquals(word, "en")),
                about_answer("e.f", Compare("=", LiteralTerm(f"{word} "))),
                about_answer("g.h", Compare("<", LiteralTerm(f"{word} ", "date"))),
                about_answer("i.j", IsEntity(Entity(word, "m.0a"))),
            )
        )

    if text == "\ud800":
        with pytest.raises(InputError, match="cannot be written in a query"):
            compiled(text)
        return
    query = compiled(text)
    pyoxigraph.Store().query(query)
    for end in (" ", " ~", ""):
        query = query.replace(quote(text + end), quote("word" + end))
    assert query == compiled("word")


@pytest.mark.parametrize("text", NO_IDS, ids=ascii)
@pytest.mark.parametrize(
    "place", ["topic", "relation", "entity", "anchor", "branch", "order", "datatype", "language"]
)
def test_no_id(text: str, place: str) -> None:
    match place:
        case "topic":
            found = replace(BASE, topic=Entity(mid=text))
        case "relation":
            found = replace(BASE, path=(Hop(text),))
        case "entity":
            found = keep(about_answer("c.d", IsEntity(Entity(mid=text))))
        case "anchor":
            found = keep(Constraint(Entity(mid=text), (Hop("c.d"),), None))
        case "branch":
            found = keep(about_answer(text, None))
        case "order":
            found = keep(order=Order(1, (Hop(text),), descending=True))
        case "datatype":
            found = keep(about_answer("c.d", Compare("=", LiteralTerm("1", text))))
        case _:
            found = keep(about_answer("c.d", TextEquals("word", text)))
    with pytest.raises(InputError):
        compile_crp(found)


def test_a_language_that_no_engine_can_encode_is_refused_by_name() -> None:
    crp = parse_crp('m.0a -> a.b\nanswers in "\\ud800"').crp
    assert crp.answer_language == "\ud800"
    with pytest.raises(InputError, match="cannot be written in a query"):
        compile_crp(crp)


def test_a_name_is_not_compiled() -> None:
    with pytest.raises(UnlinkedName, match="'Kenya' is a name without an id"):
        compile_crp(replace(BASE, topic=Entity("Kenya")))


def test_a_long_text_is_compiled() -> None:
    test = about_answer("a.b", TextEquals('"' * 10_000))
    pyoxigraph.Store().query(compile_crp(keep(test)))


@settings(max_examples=50)  # rdflib parses slowly
@given(crps())
def test_every_query_has_the_shape_of_its_crp(found: Crp) -> None:
    try:
        query = compile_crp(found)
    except InputError:
        assert not all(map(is_well_formed, _literals(found))) or len(_paths(found.path)) > 64
        return
    store = pyoxigraph.Store()
    store.query(query)
    for skeleton in (compile_skeleton(found), *compile_skeleton_prefixes(found)):
        store.query(skeleton)
    store.query(compile_evidence(found, ["m.0a", LiteralTerm("1980", "gYear")]).query)
    shape = Counter(_parts(parseQuery(query)[1]))
    assert shape == Counter(_expected_parts(found)), query


def _literals(found: Crp) -> Iterator[LiteralTerm]:
    for constraint in found.all_constraints():
        match constraint.test:
            case Compare(value=LiteralTerm() as value):
                yield value
            case TextEquals(text, language):
                yield LiteralTerm(text, language=language or None)


def _parts(node: object) -> Iterator[str]:
    """Yield a name for each pattern of a parsed query."""
    name = getattr(node, "name", "")
    if name == "TriplesBlock":
        yield from ("triple" for run in node.triples for _ in run[::3])  # type: ignore[attr-defined]
        return
    if name == "GroupOrUnionGraphPattern":
        yield from ("alternative" for _ in node.graph)  # type: ignore[attr-defined]
    elif name in ("Builtin_EXISTS", "Builtin_NOTEXISTS") or (
        name.endswith("GraphPattern") or name in ("SubSelect", "ServiceGraphPattern", "Bind")
    ):
        yield name
    if isinstance(node, dict):
        for inner in node.values():
            yield from _parts(inner)
    elif isinstance(node, list | tuple) or type(node).__name__ == "ParseResults":
        for inner in node:  # type: ignore[attr-defined]
            yield from _parts(inner)


def _expected_parts(found: Crp) -> Iterator[str]:
    """Yield a name for each pattern that the CRP asks for, over again for each way through it."""
    order, body = found.order, found.presupposed() if found.order is not None else found
    sub_selects = int(found.value is not None)
    if order is not None:
        sub_selects = 3 * order.ties + (found.form == "ask")
        for asked in nested_constraints(found.asked):
            yield from _constraint_parts(asked)
    for _ in range(sub_selects):
        yield from ("SubSelect", "alternative")
    # With ties, once for the rank of each answer and once for the best ranks.
    for _ in range(2 if order is not None and order.ties else 1):
        yield from _body_parts(body)


def _body_parts(found: Crp) -> Iterator[str]:
    paths = _paths(found.path)
    hops = found.order.hops if found.order is not None else ()
    for path in paths:
        if len(paths) > 1:
            yield "alternative"
        yield from ("triple" for part in (*path, *hops) if isinstance(part, Hop))
        held = tuple(part for part in path if isinstance(part, Constraint))
        for constraint in nested_constraints((*held, *found.constraints)):
            yield from _constraint_parts(constraint)


def _paths(path: tuple[Step, ...]) -> list[list[Hop | Constraint]]:
    paths: list[list[Hop | Constraint]] = [[]]
    for step in path:
        if isinstance(step, Hop):
            taken: list[list[Hop | Constraint]] = [[step]]
        else:
            taken = [[*way.constraints, *p] for way in step.ways for p in _paths(way.path)]
        paths = [before + after for before in paths for after in taken]
    return paths


def _constraint_parts(constraint: Constraint) -> Iterator[str]:
    yield from ("triple" for _ in constraint.hops)
    if constraint.optional:
        yield "OptionalGraphPattern"
    if constraint.negated:
        yield "Builtin_NOTEXISTS"
    if isinstance(constraint.test, AnyOf):
        for alternative in constraint.test.alternatives:
            if any(inner.hops and not inner.negated for inner in alternative):
                yield "Builtin_EXISTS"
