"""More candidates for a question: paths that a search of the graph finds, beside the written ones.

The model writes what it has seen in training. The search reads the graph, and so it also finds
relations that the model does not know. What was written already is left out, by meaning. Each path
that is found is a candidate twice: with the constraints of the best written path, and without any.
The first paths of both kinds are candidates with one more condition as well.

- **Narrow.** Of *films with Adam Sandler that feature the song Hallo Hallo* a path may list all his
  films. So where the question names an entity, a number, a date or a code of which a path says
  nothing, the graph is asked how nodes of the path are related to it. Each such relation is a
  condition.
- **Except.** Where the question says *other than* or the like, the answers are none of what it
  names behind.
- **Add up.** Of *how much bigger is Sudan than Kenya* a path may lead to the area of Sudan, or say
  whether it is larger. So where a question asks for a sum, an average or a difference, written
  paths to numbers become that of their numbers: of the things that a path leads to before them, or
  of those that the question names together.
- **Measure.** Of *the EU country with the smallest army* a path may list all members, or order them
  by their area. So where a question asks for an end of an order or compares with a value, the graph
  says which numbers and dates the path's answers have, and those whose relations are most like the
  question are tried. *Larger than France* compares with the value of France.

Source: Yih et al. 2015, STAGG, §3.2.3, adds constraints and an order to the nodes of a chain like
this; Bao et al. 2016, MulCG, adds comparisons as well. RnG-KBQA (Ye et al. 2022) and TIARA (Shu et
al. 2022) also join enumerated with written paths, but they enumerate first, and write once.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache, partial
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

from kbqa.engine.asked import Asked
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import Frontiers, RelationPath, relation_path
from kbqa.engine.linking.linker import LinkedEntity, stems
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.questions.words import (
    VALUE_KINDS,
    Bound,
    EntityBound,
    Kind,
    Measure,
    Period,
    Total,
    find_directions,
    find_measures,
)
from kbqa.engine.running.search import (
    HOP_COST,
    Guide,
    GuidedSearch,
    ScoredPath,
    SearchWidths,
    carry_constraints,
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
    Aggregate,
    AnyOf,
    Constraint,
    Crp,
    Entity,
    Form,
    Hop,
    IsEntity,
    NodeRef,
    Operator,
    Step,
    Test,
    compare_with,
)
from kbqa.sparql.forms import render_crp
from kbqa.sparql.relax import compared_entities
from kbqa.sparql.terms import TYPE, LiteralTerm, Term
from kbqa.sparql.values import equal_literals, is_date, is_number, values_block

_NARROWED = 3
"""Written paths, and as many searched ones, to which conditions are added."""

_MEASURED = 5
"""The same for orders and comparisons, which fewer questions ask for."""

_NAMESAKES = 4
"""Entities of one mention, the likeliest first, of which the most like the others is meant."""

_LEAST_SCORE = 0.001
"""The linker's score below which a mention names a kind of thing, such as *the countries*."""

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
            tried: The written candidates and what they lead to, best first.

        Returns:
            Searched paths, the most similar to the question first, then paths with a condition, an
            order or a comparison more.

        Raises:
            GraphError: The graph does not answer.
            DeadlineExceeded: The question's deadline has passed.
        """
        written = [each.crp for each in tried if each.crp is not None]
        topics = search_topics(asked, written)
        words = without_mentions(asked, topics)
        guide = Guide(words, (words,), self._asking.asked_relations(stems(words)), HOP_COST)
        graph, schema = self._graph, self._schema
        frontiers = Frontiers(graph, schema)
        search = GuidedSearch(frontiers, schema, self._embedder, guide, self._widths)
        known = {self._meaning(crp) for crp in written}
        found: list[Candidate] = []

        def add(crp: Crp, rank: int, starts: tuple[str, ...], *, narrows: bool) -> None:
            if (meaning := self._meaning(crp)) not in known:
                known.add(meaning)
                found.append(Candidate(render_crp(crp), 0.0, 1, starts, "search", rank, narrows))

        searched = _searched(search, topics)
        for rank, scored in enumerate(searched):
            for crp in _candidates(scored.path, written, frontiers):
                add(crp, rank, scored.path.starts, narrows=False)
        paths = [Crp(each.path.topic, each.path.hops) for each in searched]
        together = named_together(asked, graph)
        ways_to = cache(partial(find_ways, graph, schema))
        measures = [*find_measures(words), *_entity_bounds(asked)]
        for rank, crp in enumerate([*_narrowable(tried), *paths[:_NARROWED]]):
            for narrowed in narrow(asked, crp, frontiers, ways_to):
                add(narrowed, rank, (), narrows=True)
        if excepted := _excepted(asked):
            for rank, crp in enumerate([*_lists(written), *paths[:_NARROWED]]):
                others = excepted.difference(crp.entities())
                add(crp.without_answers(sorted(others, key=str)), rank, (), narrows=True)
        for rank, crp in enumerate([*_measurable(written), *paths[:_MEASURED]]):
            for measured in measure(words, measures, crp, search):
                if measured.value is None or not together.entities:
                    add(measured, rank, (), narrows=True)
        return found

    def _meaning(self, crp: Crp) -> str:
        """Write a CRP so that the two names of an edge make no difference on its main path."""
        if len(crp.hops) == len(crp.path):
            crp = replace(crp, path=self._schema.canonical(crp.hops))
        return render_crp(crp)


_CONJUNCTION = re.compile(
    r"<(\d+)>(?:(?:'s?)?(?: [a-z]+){0,2},? (?:and|than) |, )"
    r"(?:(?:the|that|in|of|at|from|does|do|is|are) ){0,3}(?=<(\d+)>)"
)
_TO_MEMBERS = Hop(TYPE, inverse=True)
_NUMBERS = "value"  # the label of what is added up
_OTHER = "other"  # the label of the value that is compared with


class Together(NamedTuple):
    """Entities that a question names together, and the classes that all of them are of."""

    entities: tuple[Entity, ...] = ()
    classes: frozenset[str] = frozenset()

    def topic(self, domain: str | None) -> Entity:
        """Return the class from which a path to them starts: this one, or else a telling one."""
        is_general = re.compile(r"base\.|user\.|common\.|type\.").match
        known = min(self.classes, key=lambda each: (is_general(each) is not None, each))
        return Entity(mid=domain if domain in self.classes else known)


def add_up(
    asked: Asked, form: Aggregate, tried: Sequence[Tried], graph: Graph, schema: GraphSchema
) -> list[Candidate]:
    """Turn written candidates into the sum, average or difference of their numbers.

    Args:
        asked: The question.
        form: What it asks for.
        tried: The written candidates, as they were run.
        graph: Tells what is named together.
        schema: Of the graph; says which relations lead to numbers.

    Returns:
        As many candidates. One stays as it is if it leads to no numbers, or to those of another.

    Raises:
        GraphError: The graph does not answer.
    """
    together = named_together(asked, graph)
    candidates, known = list[Candidate](), set[Crp]()
    for each in tried:
        crp = None if each.crp is None else _added_up(each.crp, form, together, schema)
        if crp is None or crp in known:
            candidates.append(each.candidate)
        else:
            known.add(crp)
            candidates.append(replace(each.candidate, text=render_crp(crp)))
    return candidates


def named_together(asked: Asked, graph: Graph) -> Together:
    """Find the entities that a question joins by *and* or *than*.

    Of namesakes, that is meant which has most types of the likeliest entity; of those that have the
    same, the one with most neighbours of what else the question names.
    """
    linked = [each for each in asked.linked if each.score >= _LEAST_SCORE]
    text, mentions = asked.question.lower(), list[str]()
    names = {each.mention.lower() for each in linked}
    for mention in sorted(names, key=len, reverse=True):
        if " and " in mention and names.issuperset(mention.split(" and ")):
            continue  # "Norway and Sweden", which was a union once
        text, found = re.subn(rf"(?<![\w<]){re.escape(mention)}(?!\w)", f"<{len(mentions)}>", text)
        if found:
            mentions.append(mention)
    pairs = [map(int, match.groups()) for match in _CONJUNCTION.finditer(text)]
    joined = [mentions[at] for at in dict.fromkeys(chain.from_iterable(pairs))]
    if not joined:
        return Together()
    named = [[e for e in linked if e.mention.lower() == each][:_NAMESAKES] for each in joined]
    others = [each.mid for each in linked if each.mention.lower() not in joined]
    mids = [e.mid for each in named for e in each]
    found_types = graph.neighbours_of_each([(mid, TYPE) for mid in mids], "out")
    types = {mid: {str(each) for each in found_types[mid, TYPE]} for mid in mids}
    ends: Mapping[str, Set[Term]] = {}
    if others and len(mids) > len(named):
        edges = graph.edges([*others, *mids], "out", _MAX_EDGES)
        ends = {mid: set(chain.from_iterable(of.values())) for mid, of in edges.items()}
    around = {*others, *(end for mid in others for end in ends.get(mid, ()))}
    likeliest = max((each[0] for each in named), key=lambda e: e.score).mid

    def likeness(entity: LinkedEntity) -> tuple[int, int]:
        mid = entity.mid
        return len(types[mid] & types[likeliest]), len(around & ends.get(mid, set()))

    chosen = [max(each, key=likeness) for each in named]
    classes = frozenset(set.intersection(*(types[each.mid] for each in chosen)))
    if not classes or len({each.mid for each in chosen}) < 2:
        return Together()
    return Together(tuple(Entity(each.name, each.mid) for each in chosen), classes)


def _added_up(crp: Crp, form: Aggregate, together: Together, schema: GraphSchema) -> Crp | None:
    """Return the sum, average or difference of the numbers of a grounded path, if it has any."""
    if crp.value is not None or len(crp.hops) < len(crp.path):
        return None
    path, order = crp.hops, crp.order
    hops: tuple[Hop, ...] = ()
    if order is not None and order.at == crp.answer and not order.counted and not order.offset:
        hops = order.hops
    elif order is None and _leads_to_number(path, schema):
        is_mediated = len(path) > 1 and schema.leads_to_mediator(path[-2])
        hops = path[-2:] if is_mediated else path[-1:]
        path = path[: -len(hops)]
    is_counted = form == "sum" and crp.form == "count" and not hops
    if not (is_counted or _leads_to_number(hops, schema)):
        return None
    constraints = list(filter(_stands_alone, crp.constraints))
    topic = crp.topic
    if together.entities:
        named = {each.mid for each in together.entities}
        if any(each.mid in named for each in compared_entities(crp)):
            path, constraints = (), []
        elif topic.mid not in named:
            return None
        others = named - {topic.mid}
        constraints = [
            replace(each, at=each.at + 1)
            for each in constraints
            if isinstance(each.at, int)
            and each.at <= len(path)
            and others.isdisjoint(entity.mid for entity in each.entities())
        ]
        are_named = AnyOf(tuple((Constraint(0, (), IsEntity(each)),) for each in together.entities))
        topic = together.topic(schema.start((*path, *hops)[0]))
        path = (_TO_MEMBERS, *path)
        constraints.insert(0, Constraint(1, (), are_named))
    elif (
        form == "difference"
        or not path
        or crp.form != "select"
        or len(constraints) < len(crp.constraints)
        or any(isinstance(each.at, int) and each.at > len(path) for each in constraints)
    ):
        return None
    if is_counted:
        return Crp(topic, path, tuple(constraints), form="count")
    constraints.append(Constraint(len(path), hops, None, label=_NUMBERS))
    return Crp(topic, path, tuple(constraints), form=form, value=_NUMBERS)


def _leads_to_number(hops: Sequence[Hop], schema: GraphSchema) -> bool:
    return bool(hops) and VALUE_KINDS.get(schema.end(hops[-1])) == "number"


def _searched(search: GuidedSearch, topics: Sequence[Entity]) -> list[ScoredPath]:
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
        if crp.form != "ask" and crp.value is None:
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


_EXCEPT = re.compile(
    r"\b(?:except|excluding|apart from|other than|besides|aside from|not including)\b",
    re.IGNORECASE,
)


def _excepted(asked: Asked) -> set[Entity]:
    """Return the likeliest entity of each mention behind *other than* or the like."""
    match = _EXCEPT.search(asked.question)
    behind = "" if match is None else asked.question[match.end() :]
    first: dict[str, Entity] = {}
    for each in asked.linked:
        if re.search(rf"(?<!\w){re.escape(each.mention)}(?!\w)", behind):
            first.setdefault(each.mention, Entity(each.name, each.mid))
    is_part = {mention for mention in first for other in first if mention in other != mention}
    return {entity for mention, entity in first.items() if mention not in is_part}


def _lists(written: Iterable[Crp]) -> list[Crp]:
    """Return the first written paths that list, without what they exclude, each path once."""
    bare: dict[tuple[Step, ...], Crp] = {}
    for crp in written:
        if crp.form == "select":
            kept = (e for e in crp.constraints if e.operator != "!=" and not e.negated)
            bare.setdefault(crp.path, replace(crp, constraints=tuple(filter(_stands_alone, kept))))
    return list(bare.values())[:_NARROWED]


def _candidates(path: RelationPath, written: Sequence[Crp], frontiers: Frontiers) -> Iterator[Crp]:
    if written:
        yield carry_constraints(written[0], path, frontiers).crp
    yield Crp(path.topic, path.hops)


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


_THAN = re.compile(r"\bth[ae]n (?:(?:that|those|in|of|the) ){0,3}", re.IGNORECASE)


def _entity_bounds(asked: Asked) -> list[EntityBound]:
    """Return a bound by the likeliest entity that the question names right behind *than*."""
    match = _THAN.search(asked.question)
    behind = "" if match is None else asked.question[match.end() :].lower()
    named = [e for e in asked.linked if behind.startswith(e.mention.lower().removeprefix("the "))]
    return [EntityBound(Entity(each.name, each.mid)) for each in named[:1]]


def measure(
    words: str, measures: Sequence[Measure], crp: Crp, search: GuidedSearch
) -> Iterator[Crp]:
    """Yield a path with each measure of a question, by the relations most like the question.

    Args:
        words: Of the question, without those that name its topics.
        measures: Of the question.
        crp: A grounded path that lists or counts, without measures of its own.
        search: Compares paths with the question.
    """
    path = relation_path(crp)
    if not measures or path is None or len(search.frontiers.nodes(path)) < 2:
        return
    for each in measures:
        for place, way in islice(_ways_to_values(words, path, each, search), _MEASURED_EACH):
            if isinstance(each, Bound | Period):
                conditions = (Constraint(place, way, test) for test in _bounds(each))
                yield replace(crp, constraints=(*crp.constraints, *conditions))
            elif crp.form != "select":
                continue
            elif isinstance(each, Total):
                numbers = Constraint(place, way, None, label=_NUMBERS)
                constraints = (*crp.constraints, numbers)
                yield replace(crp, constraints=constraints, form=each.form, value=_NUMBERS)
            elif isinstance(each, EntityBound):
                asked = find_directions(words, _KINDS.get(search.schema.end(way[-1])), orders=False)
                if len(asked) == 1 and crp.topic != each.entity:
                    operator: Operator = ">" if asked == {True} else "<"
                    kept = (e for e in crp.constraints if each.entity not in e.entities())
                    value = Constraint(each.entity, way, None, label=_OTHER)
                    test = Constraint(place, way, compare_with(operator, NodeRef(_OTHER)))
                    yield replace(crp, constraints=(*kept, value, test))
            else:
                yield crp.ordered_by(place, way, descending=each.descending)


def _bounds(measure: Bound | Period) -> tuple[Test, ...]:
    if isinstance(measure, Bound):
        return (compare_with(measure.operator, measure.value),)
    return compare_with(">=", measure.first), compare_with("<", measure.after)


def _ways_to_values(
    words: str, path: RelationPath, measure: Measure, search: GuidedSearch
) -> Iterator[tuple[int, tuple[Hop, ...]]]:
    """Yield where a path has ways to values, and which, those most like the question first.

    A value may be the answer's, or that of the mediator before it.
    """
    last = len(path.hops)
    is_behind = last > 1 and search.frontiers.ends_at_mediator(path.up_to(last - 1))
    places = {
        RelationPath(path.topic, way): place
        for place in ((last, last - 1) if is_behind else (last,))
        for way in _ways_from(words, path.up_to(place), measure, search)
    }
    for scored in search.score(list(places)):
        yield places[scored.path], scored.path.hops


def _ways_from(
    words: str, path: RelationPath, measure: Measure, search: GuidedSearch
) -> Iterator[tuple[Hop, ...]]:
    """Yield the ways from a path's end to values that can be measured so."""
    frontiers, schema = search.frontiers, search.schema
    mediators = []
    for hop in frontiers.hops(path):
        if _is_measured(words, hop, measure, schema):
            yield (hop,)
        elif schema.leads_to_mediator(hop):
            mediators.append(RelationPath(path.topic, (hop,)))
    for scored in search.score(mediators)[:_MEDIATORS]:
        hop = scored.path.hops[0]
        for onward in frontiers.hops(path.then(hop)):
            if _is_measured(words, onward, measure, schema):
                yield (hop, onward)


def _is_measured(words: str, hop: Hop, measure: Measure, schema: GraphSchema) -> bool:
    stated = schema.of([hop.relation]).property(hop.relation)
    if stated is None or hop.inverse or hop.relation.startswith(_COORDINATES):
        return False
    name = hop.relation.rpartition(".")[2].replace("_", " ")
    is_code = stated.expected_type == _CODE or name.endswith("code")
    if is_code and set(stems(words)).isdisjoint(stems(name)):
        return False
    kind = _KINDS.get(stated.expected_type)
    return kind is not None and measure.measures(kind)


Target: TypeAlias = Entity | LiteralTerm
"""What a question names, and a path passes over."""

Ways: TypeAlias = Mapping[str, Sequence[tuple[Hop, ...]]]
"""Nodes, each with the ways that lead from it to one target."""

_MAX_EDGES = 1000
"""A target with more edges is looked for among those of the path's nodes instead."""

_MAX_NODES = 50
"""The most nodes whose edges are then looked up."""

_EACH = 2
"""The most conditions that one target adds to a path."""


def narrow(
    asked: Asked,
    crp: Crp,
    frontiers: Frontiers,
    ways_to: Callable[[Target], Ways | None],
) -> Iterator[Crp]:
    """Yield a path with one more condition, for each that narrows it.

    Args:
        asked: The question.
        crp: A grounded path that lists or counts; others have none.
        frontiers: Of the question.
        ways_to: `find_ways` of the graph.
    """
    path = relation_path(crp)
    if path is None or crp.form == "ask":
        return
    targets: list[Target] = [*unnamed_entities(asked, crp), *unnamed_values(asked, crp)]
    for target in targets:
        conditions = (  # from the answer backwards
            Constraint(place, way, _test(target))
            for place in range(len(path.hops), 0, -1)
            for way in _narrowing(
                frontiers.nodes(path.up_to(place)), target, ways_to(target), frontiers.graph
            )
        )
        for condition in islice(conditions, _EACH):
            yield replace(crp, constraints=(*crp.constraints, condition))


def _narrowing(
    nodes: Sequence[str], target: Target, ways: Ways | None, graph: Graph
) -> list[tuple[Hop, ...]]:
    """List ways to a target that some of the nodes have, and others do not, shortest first.

    Of ways that the same nodes have, the first counts.
    """
    if ways is None:
        terms = _terms(target)
        ways = {
            node: [(Hop(each),) for each, ends in of_node.items() if not terms.isdisjoint(ends)]
            for node, of_node in graph.edges(nodes[:_MAX_NODES], "out", _MAX_EDGES).items()
        }
    with_way: dict[tuple[Hop, ...], set[str]] = defaultdict(set)
    for node in nodes:
        for way in ways.get(node, ()):
            with_way[way].add(node)
    first: dict[frozenset[str], tuple[Hop, ...]] = {}
    for way, having in sorted(with_way.items(), key=lambda item: (len(item[0]), str(item[0]))):
        if len(having) < len(nodes):
            first.setdefault(frozenset(having), way)
    return list(first.values())


def find_ways(graph: Graph, schema: GraphSchema, target: Target) -> Ways | None:
    """Follow the edges of a target back, over mediators too; None if it has too many."""
    if isinstance(target, Entity):
        assert target.mid is not None
        entering = _hops_to(graph, [target.mid])
    else:
        entering = _hops_to_value(graph, target)
    if entering is None:
        return None
    ways: dict[str, list[tuple[Hop, ...]]] = defaultdict(list)
    mediators: dict[str, Hop] = {}
    for node, hop, _ in entering:
        ways[node].append((hop,))
        if schema.leads_to_mediator(hop.back):
            mediators[node] = hop
    for node, hop, mediator in _hops_to(graph, list(mediators)[:_MAX_NODES]) or ():
        if node not in _terms(target):
            ways[node].append((hop, mediators[mediator]))
    return ways


def _hops_to(graph: Graph, mids: Sequence[str]) -> list[tuple[str, Hop, str]] | None:
    """List neighbours of entities with the hop back; None if none of them has few enough."""
    leaving, entering = (graph.edges(mids, each, _MAX_EDGES) for each in ("out", "in"))
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


def _hops_to_value(graph: Graph, value: LiteralTerm) -> list[tuple[str, Hop, str]] | None:
    """List the entities with a value, and their relations to it; None if there are too many."""
    block = values_block("?value", _literals(value))
    query = f"SELECT ?node ?relation {{ {block} ?node ?relation ?value }}"
    found = graph.select(query, limit=_MAX_EDGES)
    if found.truncated:
        return None
    edges = [(str(node), str(relation)) for node, relation in found.rows]
    return [(node, Hop(each), value.text) for node, each in edges if is_telling(each)]


def _terms(target: Target) -> set[Term]:
    """Return all terms of the graph that a target may be."""
    if isinstance(target, LiteralTerm):
        return set(_literals(target))
    return {target.mid} if target.mid is not None else set()


def _literals(value: LiteralTerm) -> tuple[LiteralTerm, ...]:
    if _is_number_or_date(value):
        return equal_literals(value)
    return (value, replace(value, language="en"))


def _test(target: Target) -> Test:
    if isinstance(target, LiteralTerm) and not _is_number_or_date(target):
        return compare_with("=", target.text)
    return compare_with("=", target)


def _is_number_or_date(value: LiteralTerm) -> bool:
    return is_date(value) or is_number(value)
