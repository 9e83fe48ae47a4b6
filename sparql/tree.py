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
        optional: The way to this node need not exist; of no effect where anything hangs on it.
    """

    edges: list[tuple[Hop, "BranchNode"]] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    optional: bool = False

    def constraints(self, at: int) -> Iterator[Constraint]:
        """Yield the constraints that hang on this node, which stands at this position."""
        for test in self.tests:
            yield Constraint(at, (), test)
        for hop, child in self.edges:
            yield child._branch(at, (hop,))

    @property
    def _is_optional(self) -> bool:
        return self.optional and not self.edges

    def _branch(self, at: int, hops: tuple[Hop, ...]) -> Constraint:
        """Make the constraint that these hops, and whatever hangs on their end, come to."""
        match self.tests, self.edges:
            case [test], []:
                return Constraint(at, hops, test, optional=self._is_optional)
            # An optional hop after a required one stays apart: only its own lack is forgiven.
            case [], [(hop, child)] if not child._is_optional:
                return child._branch(at, (*hops, hop))
            case _:
                branches = tuple(self.constraints(len(hops)))
                return Constraint(at, hops, None, branches, optional=self._is_optional)
