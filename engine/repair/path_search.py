"""Beam search over relation paths, guided by what the question asks and by what the graph holds.

A step of the search appends to each path of the beam the relations that its end has in the graph
and that are most like any step of the blueprint; the paths that are most like the question stay.
Where a relation leads to a mediator, which is no answer and whose relation alone says little, the
path goes on at once to what lies behind it. Which paths make the next beam is the caller's choice.

Departures from the paper: relations are followed in both directions; of two names for one edge, a
relation and its reverse, one is taken; and a path is likened to the question without its mention of
the topic, whose name else draws relations of its own.

Source: RouterKGQA §3.3, "Beam search over relation paths", equations 5 to 11.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from kbqa.engine.embedder import Embedder, relation_text
from kbqa.engine.repair.frontiers import Frontiers, RelationPath
from kbqa.kb.graph_schema import GraphSchema, canonical_hop, leads_to_mediator, onward_relations
from kbqa.sparql.crp import Hop


@dataclass(frozen=True, slots=True)
class SearchWidths:
    """How much is kept; the defaults are the paper's.

    Attributes:
        relations: Of each path's end, for each step of the blueprint (x).
        candidates: Paths of a step (y), which a general model is shown.
        beam: Paths that the next step starts from (w).

    Source: RouterKGQA §4.1.
    """

    relations: int = 4
    candidates: int = 10
    beam: int = 3


@dataclass(frozen=True, slots=True)
class Guide:
    """What paths are likened to.

    Attributes:
        question: The question without its mention of the topic.
        steps: The blueprint, a phrase a step; at least one.
    """

    question: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScoredPath:
    """A path with the likeness of its relations to the question, a cosine."""

    path: RelationPath
    score: float


class PathSearch:
    """Searches the paths of one question.

    Args:
        frontiers: Of the question.
        schema: Of the graph.
        embedder: Likens texts.
        guide: What the question asks.
        widths: How much is kept.
    """

    def __init__(
        self,
        frontiers: Frontiers,
        schema: GraphSchema,
        embedder: Embedder,
        guide: Guide,
        widths: SearchWidths,
    ) -> None:
        self._frontiers, self._schema, self._embedder = frontiers, schema, embedder
        self._guide, self._widths = guide, widths

    def extend(self, beam: Sequence[RelationPath], depth: int) -> list[ScoredPath]:
        """Take one step of the search.

        Args:
            beam: Paths to go on from; one that is complete stays as it is.
            depth: Hops of a complete path. One that would end at a mediator may be longer by one.

        Returns:
            The paths most like the question, best first, at most `SearchWidths.candidates`. Each
            leads to something in the graph.

        Raises:
            GraphError: The graph does not answer.
        """
        found: list[RelationPath] = []
        for path in beam:
            found += [path] if len(path.hops) >= depth else self._expanded(path)
        return self.rank([path for path in found if self._frontiers.has_answer(path)])

    def rank(self, paths: Sequence[RelationPath]) -> list[ScoredPath]:
        """Put paths in order, the likest to the question first, and keep as many as candidates."""
        if not paths:
            return []
        texts = [path_text(path.hops) for path in paths]
        scores = self._embedder.similarity(self._guide.question, texts)
        scored = sorted(map(ScoredPath, paths, scores), key=lambda each: -each.score)
        distinct = {self._canonical(each.path): each for each in reversed(scored)}
        kept = sorted(distinct.values(), key=lambda each: -each.score)
        return kept[: self._widths.candidates]

    def _expanded(self, path: RelationPath) -> Iterator[RelationPath]:
        for hop in self._select(self._frontiers.hops(path)):
            longer = path.then(hop)
            if self._frontiers.ends_at_mediator(longer):
                for onward in self._select(self._frontiers.hops(longer)):
                    yield longer.then(onward)
            else:
                yield longer

    def _select(self, hops: Sequence[Hop]) -> list[Hop]:
        """Keep the hops most like each step of the blueprint: the paper's equation 9."""
        if not hops:
            return []
        kept: dict[Hop, None] = {}
        texts = [self._texts(hop) for hop in hops]
        flat = [text for each in texts for text in each]
        for step in self._guide.steps:
            likenesses = iter(self._embedder.similarity(step, flat))
            scores = [max(islice(likenesses, len(each))) for each in texts]
            best = sorted(range(len(hops)), key=lambda at: -scores[at])
            kept.update(dict.fromkeys(hops[at] for at in best[: self._widths.relations]))
        return list(kept)

    def _texts(self, hop: Hop) -> list[str]:
        """Write a hop in words; one to a mediator with each of the ways on from there."""
        schema = self._schema.of([hop.relation])
        onward = onward_relations(schema, hop) if leads_to_mediator(schema, hop) else ()
        if not onward:
            return [path_text([hop])]
        return [path_text([hop, Hop(relation)]) for relation in onward]

    def _canonical(self, path: RelationPath) -> RelationPath:
        schema = self._schema.of([hop.relation for hop in path.hops])
        hops = tuple(canonical_hop(schema, hop) for hop in path.hops)
        return RelationPath(path.topic, hops)


def path_text(hops: Sequence[Hop]) -> str:
    """Write a path in words: its relations' one after the other.

    >>> path_text([Hop("people.person.spouse_s"), Hop("people.marriage.spouse")])
    'person spouse s marriage spouse'
    """
    return " ".join(relation_text(hop.relation) for hop in hops)
