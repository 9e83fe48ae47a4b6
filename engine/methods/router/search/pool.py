"""More candidates for a question: paths that a search of the graph finds, beside the written ones.

The model writes what it has seen in training. The search reads the graph, and so it also finds
relations that the model does not know. Each path that it finds is a candidate twice: with the
constraints of the best written path, as far as they fit (`carry`), and without any. And the first
paths of both kinds are candidates with one more condition, if the question names an entity or a
value that they pass over (`narrow`), and with an order or a comparison, if it asks for one
(`measure`). What was written already is left out, by meaning.

Prior art: RnG-KBQA (Ye et al. 2022) and TIARA (Shu et al. 2022) also join enumerated with written
paths, but they enumerate first, and write once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.exploring.frontiers import Frontiers, RelationPath
from kbqa.engine.linking.features import stems
from kbqa.engine.linking.model import LinkingModel
from kbqa.engine.method import Asked
from kbqa.engine.methods.router.search.carry import carry_constraints
from kbqa.engine.methods.router.search.measure import Measurer
from kbqa.engine.methods.router.search.narrow import Narrower
from kbqa.engine.methods.router.search.path_search import (
    HOP_COST,
    Guide,
    PathSearch,
    ScoredPath,
    SearchWidths,
)
from kbqa.engine.methods.router.search.starts import search_topics, without_mentions
from kbqa.engine.running.tried import Tried
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Constraint, Crp, Entity, Form, Hop, Step
from kbqa.sparql.forms import render_crp

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
