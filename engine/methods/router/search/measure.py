"""Add to a path what the question measures: an order, or a value to compare with.

A written path may lack it, or measure by a relation that the graph does not have there. Of *the EU
country with the smallest army* it then lists all members, or orders them by their area. So where a
question asks for an end of an order or compares with a value (`kbqa.engine.questions.measures`),
the graph says which numbers and dates the path's answers have. Those whose relations are most like
the question are tried, each as one more candidate.

Source: Yih et al. 2015, STAGG, §3.2.3, which adds an order to a chain like this; Bao et al. 2016,
MulCG, which adds comparisons as well.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from kbqa.engine.exploring.frontiers import Frontiers, RelationPath, relation_path
from kbqa.engine.linking.features import stems
from kbqa.engine.methods.router.search.path_search import PathSearch
from kbqa.engine.questions.measures import Bound, Kind, Measure, find_measures
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Compare, Constraint, Crp, Hop, Order

_CODE = "type.enumeration"
"""A key of another database, such as ISO's number; measured only if the question says its name."""

_KINDS: dict[str | None, Kind] = {
    "type.datetime": "date",
    "type.int": "number",
    "type.float": "number",
    _CODE: "number",
}
"""What values are, by the expected type of their relation."""

_COORDINATES = "location.geocode."
"""Relations whose numbers say where something is, not how much."""

_EACH = 3
"""The most relations that one measure is tried with on a path."""

_MEDIATORS = 4
"""Hops to mediators that are followed for values behind them."""


class Measurer:
    """Adds orders and comparisons to the paths of one question.

    Args:
        schema: Of the graph.
        frontiers: Of that graph, for the question.
        search: Compares paths with the question.
        words: Of the question, without those that name its topics.
    """

    def __init__(
        self, schema: GraphSchema, frontiers: Frontiers, search: PathSearch, words: str
    ) -> None:
        self._schema, self._frontiers, self._search = schema, frontiers, search
        self._measures, self._stems = find_measures(words), set(stems(words))

    def find(self, crp: Crp) -> Iterator[Crp]:
        """Yield a path with each measure, by each of the relations most like the question.

        Args:
            crp: A grounded path that lists or counts, without measures of its own.

        Raises:
            GraphError: The graph does not answer.
        """
        path = relation_path(crp)
        if not self._measures or path is None or len(self._frontiers.nodes(path)) < 2:
            return
        for measure in self._measures:
            for place, way in islice(self._ways(path, measure), _EACH):
                if isinstance(measure, Bound):
                    test = Compare(measure.operator, measure.value)
                    condition = Constraint(place, way, test)
                    yield replace(crp, constraints=(*crp.constraints, condition))
                elif crp.form == "select":
                    yield replace(crp, order=Order(place, way, measure.descending))

    def _ways(self, path: RelationPath, measure: Measure) -> Iterator[tuple[int, tuple[Hop, ...]]]:
        """Yield where a path has ways to values, and which, those most like the question first."""
        places = {
            RelationPath(path.topic, way): place
            for place in self._places(path)
            for way in self._ways_from(RelationPath(path.topic, path.hops[:place]), measure)
        }
        for scored in self._search.score(list(places)):
            yield places[scored.path], scored.path.hops

    def _places(self, path: RelationPath) -> Iterator[int]:
        """Yield the positions of a path's answer, and of the mediator before it."""
        last = len(path.hops)
        yield last
        if last > 1 and self._frontiers.ends_at_mediator(RelationPath(path.topic, path.hops[:-1])):
            yield last - 1

    def _ways_from(self, path: RelationPath, measure: Measure) -> Iterator[tuple[Hop, ...]]:
        """Yield the ways from a path's end to values that can be measured so."""
        mediators = []
        for hop in self._frontiers.hops(path):
            if self._is_measured(hop, measure):
                yield (hop,)
            elif self._schema.leads_to_mediator(hop):
                mediators.append(RelationPath(path.topic, (hop,)))
        for scored in self._search.score(mediators)[:_MEDIATORS]:
            hop = scored.path.hops[0]
            for onward in self._frontiers.hops(path.then(hop)):
                if self._is_measured(onward, measure):
                    yield (hop, onward)

    def _is_measured(self, hop: Hop, measure: Measure) -> bool:
        stated = self._schema.of([hop.relation]).property(hop.relation)
        if stated is None or hop.inverse or hop.relation.startswith(_COORDINATES):
            return False
        if stated.expected_type == _CODE and self._stems.isdisjoint(_name_stems(hop.relation)):
            return False
        kind = _KINDS.get(stated.expected_type)
        return kind is not None and measure.measures(kind)


def _name_stems(relation: str) -> Iterable[str]:
    return stems(relation.rpartition(".")[2].replace("_", " "))
