"""The limits of each method, and the best F1 within them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.evaluation.scores import normalise_answer, score, score_best
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import LiteralTerm, Term
from tools.methods.perfect.reach import (
    ALL,
    GoldPath,
    Reach,
    State,
    Surroundings,
    answer_text,
    node_text,
)

Keeps = Literal["best", "first"]


@dataclass(frozen=True, slots=True)
class BpcLimits:
    """Hops, nodes of a relation, relations shown, paths kept, paths shown in the answer prompt."""

    depth: int = 5
    width: int = 3
    relation_cap: int = 50
    max_paths: int = 16
    answer_paths: int = 8
    directions: Literal["out", "both"] = "out"


@dataclass(frozen=True, slots=True)
class KnowpathLimits:
    """Rounds, nodes of a relation that are shown, nodes kept a round."""

    depth: int = 3
    shown: int = 40
    kept: int = 7
    mediators: Literal["keep", "drop"] = "keep"
    keeps: Keeps = "best"


@dataclass(frozen=True, slots=True)
class TogLimits:
    """Rounds, triples kept a round, nodes drawn of a relation that has at least `sampled_from`."""

    depth: int = 3
    width: int = 3
    sampled: int = 5
    sampled_from: int = 20
    seed: int = 42
    nameless: Literal["scored", "uniform"] = "uniform"
    keeps: Keeps = "best"


@dataclass(frozen=True, slots=True)
class PogLimits:
    """Rounds, nodes of a relation that are shown, nodes drawn if none of them has a name."""

    depth: int = 4
    shown: int = 70
    nameless: int = 10
    seed: int = 42


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """Relations of a path, nodes at its end that are looked up: more are an exception."""

    depth: int = 4
    nodes: int = 200


Limits = BpcLimits | KnowpathLimits | TogLimits | PogLimits | TraceLimits
METHODS: Mapping[str, Limits] = {
    "bpc": BpcLimits(),
    "knowpath": KnowpathLimits(),
    "tog": TogLimits(),
    "pog": PogLimits(),
    "trace": TraceLimits(),
}


class Ceiling(NamedTuple):
    """The best F1 of a question, and why it is not 1."""

    f1: float
    reason: str | None = None


def bpc_ceiling(gold: GoldPath, around: Surroundings, limits: BpcLimits) -> Ceiling:
    """Walk breadth first and clip; nothing can be chosen but the relation."""
    both, is_clipped = limits.directions == "both", False
    nodes: list[Term] = [gold.topic]
    for edge in gold.edges:
        found: list[Term] = []
        for node in nodes:
            hop = around.hop(node, edge, both, limits.relation_cap)
            tails = around.tails(node, hop) if hop else []
            is_clipped |= len(tails) > limits.width
            found += tails[: limits.width]
        if not found:
            return Ceiling(0.0, "a relation of the path is not shown")
        is_clipped |= len(found) > limits.max_paths
        nodes = found[: limits.max_paths]
    is_clipped |= len(nodes) > limits.answer_paths
    shown = frozenset(answer_text(node) for node in nodes[: limits.answer_paths])
    return _ceiling(gold, shown, "nodes are hidden" if is_clipped else "relations are hidden")


def knowpath_ceiling(gold: GoldPath, around: Surroundings, limits: KnowpathLimits) -> Ceiling:
    """Keep few nodes of those shown.

    If each of the best k answers has a path of shown nodes, k nodes kept a round are enough.
    """

    def cut(node: Term, hop: Hop, tails: list[Term]) -> list[Term]:
        if limits.mediators == "drop":
            tails = [tail for tail in around.named(tails) if node_text(tail).startswith("m.")]
        return tails[: limits.shown]

    return _kept_ceiling(gold, Reach(around, gold, cut), limits.kept, limits.keeps)


def tog_ceiling(gold: GoldPath, around: Surroundings, limits: TogLimits) -> Ceiling:
    """Keep few triples of those drawn; see `knowpath_ceiling`."""

    def cut(node: Term, hop: Hop, tails: list[Term]) -> list[Term]:
        if len(tails) >= limits.sampled_from:
            tails = _by_digest(tails, node, hop, limits.seed, gold)[: limits.sampled]
        if limits.nameless == "uniform" and len(tails) > limits.width:
            is_literal = any(isinstance(tail, LiteralTerm) for tail in tails)
            tails = tails if is_literal or around.named(tails) else tails[: limits.width]
        return tails

    reach = Reach(around, gold, cut, turns_back=False)
    return _kept_ceiling(gold, reach, limits.width, limits.keeps)


def pog_ceiling(gold: GoldPath, around: Surroundings, limits: PogLimits) -> Ceiling:
    """Keep every node that is shown."""

    def cut(node: Term, hop: Hop, tails: list[Term]) -> list[Term]:
        literals = [tail for tail in tails if isinstance(tail, LiteralTerm)]
        if not literals and not around.named(tails):
            return _by_digest(tails, node, hop, limits.seed, gold)[: limits.nameless]
        if len(literals) < len(tails) and len(tails) > limits.shown:
            return _by_similarity(tails, gold, around)[: limits.shown]
        return tails

    reach = Reach(around, gold, cut, turns_back=False)
    return _kept_ceiling(gold, reach, ALL, "best")


def trace_ceiling(gold: GoldPath, around: Surroundings, limits: TraceLimits) -> Ceiling:
    """Run the main path as it is; exceptions are paths that TRACE does not offer whole."""
    nodes: set[Term] = {gold.topic}
    exceptions: list[str] = []
    for depth, hop in enumerate(gold.hops):
        if depth and _turns_back(gold, depth, around):
            exceptions.append("the path turns back")
        if not any(around.hop(node, gold.edges[depth]) for node in nodes):
            exceptions.append("a relation of the path is not shown")
        nodes = {tail for node in nodes for tail in around.tails(node, hop, ALL)}
        if len(nodes) > limits.nodes:
            exceptions.append(f"over {limits.nodes} nodes")
    found = score_best(sorted(map(node_text, nodes - {gold.topic})), gold.question.golds)
    if exceptions:
        return Ceiling(found.f1, f"exception: {exceptions[0]}")
    return Ceiling(found.f1, None if found.f1 == 1 else "the path leads to more than the answers")


def _turns_back(gold: GoldPath, depth: int, around: Surroundings) -> bool:
    """Return whether a hop undoes the last one, but for those that lead on from a mediator."""
    last = gold.hops[depth - 1]
    back = around.schema.canonical([Hop(last.relation, not last.inverse)])
    return back == gold.edges[depth : depth + 1] and not around.schema.leads_to_mediator(last)


def find_ceiling(gold: GoldPath | str, around: Surroundings, limits: Limits) -> Ceiling:
    """Compute the best F1 of one question; `gold` is a path, or why there is none."""
    if isinstance(gold, str):
        return Ceiling(0.0, gold)
    if len(gold.hops) > limits.depth:
        return Ceiling(0.0, f"more than {limits.depth} hops")
    match limits:
        case BpcLimits():
            return bpc_ceiling(gold, around, limits)
        case KnowpathLimits():
            return knowpath_ceiling(gold, around, limits)
        case TogLimits():
            return tog_ceiling(gold, around, limits)
        case PogLimits():
            return pog_ceiling(gold, around, limits)
        case TraceLimits():
            return trace_ceiling(gold, around, limits)


def _kept_ceiling(gold: GoldPath, reach: Reach, kept: int, keeps: Keeps) -> Ceiling:
    """Score a walker that keeps some of the nodes that it is shown."""
    reached = reach.answers(State(gold.topic), 0)
    found = reach.first_answers(kept) if keeps == "first" else reached
    if not reached:
        why = "nodes are hidden" if reach.hides_nodes else "a relation of the path is not shown"
    elif len(reached) > kept:
        why = f"{kept} nodes are kept"
    elif found < reached:
        why = "nodes that lead to the same answers are kept"
    else:
        why = "nodes are hidden" if reach.hides_nodes else "relations are hidden"
    return _ceiling(gold, found, why, kept)


def _ceiling(gold: GoldPath, shown: frozenset[str], why: str, kept: int = ALL) -> Ceiling:
    """Score the best answers among those shown, at most as many as are kept."""
    sets = [frozenset(map(normalise_answer, each)) for each in gold.question.golds]
    f1 = max(score(sorted(shown & wanted)[:kept], wanted).f1 for wanted in sets)
    return Ceiling(f1, None if f1 == 1 else why)


def _by_digest(
    tails: Sequence[Term], node: Term, hop: Hop, seed: int, gold: GoldPath
) -> list[Term]:
    """Sort the nodes that a hop leads to as a draw takes them."""
    way = f"{node}|{hop.relation}|{'in' if hop.inverse else 'out'}"
    start = f"{seed}|{_asked(gold)}|{way}"

    def digest(tail: Term) -> str:
        return hashlib.sha256(f"{start}|{node_text(tail)}".encode(errors="replace")).hexdigest()

    return sorted(tails, key=digest)


def _by_similarity(tails: Sequence[Term], gold: GoldPath, around: Surroundings) -> list[Term]:
    """Sort nodes by how similar their names are to the question."""
    names = around.names(tails)
    cosines = _embedder().similarity(_asked(gold), names)
    ranks = [
        (-round(cosine, 6), name, node_text(tail), str(tail))
        for cosine, name, tail in zip(cosines, names, tails, strict=True)
    ]
    return [tail for _, tail in sorted(zip(ranks, tails, strict=True), key=lambda pair: pair[0])]


@cache
def _embedder() -> Embedder:
    return Embedder.load()


def _asked(gold: GoldPath) -> str:
    return " ".join(gold.question.text.split())
