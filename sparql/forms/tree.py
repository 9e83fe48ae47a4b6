"""The tree of triples and filters around a main path, from which constraints are built.

Both readers (RouterKGQA's text and SPARQL) meet the parts of a constraint one by one and in any
order. They attach them to nodes of this tree; `BranchNode.constraints` turns it into constraints.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kbqa.sparql.crp import AnyOf, Constraint, Entity, Hop, Test


@dataclass(slots=True, eq=False)
class BranchNode:
    """A node, the edges that leave it, and what must be true of it.

    Attributes:
        edges: Hops that leave the node, with the node that each leads to.
        tests: Tests of the node itself.
        any_of: Alternatives, of which one must hold; each is a separate tree around this node.
        optional: The way to this node need not exist; ignored if the node has edges.
        negated: The way to this node, with everything behind it, must not exist.
        label: The name by which other nodes refer to this one.
    """

    edges: list[tuple[Hop, "BranchNode"]] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    any_of: list[tuple["BranchNode", ...]] = field(default_factory=list)
    optional: bool = False
    negated: bool = False
    label: str | None = None

    @property
    def is_bare(self) -> bool:
        """Whether the node has no edges, tests or label."""
        return not (self.edges or self.tests or self.any_of) and self.label is None

    def constraints(self, at: int | Entity) -> Iterator[Constraint]:
        """Yield the constraints on this node, which is at this position."""
        for test in self.tests:
            yield Constraint(at, (), test)
        for alternatives in self.any_of:
            yield Constraint(at, (), _any_of(alternatives, 0))
        for hop, child in self.edges:
            yield child._branch(at, (hop,))

    @property
    def _is_optional(self) -> bool:
        return self.optional and not self.edges

    def _branch(self, at: int | Entity, hops: tuple[Hop, ...]) -> Constraint:
        """Build the constraint of these hops and everything behind them."""
        optional, negated, last = self._is_optional, self.negated, len(hops)
        if self.label is None:
            match self.tests, self.any_of, self.edges:
                case [test], [], []:
                    return Constraint(at, hops, test, optional=optional, negated=negated)
                case [], [alternatives], []:
                    test = _any_of(alternatives, last)
                    return Constraint(at, hops, test, optional=optional, negated=negated)
                # An optional hop after a required one stays apart: only its own lack is forgiven.
                case [], [], [(hop, child)] if not (child._is_optional or child.negated):
                    branch = child._branch(at, (*hops, hop))
                    return replace(branch, negated=True) if negated else branch
        branches = tuple(self.constraints(last))
        return Constraint(at, hops, None, branches, optional, negated, self.label)


def _any_of(alternatives: tuple[BranchNode, ...], at: int) -> AnyOf:
    return AnyOf(tuple(tuple(alternative.constraints(at)) for alternative in alternatives))
