"""Beam search over relation paths: as the paper does it, and guided by more than similarity.

A step of the search takes each path of the beam and appends the relations that its end has in the
graph and that are most similar to any step of the blueprint. The paths most similar to the question
stay. The caller chooses which paths make the next beam. `PathSearch` is the paper's, but for what
docs/papers.md lists: relations are followed in both directions, of two names for one edge one is
kept, and the way back and bookkeeping relations are left out. `GuidedSearch` is ours.

A path that is found takes over the constraints of another, each where the graph has its first
relation, if possible as far from the answer as before. One whose relation fits no node is dropped
and reported. RouterKGQA §3.3 replaces only the main path; its code keeps the constraints as they
are, whatever their variables then mean.

Source: RouterKGQA §3.3, "Beam search over relation paths", equations 5 to 11.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from kbqa.engine.asked import Asked
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import Frontiers, RelationPath
from kbqa.engine.linking.linker import MAX_STARTS, LinkedEntity, starting_topics
from kbqa.engine.questions.words import find_values
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import (
    AnyPart,
    Constraint,
    Crp,
    Entity,
    Hop,
    NodeRef,
    Part,
    changed_constraints,
)
from kbqa.sparql.english import relation_words
from kbqa.sparql.terms import LiteralTerm

HOP_COST = 0.05
"""Of a cosine; see `Guide.hop_cost`. On held-out questions 0.03 to 0.1 made no difference."""

_ASKED_WEIGHT, _ASKED_FLOOR = 0.05, 1e-3
"""A relation asked for less than once in 1,000 counts little; 0.02 to 0.1 made no difference."""


@dataclass(frozen=True, slots=True)
class SearchWidths:
    """How much is kept; the defaults are the paper's (RouterKGQA §4.1)."""

    relations: int = 4  # x: of each path's end, for each step of the blueprint
    candidates: int = 10  # y: paths of a step, which a general model is shown
    beam: int = 3  # w: paths that the next step starts from


@dataclass(frozen=True, slots=True)
class ScoredPath:
    """A path with its score, which is higher the better it fits the question."""

    path: RelationPath
    score: float


class PathSearch:
    """Searches the paths of one question, as the paper does.

    Args:
        question: What paths are compared with, as texts.
        steps: What their relations are compared with: the blueprint, a phrase a step; at least one.
    """

    def __init__(
        self,
        frontiers: Frontiers,
        schema: GraphSchema,
        embedder: Embedder,
        question: str,
        steps: Sequence[str],
        widths: SearchWidths,
    ) -> None:
        self.frontiers, self.schema, self._embedder = frontiers, schema, embedder
        self._question, self._steps, self.widths = question, steps, widths

    def extend(self, beam: Sequence[RelationPath]) -> list[ScoredPath]:
        """Take one step of the search: append to each path of the beam what continues it.

        Returns:
            The longer paths, which the graph has, best first.
        """
        longer = [path for each in beam for path in self._expanded(each)]
        return self.score([path for path in longer if self.frontiers.has_answer(path)])

    def score(self, paths: Sequence[RelationPath]) -> list[ScoredPath]:
        """Compare paths with the question and sort them, the best first."""
        if not paths:
            return []
        scores = self._scores(paths, [_relation_texts(path) for path in paths])
        return sorted(map(ScoredPath, paths, scores), key=lambda each: -each.score)

    def best(
        self, paths: Iterable[ScoredPath], known: Sequence[RelationPath] = ()
    ) -> list[ScoredPath]:
        """Choose the candidates, best first; of paths that mean the same, the best one.

        Paths that are `known` are candidates whatever their score.
        """
        kept = self._distinct(self.score(known))
        others = self._distinct(paths)
        room = max(self.widths.candidates - len(kept), 0)
        new = [others[edges] for edges in others if edges not in kept][:room]
        return sorted((*kept.values(), *new), key=lambda each: -each.score)

    def _distinct(self, paths: Iterable[ScoredPath]) -> dict[RelationPath, ScoredPath]:
        distinct: dict[RelationPath, ScoredPath] = {}
        for each in sorted(paths, key=lambda each: -each.score):
            edges = RelationPath(each.path.topic, self.schema.canonical(each.path.hops))
            distinct.setdefault(edges, each)
        return distinct

    def _scores(
        self, paths: Sequence[RelationPath], texts: Sequence[Sequence[str]]
    ) -> Sequence[float]:
        """Compare the linearised relations of each path with the question: equation 11."""
        return self._embedder.similarity(self._question, [" ".join(each) for each in texts])

    def _expanded(self, path: RelationPath) -> Iterator[RelationPath]:
        """Append each relation that is kept: equation 10."""
        return map(path.then, self._select(self.frontiers.hops(path)))

    def _select(self, hops: Sequence[Hop]) -> list[Hop]:
        """Keep the hops most like each step of the blueprint: equation 9."""
        if not hops:
            return []
        edges = self.schema.canonical(hops)
        texts = [relation_words(hop.relation) for hop in hops]
        kept: dict[Hop, None] = {}
        for step in self._steps:
            cosines = self._embedder.similarity(step, texts)
            scores = [c + self._worth(hop) for hop, c in zip(hops, cosines, strict=True)]
            best: dict[Hop, Hop] = {}
            for at in sorted(range(len(hops)), key=lambda at: -scores[at]):
                best.setdefault(edges[at], hops[at])
            kept.update(dict.fromkeys(list(best.values())[: self.widths.relations]))
        return list(kept)

    def _worth(self, hop: Hop) -> float:
        """Return what a relation counts besides its similarity."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Guide:
    """What paths are compared with."""

    question: str  # without its mention of the topic, whose name attracts relations of its own
    steps: tuple[str, ...]  # the blueprint, a phrase a step; at least one
    asked: Mapping[str, float] = field(default_factory=dict)
    """How likely the question's words ask for a relation, in [0, 1]; 0 if it is absent."""
    hop_cost: float = 0.0  # similarity alone favours long paths


class GuidedSearch(PathSearch):
    """Searches the paths of one question, guided by the graph and by training questions.

    If a relation leads to a mediator, which is no answer and whose relation alone says little, the
    path goes on at once to what is behind it. A path is compared by the sum of its relations'
    vectors; what the words asked for in training questions counts too, and a hop has its price.
    """

    def __init__(
        self,
        frontiers: Frontiers,
        schema: GraphSchema,
        embedder: Embedder,
        guide: Guide,
        widths: SearchWidths,
    ) -> None:
        super().__init__(frontiers, schema, embedder, guide.question, guide.steps, widths)
        self._guide = guide

    def _scores(
        self, paths: Sequence[RelationPath], texts: Sequence[Sequence[str]]
    ) -> Sequence[float]:
        cosines = self._embedder.sum_similarity(self._question, texts)
        return [
            cosine
            + max(self._worth(hop) for hop in path.hops)
            - self._guide.hop_cost * len(path.hops)
            for path, cosine in zip(paths, cosines, strict=True)
        ]

    def _expanded(self, path: RelationPath) -> Iterator[RelationPath]:
        for longer in super()._expanded(path):
            if self.frontiers.ends_at_mediator(longer):
                yield from super()._expanded(longer)
            else:
                yield longer

    def _worth(self, hop: Hop) -> float:
        """Return how much a relation counts for what the question asks, from 0 to 0.35."""
        likely = self._guide.asked.get(hop.relation, 0.0)
        return _ASKED_WEIGHT * math.log(1 + likely / _ASKED_FLOOR)


def _relation_texts(path: RelationPath) -> list[str]:
    return [relation_words(hop.relation) for hop in path.hops]


class Carried(NamedTuple):
    """A path with the constraints of another."""

    crp: Crp  # what asks yes or no, or adds up, becomes a list if it loses what it needs
    lost: tuple[Part, ...]  # constraints that could not be carried, as the other CRP had them


def carry_constraints(failed: Crp, path: RelationPath, frontiers: Frontiers) -> Carried:
    """Put the constraints of a grounded CRP on another path, which exists in the graph.

    Constraints within forks of the failed path go with these.
    """
    carried: dict[Constraint, Constraint] = {}
    for constraint in failed.constraints:
        if (moved := _moved(constraint, failed, path, frontiers)) is not None:
            [carried[constraint]] = changed_constraints(
                (moved,), lambda each: each.with_reference(partial(_moved_node, failed, path))
            )
    order = failed.order and _moved(failed.order, failed, path, frontiers)
    value = failed.value if isinstance(failed.value, str) else None
    numbers = next((each for each in carried if each.label and each.label == value), None)
    if numbers is not None and carried[numbers].at != len(path.hops):
        del carried[numbers]  # They are no longer those of the answers.
    # What refers to a lost branch is lost with it, and so is a branch with a label that nothing
    # refers to any more; and so on, until what is left needs nothing that is lost.
    while True:
        labels = _labels(carried.values())
        if order is not None and isinstance(order.at, str) and order.at not in labels:
            order = None
        used = {label for new in carried.values() for label in _references(new)}
        used |= {order.at} if order is not None and isinstance(order.at, str) else set()
        used |= {value} if value is not None else set()
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
    if failed.value is not None and value not in _labels(carried.values()):
        is_whole, value = False, None
    crp = Crp(
        path.topic,
        path.hops,
        tuple(carried.values()),
        order,
        None if failed.differs_from is None else 0,
        failed.answer_language,
        failed.form if is_whole else "select",
        value,
    )
    lost: list[Part] = [each for each in failed.constraints if each not in carried]
    if failed.order is not None and order is None:
        lost.append(failed.order)
    return Carried(crp, tuple(lost))


def _moved(part: AnyPart, failed: Crp, path: RelationPath, frontiers: Frontiers) -> AnyPart | None:
    """Copy a constraint or the ordering to the node of the path that has its relation, if any."""
    if not isinstance(part.at, int):
        return part
    places = _likely_places(part.at, failed, path)
    if not part.hops:
        return replace(part, at=places[0])
    for place in places:
        before = path.up_to(place)
        if frontiers.nodes(before) and frontiers.exists(before.then(part.hops[0])):
            return replace(part, at=place)
    return None


def _moved_node(failed: Crp, path: RelationPath, reference: NodeRef) -> NodeRef:
    if isinstance(reference.node, str):
        return reference
    return NodeRef(_likely_places(reference.node, failed, path)[0])


def _likely_places(position: int, failed: Crp, path: RelationPath) -> list[int]:
    """List a path's positions, the one that a position of the failed path likely meant first."""
    last = len(path.hops)
    if position == 0:
        return list(range(last + 1))
    meant = last - (failed.answer - position)
    return sorted(range(last, -1, -1), key=lambda place: abs(place - meant))


def _labels(constraints: Iterable[Constraint]) -> set[str]:
    return {label for constraint in constraints for label in constraint.labels()}


def _references(constraint: Constraint) -> set[str]:
    return {node for node in constraint.references() if isinstance(node, str)}


_EACH_MENTION = 2


def search_topics(asked: Asked, readings: Sequence[Crp]) -> list[Entity]:
    """Return the entities that a search starts from: topics of paths, then given and linked."""
    return list(dict.fromkeys(_topics(readings, asked.given, asked.linked)))[:MAX_STARTS]


def without_mentions(asked: Asked, topics: Sequence[Entity]) -> str:
    """Return the question without the words that name these entities."""
    return _without(asked.question, [_mention(topic, asked.linked) for topic in topics])


def unnamed_entities(asked: Asked, crp: Crp) -> Iterator[Entity]:
    """Yield linked entities whose words name no entity of a CRP, two for the same words at most."""
    named = list(crp.entities())
    rest = without_mentions(asked, named)
    mids = {entity.mid for entity in named}
    seen: Counter[str] = Counter()
    for linked in asked.linked:
        seen[linked.mention] += linked.mid not in mids
        is_unnamed = linked.mid not in mids and _words(linked.mention).search(rest) is not None
        if is_unnamed and seen[linked.mention] <= _EACH_MENTION:
            yield Entity(linked.name, linked.mid)


def unnamed_values(asked: Asked, crp: Crp) -> list[LiteralTerm]:
    """List the numbers, dates and codes of a question that a CRP does not compare with."""
    words = without_mentions(asked, list(crp.entities()))
    said = set()
    for each in crp.all_constraints():
        match each.operand:
            case str(text) | LiteralTerm(text):
                said.add(text)
    return [value for value in find_values(words) if value.text not in said]


def _topics(
    readings: Sequence[Crp], given: Sequence[Entity], linked: Sequence[LinkedEntity]
) -> Iterator[Entity]:
    """Yield what a question may be about: as the paths say it, then as it is given or linked."""
    names = {entity.mid: entity.name for entity in given}
    names.update((entity.mid, entity.name) for entity in linked)
    mids = [crp.topic.mid for crp in readings]
    mids += [entity.mid for entity in starting_topics(given, linked)]
    for mid in mids:
        if mid is not None:
            yield Entity(names.get(mid), mid)


def _mention(topic: Entity, linked: Sequence[LinkedEntity]) -> str:
    """Find the words that name a topic: as the linker saw them, or its name."""
    mentions = (entity.mention for entity in linked if entity.mid == topic.mid)
    return next(mentions, topic.name or "")


def _without(question: str, mentions: Sequence[str]) -> str:
    """Cut the mentions out of a question, each once; where nothing would remain, it stays whole.

    >>> _without("what language is used in the US by most people?", ["us"])
    'what language is used in the by most people?'
    """
    rest = question
    for mention in filter(None, mentions):
        rest = _words(mention).sub(" ", rest, count=1)
    return " ".join(rest.split()) if any(map(str.isalpha, rest)) else question


def _words(mention: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(mention)}(?!\w)", re.IGNORECASE)
