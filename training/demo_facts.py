"""The demo graph's facts in memory, and the answers of simple CRPs over names.

Just enough to make questions that have an answer: it reads the shipped triples and needs no store.
Constraints follow relations forwards only, and dates are compared by year.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from kbqa.kb.demo_graph import DEMO_DUMP
from kbqa.kb.dump import read_blocks
from kbqa.kb.triples import literal_parts, parse_line, resource_name
from kbqa.sparql.crp import Compare, Constraint, Crp, Hop, IsEntity, TextEquals

_NAME = "type.object.name"
_TYPE = "type.object.type"
_POPULATION = (
    Hop("location.statistical_region.population"),
    Hop("measurement_unit.dated_integer.number"),
)


class DemoFacts:
    """Facts by subject and relation; a literal is its text."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._starts: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._degrees: Counter[str] = Counter()
        for block in read_blocks(str(DEMO_DUMP)):
            for line in block.lines:
                self._read(line)
        self._ranked: dict[str, tuple[str, ...]] = {}
        self._best_known: dict[str, str] = {}
        named = [subject for subject, relation in self._ends if relation == _NAME]
        for mid in sorted(named, key=self._prominence, reverse=True):
            self._best_known.setdefault(self.name(mid).casefold(), mid)

    def ranked(self, type_id: str) -> tuple[str, ...]:
        """List a type's entities, the most populous or else most connected first.

        Those that share their name with a better known entity are left out: nobody who says
        Cambridge means Cambridge in Ohio.
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
        """Return what a CRP over names finds, its topic being the best known bearer of the name."""
        topic = self._best_known[str(crp.topic).casefold()]
        paths: list[tuple[str, ...]] = [(topic,)]
        for hop in crp.path:
            paths = [(*path, end) for path in paths for end in self._follow([path[-1]], [hop])]
        kept = [
            path
            for path in paths
            if path[-1] != topic and all(self._holds(path, one) for one in crp.constraints)
        ]
        order = crp.order
        if order is None:
            return frozenset(path[-1] for path in kept)
        values = [
            (float(value), path[-1])
            for path in kept
            for value in self._follow([path[order.at]], order.hops)
        ]
        values.sort(reverse=order.descending)
        return frozenset(answer for _, answer in values[: order.limit])

    def _read(self, line: bytes) -> None:
        triple = parse_line(line)
        if triple is None:
            return
        subject, relation = resource_name(triple.subject), resource_name(triple.predicate)
        literal = literal_parts(triple.object)
        end = literal.text if literal else resource_name(triple.object)
        if subject is None or relation is None or end is None:
            return
        self._ends[subject, relation].append(end)
        self._degrees[subject] += 1
        if literal is None:
            self._starts[end, relation].append(subject)

    def _prominence(self, mid: str) -> tuple[float, int, str]:
        people = [float(number) for number in self._follow([mid], _POPULATION)]
        return max(people, default=0.0), self._degrees[mid], mid

    def _follow(self, nodes: Iterable[str], hops: Sequence[Hop]) -> list[str]:
        for hop in hops:
            index = self._starts if hop.inverse else self._ends
            nodes = [end for node in nodes for end in index.get((node, hop.relation), ())]
        return list(nodes)

    def _holds(self, path: Sequence[str], constraint: Constraint) -> bool:
        found = self._follow([path[constraint.at]], constraint.hops)
        match constraint.test:
            case IsEntity(entity):
                return any(self.ends(end, _NAME) == [entity.name] for end in found)
            case TextEquals(text):
                return text in found
            case Compare(">", value):
                return any(float(number) > float(value.text) for number in found)
            case Compare("<", value):
                return any(float(number) < float(value.text) for number in found)
            case Compare("=", value):
                return value.text in found
            case _:
                raise ValueError(f"demo questions do not use {constraint}")
