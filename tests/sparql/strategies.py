"""CRPs for hypothesis: any that can be compiled, and those that RouterKGQA's form can say."""

from hypothesis import strategies as st

from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    IsNotEntity,
    Order,
    Test,
    TextEquals,
)
from kbqa.sparql.terms import Literal
from kbqa.sparql.tree import BranchNode

# Texts that would change a query or a CRP's text if they were pasted into it.
HOSTILE = (
    '"} } UNION { ?x ?p ?o . FILTER ("" = "',
    "'; DROP ALL #",
    "m.0a> ?x } # <",
    "<http://a> . ?x ?p ?o . <b>",
    "\\",
    '\\"',
    "\n",
    "\u2028",
    "\x85",
    "\ud800",
    "?x",
    "_:b",
    "%zz",
    "http://[",
    "Entity Restrictions:",
    "a -[b]-> c",
)

OPERATORS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
_MIDS = st.from_regex(r"[mg]\.[0-9a-z_]{1,6}", fullmatch=True)
_DATATYPES = st.sampled_from([None, "gYear", "date", "dateTime", "integer", "float", "string"])
_SEGMENT = st.from_regex(r"[a-z]{1,4}(_[a-z]{1,3})?", fullmatch=True)
_RELATIONS = st.lists(_SEGMENT, min_size=2, max_size=4).map(".".join)
_TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from([text for text in HOSTILE if text != "\ud800"])
)
_HOPS = st.builds(Hop, _RELATIONS, st.booleans())
_MID_ENTITIES = _MIDS.map(lambda mid: Entity(mid=mid))
_LITERALS = st.builds(
    Literal,
    st.one_of(_TEXTS, st.sampled_from(["1980", "1980-05", "-0044-03-15", "12", "-1.5e3"])),
    _DATATYPES,
)
_TESTS: st.SearchStrategy[Test] = st.one_of(
    st.builds(IsEntity, _MID_ENTITIES),
    st.builds(IsNotEntity, _MID_ENTITIES),
    st.builds(Compare, OPERATORS, _LITERALS),
    st.builds(TextEquals, _TEXTS, st.one_of(st.none(), _TEXTS)),
)


@st.composite
def _constraints(draw: st.DrawFn, last: int, depth: int = 2) -> Constraint:
    hops = tuple(draw(st.lists(_HOPS, max_size=2)))
    test = draw(_TESTS if not hops else st.one_of(st.none(), _TESTS))
    optional = bool(hops) and draw(st.booleans())
    branches: list[Constraint] = []
    if depth:
        branches = draw(st.lists(_constraints(len(hops), depth - 1), max_size=2))
    if optional:
        branches = [branch for branch in branches if not branch.hops]
    at = draw(st.integers(0, last))
    return Constraint(at, hops, test, tuple(branches), optional)


@st.composite
def crps(draw: st.DrawFn) -> Crp:
    """Any grounded CRP: nested, optional, with hostile texts."""
    path = tuple(draw(st.lists(_HOPS, min_size=1, max_size=3)))
    at = st.integers(0, len(path))
    hops = st.lists(_HOPS, max_size=2).map(tuple)
    order = st.builds(Order, at, hops, st.booleans(), st.integers(1, 9), st.integers(0, 3))
    return Crp(
        topic=draw(_MID_ENTITIES),
        path=path,
        constraints=tuple(draw(st.lists(_constraints(len(path)), max_size=3))),
        order=draw(st.one_of(st.none(), order)),
        differs_from=draw(st.one_of(st.none(), st.integers(0, len(path) - 1))),
    )


_NAMES = st.one_of(st.text(min_size=1, max_size=8), st.sampled_from(HOSTILE))
_NAMED_ENTITIES = st.one_of(
    _MIDS.map(lambda mid: Entity(mid=mid)), _NAMES.map(lambda name: Entity(name=name))
)
_FORWARD = st.builds(Hop, _RELATIONS)
_PLAIN_VALUES = st.sampled_from(["1980", "2010-12-31", "2010-05", "-0044", "12", "-1.5", "a) "])
_VALUES = st.one_of(
    st.builds(Literal, _PLAIN_VALUES),
    st.builds(Literal, st.from_regex(r"[0-9]{1,5}", fullmatch=True), st.just("integer")),
)
_SAYABLE_TESTS: dict[str, st.SearchStrategy[Test]] = {
    "numeric": st.builds(Compare, OPERATORS, _VALUES),
    "string": st.builds(TextEquals, _TEXTS),
}


@st.composite
def sayable_crps(draw: st.DrawFn) -> Crp:
    """CRPs that RouterKGQA's form has words for, but for a name or text here and there.

    Made as its reader makes them, so that equal meanings are equal CRPs.
    """
    path = tuple(draw(st.lists(st.builds(Hop, _RELATIONS, st.booleans()), min_size=1, max_size=4)))
    nodes = [BranchNode() for _ in range(len(path) + 1)]
    for kind in ("entity", "numeric", "string"):
        for _ in range(draw(st.integers(0, 2))):
            _grow(draw, nodes[draw(st.integers(1, len(path)))], kind)
    order = st.builds(
        Order,
        st.integers(1, len(path)),
        st.lists(_FORWARD, max_size=2).map(tuple),
        st.booleans(),
        st.integers(1, 50),
    )
    return Crp(
        topic=draw(_NAMED_ENTITIES),
        path=path,
        constraints=tuple(
            constraint for at, node in enumerate(nodes) for constraint in node.constraints(at)
        ),
        order=draw(st.one_of(st.none(), order)),
        differs_from=draw(st.integers(0, len(path) - 1)),
    )


def _grow(draw: st.DrawFn, node: BranchNode, kind: str) -> None:
    """Hang a branch of one kind on a node: some hops, and one or two tests behind them."""
    for _ in range(draw(st.integers(0, 2))):
        child = BranchNode()
        node.edges.append((draw(_FORWARD), child))
        node = child
    if kind == "entity":
        for _ in range(draw(st.integers(1, 2))):
            node.edges.append((draw(_FORWARD), BranchNode(tests=[IsEntity(draw(_NAMED_ENTITIES))])))
        return
    node.tests += draw(st.lists(_SAYABLE_TESTS[kind], min_size=1, max_size=2))
    node.optional = all(
        isinstance(test, Compare) and test.operator in ("<=", ">=") and "-" in test.value.text
        for test in node.tests
    )
