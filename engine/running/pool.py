"""More candidates for a question: paths that a search of the graph finds, beside the written ones.

The model writes what it has seen in training. The search reads the graph, and so it also finds
relations that the model does not know. What was written already is left out, by meaning. Each path
that is found is a candidate twice: with the constraints of the best written path, and without any.
The first paths of both kinds are candidates with one more condition as well.

- **Carry.** A constraint's position means nothing on another path: the node that it means is the
  one that has its relation. So a constraint goes where the graph has its first relation, if
  possible as far from the answer as before. One whose relation fits no node is dropped and
  reported. RouterKGQA §3.3 replaces only the main path; its code keeps the constraints as they are,
  whatever their variables then mean.
- **Narrow.** Of *films with Adam Sandler that feature the song Hallo Hallo* a path may list all his
  films. So where the question names an entity, a number, a date or a code of which a path says
  nothing, the graph is asked how nodes of the path are related to it. Each such relation is a
  condition.
- **Measure.** Of *the EU country with the smallest army* a path may list all members, or order them
  by their area. So where a question asks for an end of an order or compares with a value
  (`kbqa.engine.questions.operators`), the graph says which numbers and dates the path's answers
  have, and those whose relations are most like the question are tried.

Source: Yih et al. 2015, STAGG, §3.2.3, adds constraints and an order to the nodes of a chain like
this; Bao et al. 2016, MulCG, adds comparisons as well. RnG-KBQA (Ye et al. 2022) and TIARA (Shu et
al. 2022) also join enumerated with written paths, but they enumerate first, and write once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from kbqa.engine.asked import Asked
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import Frontiers, RelationPath, relation_path
from kbqa.engine.linking.linker import stems
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.questions.measures import VALUE_KINDS, Bound, Kind, Measure, find_measures
from kbqa.engine.running.search import (
    HOP_COST,
    Guide,
    PathSearch,
    ScoredPath,
    SearchWidths,
    search_topics,
    unnamed_entities,
    unnamed_values,
    without_mentions,
)
from kbqa.engine.running.tried import Tried
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema, is_telling
from kbqa.sparql.crp import (
    AnyPart,
    Constraint,
    Crp,
    Entity,
    Form,
    Hop,
    NodeRef,
    Part,
    Step,
    Test,
    changed_constraints,
    compare_with,
)
from kbqa.sparql.forms import render_crp
from kbqa.sparql.terms import LiteralTerm, Term
from kbqa.sparql.values import equal_literals, is_date, is_number, values_block


@dataclass(frozen=True, slots=True)
class Carried:
    """A repaired CRP.

    Attributes:
        crp: The new path, with the constraints that could be carried over. A yes/no question whose
            tests could not be carried becomes a list.
        lost: Constraints that could not, as the failed CRP had them.
    """

    crp: Crp
    lost: tuple[Part, ...]


def carry_constraints(failed: Crp, path: RelationPath, frontiers: Frontiers) -> Carried:
    """Put the constraints of a grounded CRP on another path.

    Args:
        failed: The CRP whose main path is replaced; constraints within its forks go with these.
        path: A path that exists in the graph.
        frontiers: Of that graph.

    Raises:
        GraphError: The graph does not answer.
    """
    places = _Places(failed, path, frontiers)
    carried: dict[Constraint, Constraint] = {}
    for constraint in failed.constraints:
        if (moved := places.move(constraint)) is not None:
            carried[constraint] = places.with_references(moved)
    order = failed.order and places.move(failed.order)
    # What refers to a lost branch is lost with it, and so is a branch with a label that nothing
    # refers to any more; and so on, until what is left needs nothing that is lost.
    while True:
        labels = _labels(carried.values())
        if order is not None and isinstance(order.at, str) and order.at not in labels:
            order = None
        used = {label for new in carried.values() for label in _references(new)}
        used |= {order.at} if order is not None and isinstance(order.at, str) else set()
        kept = {
            old: new
            for old, new in carried.items()
            if _references(new) <= labels and _labels([new]) <= used
        }
        if len(kept) == len(carried):
            break
        carried = kept
    # Without what it asks, a yes/no question would only ask whether the path exists.
    is_whole = all(each in carried for each in failed.asked)
    crp = Crp(
        path.topic,
        path.hops,
        tuple(carried.values()),
        order,
        None if failed.differs_from is None else 0,
        failed.answer_language,
        failed.form if is_whole else "select",
    )
    lost: list[Part] = [each for each in failed.constraints if each not in carried]
    if failed.order is not None and order is None:
        lost.append(failed.order)
    return Carried(crp, tuple(lost))


class _Places:
    """Finds the node of the new path that a node of the failed one meant."""

    def __init__(self, failed: Crp, path: RelationPath, frontiers: Frontiers) -> None:
        self._failed, self._path, self._frontiers = failed, path, frontiers

    def move(self, part: AnyPart) -> AnyPart | None:
        """Copy a constraint or the ordering to where it belongs, if anywhere."""
        if not isinstance(part.at, int):
            return part
        place = self._place(part.at, part.hops)
        return None if place is None else replace(part, at=place)

    def with_references(self, constraint: Constraint) -> Constraint:
        """Point what compares with a node to that node's new position."""
        [changed] = changed_constraints(
            (constraint,), lambda each: each.with_reference(self._moved)
        )
        return changed

    def _place(self, position: int, hops: Sequence[Hop]) -> int | None:
        likely = self._likely(position)
        if not hops:
            return likely[0]
        return next((place for place in likely if self._has(place, hops[0])), None)

    def _likely(self, position: int) -> list[int]:
        """List the new path's positions, the likeliest first."""
        last = len(self._path.hops)
        if position == 0:
            return list(range(last + 1))
        meant = last - (self._failed.answer - position)
        return sorted(range(last, -1, -1), key=lambda place: abs(place - meant))

    def _has(self, place: int, hop: Hop) -> bool:
        before = RelationPath(self._path.topic, self._path.hops[:place])
        return bool(self._frontiers.nodes(before)) and self._frontiers.exists(before.then(hop))

    def _moved(self, reference: NodeRef) -> NodeRef:
        if isinstance(reference.node, str):
            return reference
        return NodeRef(self._likely(reference.node)[0])


def _labels(constraints: Iterable[Constraint]) -> set[str]:
    return {label for constraint in constraints for label in constraint.labels()}


def _references(constraint: Constraint) -> set[str]:
    return {node for node in constraint.references() if isinstance(node, str)}


_CODE = "type.enumeration"
"""A key of another database, such as ISO's number; measured only if the question says its name."""

_KINDS: dict[str | None, Kind] = {**VALUE_KINDS, _CODE: "number"}
"""What values are, by the expected type of their relation."""

_COORDINATES = "location.geocode."
"""Relations whose numbers say where something is, not how much."""

_MEASURED_EACH = 3
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
            for place, way in islice(self._ways(path, measure), _MEASURED_EACH):
                if isinstance(measure, Bound):
                    test = compare_with(measure.operator, measure.value)
                    condition = Constraint(place, way, test)
                    yield replace(crp, constraints=(*crp.constraints, condition))
                elif crp.form == "select":
                    yield crp.ordered_by(place, way, descending=measure.descending)

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


_Target: TypeAlias = Entity | LiteralTerm

_Ways: TypeAlias = Mapping[str, Sequence[tuple[Hop, ...]]]
"""Nodes, each with the ways that lead from it to one target."""

_MAX_EDGES = 1000
"""A target with more edges is looked for among those of the path's nodes instead."""

_MAX_NODES = 50
"""The most nodes whose edges are then looked up."""

_EACH = 2
"""The most conditions that one target adds to a path."""


class Narrower:
    """Adds conditions to the paths of one question.

    Args:
        graph: The graph.
        schema: Of that graph.
        frontiers: Of that graph, for the question.
    """

    def __init__(self, graph: Graph, schema: GraphSchema, frontiers: Frontiers) -> None:
        self._graph, self._schema, self._frontiers = graph, schema, frontiers
        self._ways: dict[_Target, _Ways | None] = {}

    def find(self, asked: Asked, crp: Crp) -> Iterator[Crp]:
        """Yield a path with one more condition, for each that narrows it.

        Args:
            asked: The question.
            crp: A grounded path that lists or counts; others have none.

        Raises:
            GraphError: The graph does not answer.
        """
        path = relation_path(crp)
        if path is None or crp.form == "ask":
            return
        targets: list[_Target] = [*unnamed_entities(asked, crp), *unnamed_values(asked, crp)]
        for target in targets:
            for place, way in islice(self._conditions(path, target), _EACH):
                condition = Constraint(place, way, _test(target))
                yield replace(crp, constraints=(*crp.constraints, condition))

    def _conditions(
        self, path: RelationPath, target: _Target
    ) -> Iterator[tuple[int, tuple[Hop, ...]]]:
        """Yield where a path has ways to a target, and which, from the answer backwards."""
        for place in range(len(path.hops), 0, -1):
            nodes = self._frontiers.nodes(RelationPath(path.topic, path.hops[:place]))
            for way in self._narrowing(nodes, target):
                yield place, way

    def _narrowing(self, nodes: Sequence[str], target: _Target) -> list[tuple[Hop, ...]]:
        """List ways to a target that some of the nodes have, and others do not, shortest first.

        Of ways that the same nodes have, the first counts.
        """
        with_way: dict[tuple[Hop, ...], set[str]] = defaultdict(set)
        ways = self._ways_to(target, nodes)
        for node in nodes:
            for way in ways.get(node, ()):
                with_way[way].add(node)
        first: dict[frozenset[str], tuple[Hop, ...]] = {}
        for way, having in sorted(with_way.items(), key=lambda item: (len(item[0]), str(item[0]))):
            if len(having) < len(nodes):
                first.setdefault(frozenset(having), way)
        return list(first.values())

    def _ways_to(self, target: _Target, nodes: Sequence[str]) -> _Ways:
        if target not in self._ways:
            self._ways[target] = self._all_ways(target)
        ways = self._ways[target]
        if ways is not None:
            return ways
        edges = self._graph.edges(nodes[:_MAX_NODES], "out", _MAX_EDGES)
        terms = _terms(target)
        return {
            node: [(Hop(each),) for each, ends in of_node.items() if not terms.isdisjoint(ends)]
            for node, of_node in edges.items()
        }

    def _all_ways(self, target: _Target) -> _Ways | None:
        """Follow the edges of a target back, over mediators too; None if it has too many."""
        if isinstance(target, Entity):
            assert target.mid is not None
            entering = self._hops_to([target.mid])
        else:
            entering = self._hops_to_value(target)
        if entering is None:
            return None
        ways: dict[str, list[tuple[Hop, ...]]] = defaultdict(list)
        mediators: dict[str, Hop] = {}
        for node, hop, _ in entering:
            ways[node].append((hop,))
            if self._schema.leads_to_mediator(Hop(hop.relation, not hop.inverse)):
                mediators[node] = hop
        for node, hop, mediator in self._hops_to(list(mediators)[:_MAX_NODES]) or ():
            if node not in _terms(target):
                ways[node].append((hop, mediators[mediator]))
        return ways

    def _hops_to(self, mids: Sequence[str]) -> list[tuple[str, Hop, str]] | None:
        """List neighbours of entities with the hop back; None if none of them has few enough."""
        leaving, entering = (self._graph.edges(mids, each, _MAX_EDGES) for each in ("out", "in"))
        if not entering:
            return None
        return [
            (end, Hop(relation, is_inverse), mid)
            for found, is_inverse in ((leaving, True), (entering, False))
            for mid, edges in found.items()
            for relation, ends in edges.items()
            for end in ends
            if isinstance(end, str)
        ]

    def _hops_to_value(self, value: LiteralTerm) -> list[tuple[str, Hop, str]] | None:
        """List the entities with a value, and their relations to it; None if there are too many."""
        block = values_block("?value", _literals(value))
        query = f"SELECT ?node ?relation {{ {block} ?node ?relation ?value }}"
        found = self._graph.select(query, limit=_MAX_EDGES)
        if found.truncated:
            return None
        edges = [(str(node), str(relation)) for node, relation in found.rows]
        return [(node, Hop(each), value.text) for node, each in edges if is_telling(each)]


def _terms(target: _Target) -> set[Term]:
    """Return all terms of the graph that a target may be."""
    if isinstance(target, LiteralTerm):
        return set(_literals(target))
    return {target.mid} if target.mid is not None else set()


def _literals(value: LiteralTerm) -> tuple[LiteralTerm, ...]:
    if _is_number_or_date(value):
        return equal_literals(value)
    return (value, replace(value, language="en"))


def _test(target: _Target) -> Test:
    if isinstance(target, LiteralTerm) and not _is_number_or_date(target):
        return compare_with("=", target.text)
    return compare_with("=", target)


def _is_number_or_date(value: LiteralTerm) -> bool:
    return is_date(value) or is_number(value)


_NARROWED = 3
"""Written paths, and as many searched ones, to which conditions are added."""

_MEASURED = 5
"""The same for orders and comparisons, which fewer questions ask for."""

_DEPTH = 2
"""Hops that are searched, and one more if the last leads through a mediator."""


class PathPool:
    """Adds the paths of a search to the candidates. Any number of threads may use one.

    Args:
        graph: The graph.
        embedder: Compares paths with questions.
        asking: Knows which relations words ask for.
        paths: The most paths to add; each may be there with and without constraints.

    Raises:
        StoreError: The store's schema is missing or broken.
    """

    def __init__(
        self, graph: Graph, embedder: Embedder, asking: LinkingModel, paths: int = 5
    ) -> None:
        self._graph, self._embedder, self._asking = graph, embedder, asking
        self._schema = GraphSchema(graph)
        self._widths = SearchWidths(candidates=paths)

    def settings(self) -> Mapping[str, object]:
        """Return what decides its paths, for manifests."""
        return {"paths": self._widths.candidates, "embedder": self._embedder.name}

    def find(self, asked: Asked, tried: Sequence[Tried]) -> list[Candidate]:
        """Search the graph for what was not written: paths, and what can be added to paths.

        Args:
            asked: The question.
            tried: The written candidates, as they fared, best first.

        Returns:
            Searched paths, the most similar to the question first, then paths with a condition, an
            order or a comparison more.

        Raises:
            GraphError: The graph does not answer.
            DeadlineExceeded: The question's deadline has passed.
        """
        written = [each.crp for each in tried if each.crp is not None]
        topics = search_topics(asked, written)
        frontiers = Frontiers(asked.bounded(self._graph), self._schema)
        known = {self._meaning(crp) for crp in written}
        found: list[Candidate] = []

        def add(crp: Crp, rank: int, starts: tuple[str, ...], *, narrows: bool) -> None:
            if (meaning := self._meaning(crp)) not in known:
                known.add(meaning)
                found.append(Candidate(render_crp(crp), 0.0, 1, starts, rank, narrows))

        words = without_mentions(asked, topics)
        relations = self._asking.asked_relations(stems(words))
        guide = Guide(words, (words,), relations, HOP_COST)
        search = PathSearch(frontiers, self._schema, self._embedder, guide, self._widths)
        searched = _searched(search, topics)
        for rank, scored in enumerate(searched):
            for crp in _candidates(scored.path, written, frontiers):
                add(crp, rank, scored.path.starts, narrows=False)
        paths = [Crp(each.path.topic, each.path.hops) for each in searched]
        narrower = Narrower(asked.bounded(self._graph), self._schema, frontiers)
        for rank, crp in enumerate([*_narrowable(tried), *paths[:_NARROWED]]):
            for narrowed in narrower.find(asked, crp):
                add(narrowed, rank, (), narrows=True)
        measurer = Measurer(self._schema, frontiers, search, words)
        for rank, crp in enumerate([*_measurable(written), *paths[:_MEASURED]]):
            for measured in measurer.find(crp):
                add(measured, rank, (), narrows=True)
        return found

    def _meaning(self, crp: Crp) -> str:
        """Write a CRP so that the two names of an edge make no difference on its main path."""
        hops = [step for step in crp.path if isinstance(step, Hop)]
        if len(hops) == len(crp.path):
            crp = replace(crp, path=self._schema.canonical(hops))
        return render_crp(crp)


def _searched(search: PathSearch, topics: Sequence[Entity]) -> list[ScoredPath]:
    """Find the paths most similar to the question, best first."""
    beam, found = [RelationPath(topic) for topic in topics], list[ScoredPath]()
    for _ in range(_DEPTH):
        longer = search.extend(beam)
        found += longer
        unfinished = search.best(each for each in longer if len(each.path.hops) < _DEPTH)
        beam = [each.path for each in unfinished[: search.widths.beam]]
    return search.best(found)


def _measurable(written: Sequence[Crp]) -> list[Crp]:
    """Return the first written paths without their orders and comparisons, each main path once."""
    bare: dict[tuple[tuple[Step, ...], Form], Crp] = {}
    for crp in written:
        if crp.form != "ask":
            kept = tuple(filter(_stands_alone, crp.constraints))
            bare.setdefault((crp.path, crp.form), replace(crp, constraints=kept, order=None))
    return list(bare.values())[:_MEASURED]


def _stands_alone(constraint: Constraint) -> bool:
    """Return whether a constraint says what a node is, and shares no label with other parts."""
    shared = [each for each in constraint.references() if isinstance(each, str)]
    return constraint.kind == "entity" and not shared and not any(constraint.labels())


def _narrowable(tried: Sequence[Tried]) -> list[Crp]:
    """Return the first written paths that list several answers, one for each main path.

    The very first is there without its constraints as well, which may be wrong.
    """
    lists: dict[tuple[Step, ...], Crp] = {}
    for each in tried:
        if each.crp is not None and len(set(each.terms)) > 1:
            lists.setdefault(each.crp.path, each.crp)
    first = list(lists.values())[:_NARROWED]
    return [*first, *(Crp(crp.topic, crp.path) for crp in first[:1] if crp.constraints)]


def _candidates(path: RelationPath, written: Sequence[Crp], frontiers: Frontiers) -> Iterator[Crp]:
    if written:
        yield carry_constraints(written[0], path, frontiers).crp
    yield Crp(path.topic, path.hops)
