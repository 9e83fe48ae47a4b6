"""Relax a CRP's constraints step by step; the main path stays as it is.

Each step drops leaves of the constraint tree: the test at a branch's end, at any depth; an `AnyOf`
as a whole; a branch that only has to exist; the ordering. Branches that become empty and labels
that nothing refers to any more go with them.

The steps: the CRP as it is; without one string leaf, two, … all; then without the numeric leaves as
well, the ordering among them; then without the entity leaves; last the main path alone, with all
its forks. Of sets of the same size, the least trusted leaves are dropped first. Of equally trusted
ones, the ordering is the last of its class: without it, one answer becomes all candidates.

A negated branch, and that a node is not an entity, are never dropped: without them a question
means something else. Counts, yes/no questions and comparisons of named entities are not relaxed at
all: none, no and unknown are answers too.

No relaxed form returns the topic, unless the CRP allows it by ``differs_from=None``. A CRP whose
answer differs from another node may return it (the benchmarks' ``?x != ?c``), but only while its
constraints hold.

Source: RouterKGQA §3.4, "Constraint relaxation", and Table 9. The finer steps are ours.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count, islice
from typing import Literal, NamedTuple

from kbqa.sparql.crp import (
    AnyOf,
    Constraint,
    Crp,
    Entity,
    Fork,
    Hop,
    IsNotEntity,
    IsNotNode,
    Kind,
    NodeRef,
    Order,
    Part,
    Step,
    Way,
)

Level = Literal["full", "string", "numeric", "entity", "main_path"]

_KINDS: tuple[Kind, ...] = ("string", "numeric", "entity")
# Subsets of a class grow as 2**n; no benchmark query has more than six leaves.
_MAX_SUBSETS = 64


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One step of relaxation."""

    level: Level  # the last class of constraints that was dropped from; "full" if none was
    crp: Crp  # without what was dropped
    dropped: tuple[Part, ...]  # in the CRP's order, as `leaves` writes them


def relaxations(
    crp: Crp, trust: Callable[[Part], float] | None = None, *, by_class: bool = False
) -> Iterator[Relaxation]:
    """Yield the CRP itself, then every relaxed form of it; no form comes twice.

    The more a leaf is trusted to be what the question means, the later it is dropped; of equally
    trusted ones, as all are by default, the last written is dropped first. With `by_class`, as in
    the paper, strings, and then numbers, are dropped only all at once.
    """
    yield Relaxation("full", crp, ())
    if crp.form != "select" or compared_entities(crp):
        return
    found = tuple(leaves(crp))
    seen = {_without(crp, found, frozenset())}
    for kind, numbers in _drops(found, trust, by_class):
        relaxed = _without(crp, found, numbers)
        if relaxed not in seen:
            seen.add(relaxed)
            level: Level = "main_path" if len(numbers) == len(found) else kind
            yield Relaxation(level, relaxed, tuple(found[number] for number in sorted(numbers)))


def compared_entities(crp: Crp) -> tuple[Entity, ...]:
    """Return the named entities that a CRP ranks, as in "which is larger, Spain or Germany".

    So are those whose numbers are added up: each of them needs one.
    """
    if crp.order is None and crp.value is None:
        return ()
    tests = (c.test for c in crp.constraints if c.at == crp.answer and not c.hops)
    named = (test.entities() for test in tests if isinstance(test, AnyOf))
    return next(filter(None, named), ())


def drop_kinds(crp: Crp, kinds: Collection[Kind]) -> Crp:
    """Drop all constraints of some classes, or the ordering, which is numeric.

    Source: RouterKGQA, Table 3, "Constraint ablations".
    """
    found = tuple(leaves(crp))
    numbers = frozenset(n for n, leaf in enumerate(found) if leaf.kind in kinds)
    return _without(crp, found, numbers) if numbers else crp


def leaves(crp: Crp) -> Iterator[Part]:
    """Yield the leaves of a CRP in reading order: those inside forks, the others, the ordering.

    Each has all its hops from the main path or the entity that it starts at. Behind a fork within a
    fork, they take the first way.
    """
    found: list[Part] = []

    def keep(leaf: Constraint, end: _Place) -> bool:
        found.append(_moved(leaf, end))
        return True

    _Pruning(keep).prune(crp)
    yield from found
    if crp.order is not None:
        yield crp.order


class _Place(NamedTuple):
    """A node: its distance, in hops, from a node of the main path or from an entity."""

    at: int | Entity
    hops: tuple[Hop, ...] = ()
    optional: bool = False


def _first_way(step: Step) -> tuple[Hop, ...]:
    if isinstance(step, Hop):
        return (step,)
    return tuple(hop for inner in step.ways[0].path for hop in _first_way(inner))


def _is_leaf(constraint: Constraint) -> bool:
    # A branch that only has a label is dropped with the last reference to it.
    return constraint.test is not None or not (constraint.branches or constraint.label)


def _stays(constraint: Constraint) -> bool:
    """Return whether a constraint is never dropped, since it negates."""
    return constraint.negated or (not constraint.hops and isinstance(constraint.test, IsNotEntity))


def _staying(constraints: Iterable[Constraint]) -> Iterator[Constraint]:
    for constraint in constraints:
        if _stays(constraint):
            yield constraint
        elif not _is_leaf(constraint):
            yield from _staying(constraint.branches)


def _drops(
    found: Sequence[Part], trust: Callable[[Part], float] | None, by_class: bool
) -> Iterator[tuple[Kind, frozenset[int]]]:
    """Yield the class and the numbers of the leaves that each step drops."""

    def trusted(number: int) -> tuple[float, bool, int]:
        leaf = found[number]
        return (trust(leaf) if trust else 0.0, isinstance(leaf, Order), -number)

    gone: tuple[int, ...] = ()
    for kind in _KINDS:
        numbers = (n for n, leaf in enumerate(found) if leaf.kind == kind)
        least_first = sorted(numbers, key=trusted)
        sizes = range(0) if by_class and kind != "entity" else range(1, len(least_first))
        subsets = (subset for size in sizes for subset in combinations(least_first, size))
        for subset in islice(subsets, _MAX_SUBSETS):
            yield kind, frozenset((*gone, *subset))
        gone = (*gone, *least_first)
        yield kind, frozenset(gone)


def _without(crp: Crp, found: Sequence[Part], dropped: frozenset[int]) -> Crp:
    """Return the CRP without these leaves; the topic does not become an answer."""
    kept = [leaf for number, leaf in enumerate(found) if number not in dropped]
    staying = _staying(crp.top_constraints())
    used = frozenset(node for part in (*kept, *staying) for node in part.references())
    if crp.value is not None:
        used |= {crp.value}
    numbers = count()
    pruning = _Pruning(lambda *_: next(numbers) not in dropped, used)
    path, constraints = pruning.prune(crp)
    guards = [constraint for constraint in crp.constraints if _keeps_off_topic(constraint, crp)]
    if not guards and crp.differs_from not in (None, 0):
        guards = [_off_topic(crp)]
    order = crp.order if crp.order in kept else None
    return replace(crp, path=path, constraints=(*constraints, *guards), order=order)


def _off_topic(crp: Crp) -> Constraint:
    return Constraint(crp.answer, (), IsNotNode(NodeRef(0)))


def _keeps_off_topic(constraint: Constraint, crp: Crp) -> bool:
    """Return whether a constraint excludes the topic as an answer; it is then never dropped."""
    return constraint in (
        _off_topic(crp),
        Constraint(0, (), IsNotNode(NodeRef(crp.answer))),
        Constraint(crp.answer, (), IsNotEntity(crp.topic)),
    )


@dataclass(frozen=True, slots=True)
class _Pruning:
    """Asks of each leaf, in reading order, whether to keep it; repeated constraints become one."""

    keeps: Callable[[Constraint, _Place], bool]  # of a leaf, and its end
    used: Collection[int | str] = ()  # the nodes that the remaining leaves refer to

    def prune(self, crp: Crp) -> tuple[tuple[Step, ...], tuple[Constraint, ...]]:
        """Return the path and the constraints, but for those that keep the topic off."""
        path = (self._step(step, _Place(at), _Place(at + 1)) for at, step in enumerate(crp.path))
        others = [c for c in crp.constraints if not _keeps_off_topic(c, crp)]
        return tuple(path), self._constraints((each, _Place(each.at)) for each in others)

    def _step(self, step: Step, start: _Place, end: _Place) -> Step:
        if isinstance(step, Hop):
            return step
        return Fork(tuple(self._way(way, start, end) for way in step.ways))

    def _way(self, way: Way, start: _Place, end: _Place) -> Way:
        places = [start]
        for step in way.path:
            places.append(_Place(start.at, (*places[-1].hops, *_first_way(step))))
        places[-1] = end
        path = tuple(map(self._step, way.path, places, places[1:]))
        at = [each.at for each in way.constraints]
        held = [places[node] if isinstance(node, int) else _Place(node) for node in at]
        return Way(path, self._constraints(zip(way.constraints, held, strict=True)))

    def _constraints(self, placed: Iterable[tuple[Constraint, _Place]]) -> tuple[Constraint, ...]:
        kept = (self._constraint(constraint, place) for constraint, place in placed)
        return tuple(dict.fromkeys(filter(None, kept)))

    def _constraint(self, constraint: Constraint, start: _Place) -> Constraint | None:
        if _stays(constraint):
            return constraint
        hops = (*start.hops, *constraint.hops)
        place = _Place(start.at, hops, start.optional or constraint.optional)
        if _is_leaf(constraint):
            return constraint if self.keeps(constraint, place) else None
        branches = self._constraints((branch, place) for branch in constraint.branches)
        label = constraint.label if constraint.label in self.used else None
        if not branches and label is None:
            return None
        return replace(constraint, branches=branches, label=label)


def _moved(leaf: Constraint, place: _Place) -> Constraint:
    """Return a leaf with all its hops; `place` is its end."""
    test = leaf.test
    if isinstance(test, AnyOf):
        at = len(place.hops)
        test = AnyOf(tuple(tuple(replace(c, at=at) for c in each) for each in test.alternatives))
    return replace(leaf, at=place.at, hops=place.hops, optional=place.optional, test=test)
