"""Link a question to entities of the graph by the names that it mentions.

Every run of words that is a name is a mention, and every entity of that name a candidate. A linear
model ranks the candidates by their names and positions, then the best few also by how well their
types and relations in the graph fit the question. The linker keeps several; the paths show which is
right.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbqa.engine.linking.mentions import (
    FUNCTION_WORDS,
    LinkingModel,
    Mentions,
    capitals_mark_names,
    find_mentions,
    is_code,
    softmax,
    stem,
    tokenise,
)
from kbqa.kb.graph import Graph
from kbqa.kb.names import NameMatch, Names, Span
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import QueryTimeout
from kbqa.sparql.terms import TYPE

logger = logging.getLogger(__name__)

Features = dict[str, float]

FINALISTS = 12  # candidates that are looked up in the graph, at most: 0.3 ms each
MAX_STARTS = 2  # of a search: the first linked entity may be wrong, and each costs lookups
_LIKELY = 0.1  # probability from which a search starts from an entity that is not the first

# Share of the most likely entity's probability: entities below it start no written path. On samples
# of webqsp.train and cwq.dev (691 and 649 questions) this leaves 4.0 and 3.4 of the ten entities
# that the linker lists, and the gold one, if listed, in 100 % and 98.5 % of the questions.
_UNLIKELY = 0.001

_LEAST_CHANCE = 0.003
_KEPT_FACTS = 4096
_JOINING = frozenset({"in", "of", "from", "the"})
_MOST_EDGES = 1000  # of an entity; of one with more, nothing is said


class EntityCandidate(NamedTuple):
    """An entity that a question may be about, and the span that names it."""

    match: NameMatch
    span: Span
    features: Features


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """The types and relations of an entity."""

    types: tuple[str, ...]
    relations: tuple[str, ...]  # that leave or enter it, each once; for a hub the most frequent

    @classmethod
    def fetch(cls, graph: Graph, mid: str) -> "EntityFacts":
        """Look an entity up."""
        return cls.fetch_all(graph, [mid])[mid]

    @classmethod
    def fetch_all(cls, graph: Graph, mids: Sequence[str]) -> dict[str, "EntityFacts"]:
        """Look entities up, all at once."""
        leaving = graph.relations_of_each(mids, "out")
        entering = graph.relations_of_each(mids, "in")
        types = graph.neighbours_of_each([(mid, TYPE) for mid in mids], "out")
        return {
            mid: cls(
                tuple(sorted(term for term in types[mid, TYPE] if isinstance(term, str))),
                tuple(sorted({*leaving[mid], *entering[mid]})),
            )
            for mid in mids
        }


def find_candidates(mentions: Mentions, model: LinkingModel) -> list[EntityCandidate]:
    """List every entity of every span, with the features of the span and the name."""
    words = [token.text for token in mentions.tokens]
    lower = [word.lower() for word in words]
    odds = [model.name_odds(stem(word)) for word in lower]
    uses_capitals = capitals_mark_names(words)
    in_value = {i for value in mentions.values for i in range(value.start, value.end)}
    extents = [(span.start, span.end) for span in mentions.spans]
    candidates = []
    for span in mentions.spans:
        start, end = span.start, span.end
        inside = range(start, end)
        content = [i for i in inside if lower[i] not in FUNCTION_WORDS]
        # A function word in capitals inside a question, as in "who wrote It", is a name.
        is_capital = (bool(content) or start > 0) and all(
            words[i][:1].isupper() for i in content or inside
        )
        text = mentions.text(start, end)
        of_span: Features = {
            "words": end - start,
            "telling_words": len(content),
            "letters": len(text) / 10,
            "tells_nothing": not content,
            **_neighbours(lower, start, end),
            # Another span contains it, or overlaps part of it.
            "inside_longer": any(
                s <= start and end <= e and e - s > end - start for s, e in extents
            ),
            "crosses": any(s < start < e < end or start < s < end < e for s, e in extents),
            # Part of a date, an ordinal or a number.
            "value": in_value.issuperset(inside),
            "quoted": (start, end) in mentions.quoted,
            "capitals": uses_capitals and is_capital,
            "no_capitals": uses_capitals and not is_capital,
            # How often its words, the rarest of them, and those outside were in topics' names.
            "name_odds": sum(odds[i] for i in inside) / (end - start),
            "least_name_odds": min(odds[i] for i in inside),
            "name_odds_outside": sum(
                max(0.0, odds[i]) for i in range(len(words)) if i not in inside
            ),
            "matches": math.log(len(span.matches)),
        }
        best = max(match.popularity for match in span.matches)
        # A code, such as CUP for the Cuban peso, is no candidate if it is also a common word and
        # the question does not mark it as a name.
        is_common = (
            len(content) == 1
            and (start, end) not in mentions.marked
            and model.is_hardly_a_name(lower[content[0]])
        )
        for rank, match in enumerate(span.matches, 1):
            if is_common and is_code(match.matched):
                continue
            of_match: Features = {
                "rank": math.log(rank),
                "popularity": math.log2(1 + match.popularity),
                "popularity_share": math.log2((1 + match.popularity) / (1 + best)),
                # How the words match the name.
                "alias": match.is_alias,
                "same_spelling": match.matched.lower() == text.lower(),
                "own_name": match.name.lower() == text.lower(),
                "same_case": text in (match.name, match.matched),
                "unlike": 1 - match.score,  # plurals and typing errors
            }
            candidates.append(EntityCandidate(match, span, of_span | of_match))
    return candidates


def stems(text: str) -> frozenset[str]:
    """Return the stems of a text's words."""
    return frozenset(stem(token.text.lower()) for token in tokenise(text))


def weighted_sum(features: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the sum of features times weights; a feature without a weight counts 0."""
    return sum(value * weights.get(name, 0.0) for name, value in features.items())


def _neighbours(words: Sequence[str], start: int, end: int) -> Features:
    before = words[start - 1] if start > 0 else "^"
    after = words[end] if end < len(words) else "$"
    return {
        f"{side}:{word}": 1.0
        for side, word in (("before", before), ("after", after))
        if word in FUNCTION_WORDS or word in "^$"
    }


def explain_unlinked(names: Names) -> str:
    """Say that a question names nothing in the graph."""
    why = "; an endpoint forgives no typing errors" if names.is_exact else ""
    return f"the graph has no entity of any name in the question{why}"


@dataclass(frozen=True, slots=True)
class LinkedEntity:
    """An entity that a question may be about."""

    mid: str
    name: str  # its own
    mention: str  # the words of the question that name it
    score: float  # probability that the question is about it, not another finalist; else 0

    def to_dict(self) -> dict[str, str | float]:
        """Return a JSON record; the score is rounded to four digits."""
        return {
            "mid": self.mid,
            "name": self.name,
            "score": round(self.score, 4),
            "mention": self.mention,
        }


class Linker:
    """Finds the entities that questions are about."""

    def __init__(self, graph: Graph, names: Names, model: LinkingModel | None = None) -> None:
        self._names = names
        self._model = model or LinkingModel.load()
        self._graph = graph
        self._kept: dict[str, EntityFacts] = {}

    def link(self, question: str, limit: int = 10) -> list[LinkedEntity]:
        """Find the entities that a question mentions, best first, each once, at most `limit`."""
        return self.rank(self.mentions(question), limit)

    def mentions(self, question: str) -> Mentions:
        """Find the names and values in a question."""
        return find_mentions(question, self._names, model=self._model)

    def rank(self, mentions: Mentions, limit: int = 10) -> list[LinkedEntity]:
        """Rank the entities whose names a question mentions, each once."""
        candidates = find_candidates(mentions, self._model)
        chosen = choose_finalists(candidates, self._model, max(limit, FINALISTS))
        finalists, others = chosen[:FINALISTS], chosen[FINALISTS:]
        facts = self._facts([candidate.match.mid for candidate in finalists])
        features = final_features(mentions, finalists, facts.__getitem__, self._model)
        scores = [weighted_sum(of_one, self._model.final) for of_one in features]
        ranked = sorted(
            zip(softmax(scores), finalists, strict=True),
            key=lambda pair: (-pair[0], pair[1].match.mid),
        )
        ranked = self._with_related_namesakes(mentions, ranked)
        ranked += [(0.0, candidate) for candidate in others]
        return [
            LinkedEntity(
                c.match.mid, c.match.name, mentions.text(c.span.start, c.span.end), probability
            )
            for probability, c in ranked[:limit]
        ]

    def _with_related_namesakes(
        self, mentions: Mentions, ranked: list[tuple[float, EntityCandidate]]
    ) -> list[tuple[float, EntityCandidate]]:
        """Put that of several namesakes first which is related to the name beside it.

        Of *London, Ontario* it is the London that lies in Ontario.
        """
        of_span: dict[tuple[int, int], list[int]] = defaultdict(list)
        for at, (_, candidate) in enumerate(ranked):
            of_span[candidate.span.start, candidate.span.end].append(at)
        result = ranked.copy()
        for span, ats in of_span.items():
            beside = [
                ranked[at][1].match.mid
                for other in of_span
                if self._are_beside(mentions, span, other)
                for at in of_span[other]
            ]
            if not beside or len(ats) < 2:
                continue
            related = self._related([ranked[at][1].match.mid for at in ats], beside)
            meant = next((at for at in ats if ranked[at][1].match.mid in related), ats[0])
            # They change places, and the first keeps its score.
            result[ats[0]] = (ranked[ats[0]][0], ranked[meant][1])
            result[meant] = (ranked[meant][0], ranked[ats[0]][1])
        return result

    def _related(self, mids: Sequence[str], others: Sequence[str]) -> set[str]:
        """Return which of some entities are neighbours of others; after a timeout, none."""
        try:
            edges = self._graph.edges([*mids, *others], "out", _MOST_EDGES)
        except QueryTimeout as error:
            logger.warning("namesakes are told apart without their neighbours: %s", error)
            return set()
        ends = {mid: set().union(*of_one.values()) for mid, of_one in edges.items()}
        reached = set().union(*(ends.get(other, ()) for other in others))
        return {m for m in mids if m in reached or not set(others).isdisjoint(ends.get(m, ()))}

    def _are_beside(self, mentions: Mentions, one: tuple[int, int], other: tuple[int, int]) -> bool:
        """Return whether a name stands beside another, as in *London in Ontario*."""
        start, end = (one[1], other[0]) if one[1] <= other[0] else (other[1], one[0])
        between = [token.text.lower() for token in mentions.tokens[start:end]]
        is_name = not self.is_plain(mentions.text(*other))
        return start <= end and is_name and _JOINING.issuperset(between)

    def is_plain(self, text: str) -> bool:
        """Return whether a text has only lower-case words that are hardly ever part of a name."""
        words = [token.text for token in tokenise(text)]
        return all(word.islower() and self._model.is_ordinary(word) for word in words)

    def fits(self, words: str, mids: Sequence[str]) -> dict[str, float]:
        """Return the chance that words ask for a relation which an entity has, for each entity."""
        asked = self._model.asked_relations(stems(words))
        facts = self._facts(mids)
        return {mid: sum(asked.get(r, 0.0) for r in facts[mid].relations) for mid in mids}

    def _facts(self, mids: Sequence[str]) -> dict[str, EntityFacts]:
        """Look entities up together; if that takes too long, one by one."""
        known = {mid: facts for mid in mids if (facts := self._kept.get(mid)) is not None}
        new = [mid for mid in mids if mid not in known]
        try:
            found = EntityFacts.fetch_all(self._graph, new)
        except QueryTimeout:
            return known | {mid: self._facts_of(mid) for mid in new}
        if len(self._kept) + len(found) > _KEPT_FACTS:
            self._kept = {}
        self._kept.update(found)
        return known | found

    def _facts_of(self, mid: str) -> EntityFacts:
        """Look an entity up; after a timeout, return no facts."""
        try:
            return EntityFacts.fetch(self._graph, mid)
        except QueryTimeout as error:
            logger.warning("ranking %s without its types and relations: %s", mid, error)
            return EntityFacts((), ())


def choose_finalists(
    candidates: Iterable[EntityCandidate], model: LinkingModel, limit: int = FINALISTS
) -> list[EntityCandidate]:
    """Choose the candidates to look up, best first: one for each entity."""
    ranked = sorted(
        ((weighted_sum(candidate.features, model.first), candidate) for candidate in candidates),
        key=lambda pair: (-pair[0], pair[1].match.mid),
    )
    best: dict[str, EntityCandidate] = {}
    for _, candidate in ranked:
        best.setdefault(candidate.match.mid, candidate)
        if len(best) == limit:
            break
    return list(best.values())


def final_features(
    mentions: Mentions,
    finalists: Sequence[EntityCandidate],
    facts: Callable[[str], EntityFacts],
    model: LinkingModel,
) -> list[Features]:
    """Return all features of each finalist; `facts` looks an entity up."""
    features = []
    words = [stem(token.text.lower()) for token in mentions.tokens]
    asked_around: dict[frozenset[str], Mapping[str, float]] = {}
    for candidate in finalists:
        span, known = candidate.span, facts(candidate.match.mid)
        around = frozenset(w for i, w in enumerate(words) if not span.start <= i < span.end)
        if around not in asked_around:
            asked_around[around] = model.asked_relations(around)
        asked = asked_around[around]
        chances = [asked[relation] for relation in known.relations if relation in asked]
        features.append(
            {
                **candidate.features,
                "types": math.log1p(len(known.types)),
                "untyped": not known.types,
                # How well its types fit the words around.
                "type_agreement": model.type_agreement(known.types, around),
                "relations": math.log1p(len(known.relations)),
                # The chance that the question asks for any of its relations, and for the most
                # likely one.
                "asked_relations": math.log(_LEAST_CHANCE + sum(chances)),
                "asked_relation": math.log(_LEAST_CHANCE + max(chances, default=0.0)),
            }
        )
    return features


def starting_topics(given: Sequence[Entity], linked: Sequence[LinkedEntity]) -> tuple[Entity, ...]:
    """Return the given entities, or else the most likely linked ones, best first."""
    if given:
        return tuple(dict.fromkeys(given))
    likely = [each for at, each in enumerate(linked) if at == 0 or each.score >= _LIKELY]
    return tuple(Entity(each.name, each.mid) for each in likely[:MAX_STARTS])


def likely_topics(linked: Sequence[LinkedEntity]) -> tuple[Entity, ...]:
    """Return the linked entities that are likely enough to start a written path, best first."""
    least = _UNLIKELY * linked[0].score if linked else 0.0
    return tuple(Entity(entity.name, entity.mid) for entity in linked if entity.score >= least)
