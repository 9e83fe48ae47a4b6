"""The demo graph's facts in memory, and the answers of simple CRPs over names.

Just enough to write questions that have an answer: it reads the shipped triples and needs no store.
Constraints follow relations forwards only, and dates are compared by year.
"""

import lzma
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kbqa.kb.demo_graph import DEMO_DUMP
from kbqa.kb.loading.reading.literals import literal_parts
from kbqa.sparql.crp import Compare, Constraint, Crp, Entity, Hop, IsEntity, Step, TextEquals
from kbqa.sparql.terms import FREEBASE_NS, LiteralTerm

_OPEN = len(f"<{FREEBASE_NS}")
_NAME = "type.object.name"
_TYPE = "type.object.type"
_POPULATION = (
    Hop("location.statistical_region.population"),
    Hop("measurement_unit.dated_integer.number"),
)

_Path: TypeAlias = tuple[str, ...]


class DemoFacts:
    """Facts by subject and relation; a literal is its text."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._starts: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._degrees: Counter[str] = Counter()
        with lzma.open(DEMO_DUMP) as lines:
            for line in lines:
                self._read(line)
        self._matches: dict[Constraint, frozenset[str]] = {}
        self._walks: dict[tuple[str, tuple[Step, ...]], list[_Path]] = {}
        self._ranked: dict[str, tuple[str, ...]] = {}
        self._best_known: dict[str, str] = {}
        named = [subject for subject, relation in self._ends if relation == _NAME]
        for mid in sorted(named, key=self._prominence, reverse=True):
            self._best_known.setdefault(self.name(mid).casefold(), mid)

    def ranked(self, type_id: str) -> tuple[str, ...]:
        """List a type's entities, the most populous or else most connected first.

        Entities that share their name with a better known one are left out: Cambridge never means
        the one in Ohio.
        """
        if type_id not in self._ranked:
            members = sorted(self._starts[type_id, _TYPE], key=self._prominence, reverse=True)
            self._ranked[type_id] = tuple(
                mid for mid in members if self._best_known[self.name(mid).casefold()] == mid
            )
        return self._ranked[type_id]

    def name(self, mid: str) -> str:
        """Return an entity's name."""
        return self._ends[mid, _NAME][0]

    def ends(self, mid: str, relation: str) -> Sequence[str]:
        """List what a relation leads to, in the order of the triples."""
        return self._ends.get((mid, relation), ())

    def answers(self, crp: Crp) -> frozenset[str]:
        """Return what a CRP over names finds; its topic is the best known entity of that name."""
        topic = self._best_known[str(crp.topic).casefold()]
        kept = [path for path in self._walk(topic, crp.path) if path[-1] != topic]
        for constraint in crp.constraints:
            kept = self._keep(kept, constraint)
        order = crp.order
        if order is None:
            return frozenset(path[-1] for path in kept)
        values = [
            (float(value), path[-1])
            for path in kept
            for value in self._follow([_node(path, order.at)], order.hops)
        ]
        values.sort(reverse=order.descending)
        return frozenset(answer for _, answer in values[: order.limit])

    def _read(self, line: bytes) -> None:
        # Our own file, so it needs none of the checks of a dump.
        first, second, end, _ = line.split(b"\t")
        subject, relation = first[_OPEN:-1].decode(), second[_OPEN:-1].decode()
        literal = literal_parts(end) if end.startswith(b'"') else None
        node = literal.text if literal else end[_OPEN:-1].decode()
        self._degrees[subject] += 1
        self._ends[subject, relation].append(node)
        self._starts[node, relation].append(subject)

    def _walk(self, topic: str, path: tuple[Step, ...]) -> list[_Path]:
        """Return every walk along a main path, as the nodes on it."""
        if (topic, path) not in self._walks:
            ways: list[_Path] = [(topic,)]
            for hop in path:
                if not isinstance(hop, Hop):
                    raise ValueError("demo questions do not use forks")
                ways = [(*way, end) for way in ways for end in self._follow([way[-1]], [hop])]
            self._walks[topic, path] = ways
        return self._walks[topic, path]

    def _prominence(self, mid: str) -> tuple[float, int, str]:
        people = [float(number) for number in self._follow([mid], _POPULATION)]
        return max(people, default=0.0), self._degrees[mid], mid

    def _follow(self, nodes: Iterable[str], hops: Sequence[Hop]) -> list[str]:
        for hop in hops:
            index = self._starts if hop.inverse else self._ends
            nodes = [end for node in nodes for end in index.get((node, hop.relation), ())]
        return list(nodes)

    def _keep(self, paths: list[_Path], constraint: Constraint) -> list[_Path]:
        """Keep the paths on which a constraint holds."""
        at, hops = constraint.at, constraint.hops
        match constraint.test:
            case Compare(">" | "<" as operator, LiteralTerm(text)):
                sign = 1 if operator == ">" else -1
                least = sign * float(text)
                return [
                    path
                    for path in paths
                    if any(
                        sign * float(number) > least
                        for number in self._follow([_node(path, at)], hops)
                    )
                ]
            case _:
                matches = self._matching(constraint)
                return [path for path in paths if _node(path, at) in matches]

    def _matching(self, constraint: Constraint) -> frozenset[str]:
        """Return all nodes of the graph that satisfy a constraint, searched from its far end."""
        if constraint not in self._matches:
            match constraint.test:
                case IsEntity(entity):
                    ends = self._starts[str(entity), _NAME]
                case TextEquals(text) | Compare("=", LiteralTerm(text)):
                    ends = [text]
                case _:
                    raise ValueError(f"demo questions do not use {constraint}")
            back = [Hop(hop.relation, not hop.inverse) for hop in reversed(constraint.hops)]
            self._matches[constraint] = frozenset(self._follow(ends, back))
        return self._matches[constraint]


def _node(path: _Path, at: int | str | Entity) -> str:
    if not isinstance(at, int):
        raise ValueError(f"demo questions do not refer to {at}")
    return path[at]
