"""Where walks go on, as Think-on-Graph and Plan-on-Graph have it: relations left, nodes drawn."""

import hashlib
from collections.abc import Iterable, Sequence

from kbqa.engine.exploring.neighbourhood import Neighbourhood
from kbqa.engine.exploring.walks import Walk
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import LiteralTerm, Term


def hops_onward(neighbourhood: Neighbourhood, walk: Walk) -> tuple[Hop, ...]:
    """List the relations at the end of a walk, except the last one in the opposite direction.

    The reverse of the last relation, where the graph has it by another name, stays: from a mediator
    it leads on to the other nodes.

    Raises:
        GraphError: The graph does not answer.
    """
    hops = neighbourhood.hops(walk.end)
    if not walk.steps:
        return hops
    last = walk.steps[-1].hop
    return tuple(hop for hop in hops if hop != Hop(last.relation, not last.inverse))


def first_to_each(walks: Iterable[Walk]) -> tuple[Walk, ...]:
    """Keep the first walk to each node; nothing leads on from a literal."""
    first: dict[Term, Walk] = {}
    for walk in walks:
        if not isinstance(walk.end, LiteralTerm):
            first.setdefault(walk.end, walk)
    return tuple(first.values())


def drawn_by_content(
    nodes: Sequence[Term], most: int, seed: int, question: str, node: Term, hop: Hop
) -> tuple[Term, ...]:
    """Draw some of the nodes that a relation leads to from a node, whatever their order.

    The first by the SHA-256 of ``seed|question|node|relation|out|id or text`` are drawn, with
    ``in`` for a relation that is followed backwards.
    """
    start = f"{seed}|{question}|{_text(node)}|{hop.relation}|{'in' if hop.inverse else 'out'}"

    def digest(each: Term) -> str:
        return hashlib.sha256(f"{start}|{_text(each)}".encode(errors="replace")).hexdigest()

    return tuple(sorted(nodes, key=digest)[:most])


def _text(term: Term) -> str:
    return term.text if isinstance(term, LiteralTerm) else term
