"""The demo graph, to write questions about: its entities by type, and what paths over names say.

Paths run as in an answer, on the demo graph's own store.
"""

import lzma
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Self

from kbqa.engine.running.outcome import PathRunner
from kbqa.engine.running.reach import is_reachable
from kbqa.kb.demo_graph import DEMO_DUMP, demo_store_directory
from kbqa.kb.loading.reading.literals import literal_parts
from kbqa.kb.store.oxigraph import OxigraphStore
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.terms import FREEBASE_NS, LiteralTerm

_OPEN = len(f"<{FREEBASE_NS}")
_NAME = "type.object.name"
_TYPE = "type.object.type"
_POPULATION = "location.statistical_region.population"
_NUMBER = "measurement_unit.dated_integer.number"
_LIMIT_S = 10.0


class DemoFacts:
    """Facts by subject and relation, where a literal is its text, and paths run on the store."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._members: dict[str, list[str]] = defaultdict(list)
        self._degrees: Counter[str] = Counter()
        with lzma.open(DEMO_DUMP) as lines:
            for line in lines:
                self._read(line)
        self._ranked: dict[str, tuple[str, ...]] = {}
        self._best_known: dict[str, str] = {}
        named = [subject for subject, relation in self._ends if relation == _NAME]
        for mid in sorted(named, key=self._prominence, reverse=True):
            self._best_known.setdefault(self.name(mid).casefold(), mid)
        self._graph = OxigraphStore.open(demo_store_directory())
        self._runner = PathRunner(self._graph, lambda: _LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._graph.close()

    def ranked(self, type_id: str) -> tuple[str, ...]:
        """List a type's entities, the most populous or else most connected first.

        Entities that share their name with a better known one are left out: Cambridge never means
        the one in Ohio.
        """
        if type_id not in self._ranked:
            members = sorted(self._members[type_id], key=self._prominence, reverse=True)
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

    def says(self, crp: Crp) -> bool | None:
        """Run a CRP over names; each means the best known entity of that name.

        Returns:
            Yes or no if the CRP asks for it, else True; None if it has no answer.
        """
        grounded = crp.with_entities(self._linked)
        outcome = self._runner.run(grounded)
        if outcome is None and crp.form == "ask" and is_reachable(self._graph, grounded, _LIMIT_S):
            outcome = self._runner.run_unsatisfied(grounded)
        if outcome is None:
            return None
        return True if outcome.boolean is None else outcome.boolean

    def answers(self, crp: Crp) -> list[str]:
        """List the answers of a CRP over names: mids, and the text of literals."""
        outcome = self._runner.run(crp.with_entities(self._linked))
        rows = outcome.table.rows if outcome else ()
        return [end.text if isinstance(end, LiteralTerm) else end for [end] in rows if end]

    def _linked(self, entity: Entity) -> Entity:
        if entity.name is None:
            return entity
        return Entity(entity.name, self._best_known[entity.name.casefold()])

    def _read(self, line: bytes) -> None:
        # Our own file, so it needs none of the checks of a dump.
        first, second, end, _ = line.split(b"\t")
        subject, relation = first[_OPEN:-1].decode(), second[_OPEN:-1].decode()
        literal = literal_parts(end) if end.startswith(b'"') else None
        node = literal.text if literal else end[_OPEN:-1].decode()
        self._degrees[subject] += 1
        self._ends[subject, relation].append(node)
        if relation == _TYPE:
            self._members[node].append(subject)

    def _prominence(self, mid: str) -> tuple[float, int, str]:
        people = [
            float(number)
            for node in self.ends(mid, _POPULATION)
            for number in self.ends(node, _NUMBER)
        ]
        return max(people, default=0.0), self._degrees[mid], mid
