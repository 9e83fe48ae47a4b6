"""The tree that triples and filters draw around a main path, on its way to becoming constraints.

Both readers (RouterKGQA's text and SPARQL) meet the parts of a constraint one by one and in any
order. They hang them on nodes of this tree; `BranchNode.constraints` then cuts it into constraints.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kbqa.sparql.crp import Constraint, Hop, Test


@dataclass(slots=True, eq=False)
class BranchNode:
    """A node, what leads on from it, and what must be true of it.

    Attributes:
        edges: Hops that leave the node, with the node that each leads to.
        tests: Tests of the node itself.
        optional: The way to this node need not exist.
    """

    edges: list[tuple[Hop, "BranchNode"]] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    optional: bool = False

    def constraints(self, at: int) -> Iterator[Constraint]:
        """Yield the constraints that hang on this node, which stands at this position."""
        for test in self.tests:
            yield Constraint(at, (), test)
        for hop, child in self.edges:
            yield from child._branch(at, (hop,))

    def _branch(self, at: int, hops: tuple[Hop, ...]) -> Iterator[Constraint]:
        match self.tests, self.edges:
            case [test], []:
                yield Constraint(at, hops, test, optional=self.optional)
            case [], [(hop, child)] if not self.optional:
                yield from child._branch(at, (*hops, hop))
            case _:
                branches = tuple(self.constraints(len(hops)))
                yield Constraint(at, hops, None, branches, optional=self.optional)
