"""CRPs for hypothesis: any that the classes can hold, and those that RouterKGQA's form can hold."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

from hypothesis import strategies as st

from kbqa.sparql.crp import (
    Aggregate,
    AnyOf,
    BranchNode,
    Compare,
    Constraint,
    Crp,
    Entity,
    Fork,
    Form,
    Hop,
    IsEntity,
    IsNode,
    IsNotEntity,
    IsNotNode,
    NodeRef,
    Order,
    Step,
    Test,
    TextEquals,
    Way,
    changed_constraints,
    changed_step,
)
from kbqa.sparql.terms import LiteralTerm

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
    "Main Path:",
    "a -> b",
    "[a] (m.0a)",
    "a (ns:b)",
    "a, {-> b | -> c}",
    "Male or none",
    "or none",
    "m.0a b",
    "ns:location.country",
    "1984",
    "2010-12-31T00:00:00Z",
    " a ",
    "12^^integer",
)

OPERATORS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
_MIDS = st.sampled_from(["m.0a", "m.05zppz", "m.0_b", "g.11b6t1scwz"])
_DATATYPES = st.sampled_from([None, "gYear", "date", "dateTime", "integer", "float", "string"])
_RELATIONS = st.sampled_from(["a.b", "people.person.sibling_s", "no.is_not.or_none", "a.b.c.d"])
_TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from([text for text in HOSTILE if text != "\ud800"])
)
_HOPS = st.builds(Hop, _RELATIONS, st.booleans())
_VALUE_TEXTS = st.sampled_from(["1980", "1980-05", "-0044-03-15", "12", "-1.5e3", "012"])
_CODES = st.sampled_from(["012", "007"]).map(LiteralTerm)
_LITERALS = st.one_of(
    st.builds(LiteralTerm, st.one_of(_TEXTS, _VALUE_TEXTS), _DATATYPES),
    st.builds(LiteralTerm, _VALUE_TEXTS, _DATATYPES),
    _CODES,
)


@dataclass(frozen=True)
class Parts:
    """What CRPs are built from."""

    entities: st.SearchStrategy[Entity]
    hops: st.SearchStrategy[Hop]
    literals: st.SearchStrategy[LiteralTerm]
    languages: st.SearchStrategy[str | None]


# All that can be compiled.
GROUNDED = Parts(
    entities=_MIDS.map(lambda mid: Entity(mid=mid)),
    hops=_HOPS,
    literals=_LITERALS,
    languages=st.one_of(st.sampled_from(["en", None, "", "de"]), _TEXTS),
)
_LABELS = ("x", "a", "b1", "the_end", "no", "none")
_HOLE = NodeRef(-1)


@st.composite
def crps(draw: st.DrawFn, parts: Parts = GROUNDED) -> Crp:
    """Any CRP of these parts: forks, nested constraints, alternatives, labels and references."""
    builder = _Builder(draw, parts)
    path = tuple(builder.steps(most=3, depth=2))
    at = len(path)
    constraints = builder.constraints(range(at + 1), 3, depth=2)
    path = tuple(map(builder.filled_step, path))
    visible = {*range(at + 1), *_shown(constraints)}
    constraints = builder.filled(constraints, visible)
    order = None
    forms = ["select", "select", "select", "count", "count bindings", "ask", *get_args(Aggregate)]
    form: Form = draw(st.sampled_from(forms))
    value = builder.node(visible) if form in get_args(Aggregate) else None
    if (
        draw(st.booleans())
        and form in ("select", "ask")
        and not _asks_of_nodes(constraints, at, form)
    ):
        hops = tuple(draw(st.lists(parts.hops, max_size=2)))
        order = Order(
            builder.node(visible),
            hops,
            draw(st.booleans()),
            draw(st.integers(1, 9)),
            draw(st.integers(0, 3)),
            draw(st.booleans()),
            bool(hops) and draw(st.booleans()),
        )
    return Crp(
        topic=draw(parts.entities),
        path=tuple(changed_step(step, builder.tidied) for step in path),
        constraints=changed_constraints(constraints, builder.tidied),
        order=order,
        differs_from=draw(st.one_of(st.none(), st.integers(0, at - 1))),
        answer_language=draw(parts.languages),
        form=form,
        value=value,
    )


def _asks_of_nodes(constraints: tuple[Constraint, ...], answer: int, form: Form) -> bool:
    """Return whether a yes/no question compares its answer with another node."""
    asked = (c for c in constraints if form == "ask" and c.at == answer and not c.hops)
    return any(list(each.references()) for each in asked)


class _Builder:
    """Draws a CRP in three steps: its shape, then its references; unused labels are removed."""

    def __init__(self, draw: st.DrawFn, parts: Parts) -> None:
        self._draw = draw
        self._parts = parts
        self._labels = list(draw(st.permutations(_LABELS)))
        self._used: set[int | str] = set()
        self._tests: st.SearchStrategy[Test] = st.one_of(
            st.builds(IsEntity, parts.entities),
            st.builds(IsNotEntity, parts.entities),
            st.builds(Compare, OPERATORS, parts.literals),
            st.builds(TextEquals, _TEXTS, parts.languages),
            st.sampled_from([IsNode(_HOLE), IsNotNode(_HOLE), Compare("<", _HOLE)]),
        )

    def steps(self, most: int, depth: int) -> list[Step]:
        return [self._step(depth) for _ in range(self._draw(st.integers(1, most)))]

    def _step(self, depth: int) -> Step:
        if not depth or self._draw(st.integers(0, 3)):
            return self._draw(self._parts.hops)
        return Fork(tuple(self._way(depth - 1) for _ in range(self._draw(st.integers(2, 3)))))

    def _way(self, depth: int) -> Way:
        path = tuple(self.steps(2, depth))
        return Way(path, self.constraints(range(len(path) + 1), 2, depth))

    def constraints(self, positions: range, most: int, depth: int) -> tuple[Constraint, ...]:
        ats = st.one_of(
            st.sampled_from(positions), st.sampled_from(positions), self._parts.entities
        )
        drawn = [
            self._constraint(self._draw(ats), depth)
            for _ in range(self._draw(st.integers(0, most)))
        ]
        if self._labels and not self._draw(st.integers(0, 15)):
            drawn += self._negated_reference(self._draw(st.sampled_from(positions)))
        return tuple(drawn)

    def _negated_reference(self, at: int) -> Iterator[Constraint]:
        """A branch with a label, and a negated one that refers to it, alone or within another."""
        label = self._labels.pop()
        self._used.add(label)
        first, second, third = (self._draw(self._parts.hops) for _ in range(3))
        yield Constraint(at, (first,), None, label=label)
        is_nested = self._draw(st.booleans())
        place = 1 if is_nested else at
        negated = Constraint(place, (second,), IsNode(NodeRef(label)), negated=True)
        if not is_nested:
            yield negated
            return
        test = self._draw(st.builds(IsEntity, self._parts.entities))
        yield Constraint(at, (third,), None, (Constraint(1, (), test), negated))

    def _constraint(self, at: int | Entity, depth: int, longest: int = 2) -> Constraint:
        draw = self._draw
        hops = tuple(draw(st.lists(self._parts.hops, max_size=longest)))
        ends = ["test", "any of"] if depth else ["test"]
        if hops:
            ends += ["nothing", "label", "branches"] if depth else ["nothing", "label"]
        end = draw(st.sampled_from(ends))
        manner = draw(st.sampled_from(["", "", "optional", "negated"])) if hops else ""
        # No further hops may follow a branch that may be missing.
        inside = (len(hops), depth - 1, 0 if manner == "optional" else longest)
        test: Test | None = None
        branches: tuple[Constraint, ...] = ()
        label = None
        match end:
            case "test":
                test = draw(self._tests)
            case "any of":
                test = AnyOf(
                    tuple(
                        tuple(self._constraint(*inside) for _ in range(draw(st.integers(1, 2))))
                        for _ in range(draw(st.integers(2, 3)))
                    )
                )
            case "branches":
                branches = tuple(self._constraint(*inside) for _ in range(draw(st.integers(1, 2))))
        if end in ("label", "branches") and not manner and self._labels:
            label = self._labels.pop()
        return Constraint(
            at, hops, test, branches, manner == "optional", manner == "negated", label
        )

    def node(self, visible: set[int | str]) -> int | str:
        labels = sorted(node for node in visible if isinstance(node, str))
        everything = st.sampled_from(sorted(visible, key=str))
        node = self._draw(st.sampled_from(labels) | everything if labels else everything)
        self._used.add(node)
        return node

    def filled_step(self, step: Step) -> Step:
        if isinstance(step, Hop):
            return step
        ways = (
            Way(
                tuple(map(self.filled_step, way.path)),
                self.filled(way.constraints, set(_shown(way.constraints))),
            )
            for way in step.ways
        )
        return Fork(tuple(ways))

    def filled(
        self, constraints: tuple[Constraint, ...], visible: set[int | str]
    ) -> tuple[Constraint, ...]:
        """Let every hole refer to a node that is visible from its place."""
        return tuple(self._filled(constraint, visible) for constraint in constraints)

    def _filled(self, constraint: Constraint, visible: set[int | str]) -> Constraint:
        test = constraint.test
        if isinstance(test, IsNode) and test.other != _HOLE:
            return constraint  # by `_negated_reference`
        match test:
            case IsNode() | IsNotNode() | Compare(value=NodeRef()) if not visible:
                test = TextEquals("nothing to be seen")
            case IsNode() | IsNotNode():
                test = type(test)(NodeRef(self.node(visible)))
            case Compare(value=NodeRef()):
                test = replace(test, value=NodeRef(self.node(visible)))
            case AnyOf(alternatives):
                test = AnyOf(
                    tuple(self.filled(inner, visible | {*_shown(inner)}) for inner in alternatives)
                )
        shown = set(_shown(constraint.branches)) if constraint.negated else set()
        branches = self.filled(constraint.branches, visible | shown)
        return replace(constraint, test=test, branches=branches)

    def tidied(self, constraint: Constraint) -> Constraint:
        """Remove a label that nothing refers to."""
        return constraint if constraint.label in self._used else replace(constraint, label=None)


def _shown(constraints: tuple[Constraint, ...]) -> Iterator[str]:
    """Yield the labels that are visible outside of these constraints."""
    for constraint in constraints:
        if not constraint.negated:
            if constraint.label is not None:
                yield constraint.label
            yield from _shown(constraint.branches)


_NAMES = st.one_of(st.text(min_size=1, max_size=8), st.sampled_from(HOSTILE))
_NAMED_ENTITIES = st.one_of(
    _MIDS.map(lambda mid: Entity(mid=mid)), _NAMES.map(lambda name: Entity(name=name))
)
# Whatever the model holds, well formed or not.
ANY = Parts(
    entities=st.one_of(
        _NAMED_ENTITIES,
        st.builds(Entity, _NAMES, st.one_of(_MIDS, _TEXTS)),
        st.builds(Entity, st.none(), _NAMES),
    ),
    hops=st.one_of(_HOPS, st.builds(Hop, _NAMES, st.booleans())),
    literals=st.one_of(_LITERALS, st.builds(LiteralTerm, _TEXTS, st.one_of(st.none(), _TEXTS))),
    languages=GROUNDED.languages,
)
_FORWARD = st.builds(Hop, _RELATIONS)
_PLAIN_VALUES = st.sampled_from(
    ["1980", "2010-12-31", "2010-05", "-0044", "12", "-1.5", "012", "a) "]
)
_VALUES = st.one_of(
    st.builds(LiteralTerm, _PLAIN_VALUES),
    st.builds(LiteralTerm, st.from_regex(r"[0-9]{1,5}", fullmatch=True), st.just("integer")),
)
_SAYABLE_TESTS: dict[str, st.SearchStrategy[Test]] = {
    "numeric": st.builds(Compare, OPERATORS, _VALUES),
    "string": st.builds(TextEquals, _TEXTS),
}


@st.composite
def sayable_crps(draw: st.DrawFn) -> Crp:
    """CRPs that RouterKGQA's form can express, except for a few names or texts.

    Built as its reader builds them, so that equal meanings are equal CRPs.
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
    """Attach a branch of one kind to a node: some hops, and one or two tests after them."""
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
