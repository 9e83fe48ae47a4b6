"""Features that separate the entities a question is about from others whose names it contains.

A candidate is an entity whose name is a span of the question. Its features are numbers with plain
names, so that a linear model over them can be read. Features of the span and the name need no
look-up. Features of the entity (its types and relations) are looked up in the graph, only for the
few candidates that rank first by the others.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from kbqa.engine.linking.mentions import Mentions
from kbqa.engine.linking.model import LinkingModel, stem
from kbqa.engine.linking.words import FUNCTION_WORDS, capitals_mark_names, is_code, tokenise
from kbqa.kb.graph import Graph
from kbqa.kb.names.index import NameMatch, Span
from kbqa.sparql.queries.templates import TYPE

Features = dict[str, float]

_LEAST_CHANCE = 0.003


class EntityCandidate(NamedTuple):
    """An entity that a question may be about, and the span that names it."""

    match: NameMatch
    span: Span
    features: Features


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """What linking needs to know about an entity.

    Attributes:
        types: Its types.
        relations: Relations that leave or enter it, each once; for a hub the most frequent ones.
    """

    types: tuple[str, ...]
    relations: tuple[str, ...]

    @classmethod
    def fetch(cls, graph: Graph, mid: str) -> "EntityFacts":
        """Look an entity up.

        Raises:
            GraphError: The graph does not answer.
        """
        return cls.fetch_all(graph, [mid])[mid]

    @classmethod
    def fetch_all(cls, graph: Graph, mids: Sequence[str]) -> dict[str, "EntityFacts"]:
        """Look entities up, all at once.

        Raises:
            GraphError: The graph does not answer.
        """
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
    """List every entity of every span, with the features of the span and the name.

    - ``words``, ``telling_words`` (without function words), ``letters`` (tens): the span's length
    - ``tells_nothing``: it has only function words
    - ``before:of``, ``after:in`` and so on: the function words next to it; ``before:^`` and
      ``after:$`` at the ends of the question
    - ``inside_longer``, ``crosses``: another span contains it, or overlaps part of it
    - ``value``: it is part of a date, an ordinal or a number; ``quoted``: it is in quotation marks
    - ``capitals``, ``no_capitals``: whether it has them, if the question capitalises names
    - ``name_odds``, ``least_name_odds``, ``name_odds_outside``: how often its words, the rarest of
      them, and the words outside it were part of topics' names in training
    - ``matches``: log of the number of entities with the name; ``rank``: log of its rank among them
    - ``popularity``: log₂ of its triples; ``popularity_share``: log₂ of its share of the best's
    - ``alias``, ``same_spelling``, ``own_name``, ``same_case``: how the words match the name
    - ``unlike``: 1 less the similarity of name and words, for plurals and typing errors

    A code, such as CUP for the Cuban peso, is no candidate if it is a word that was hardly ever a
    topic's name by itself in training, and the question does not mark it (`Mentions.marked`).
    """
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
            "inside_longer": any(
                s <= start and end <= e and e - s > end - start for s, e in extents
            ),
            "crosses": any(s < start < e < end or start < s < end < e for s, e in extents),
            "value": in_value.issuperset(inside),
            "quoted": (start, end) in mentions.quoted,
            "capitals": uses_capitals and is_capital,
            "no_capitals": uses_capitals and not is_capital,
            "name_odds": sum(odds[i] for i in inside) / (end - start),
            "least_name_odds": min(odds[i] for i in inside),
            "name_odds_outside": sum(
                max(0.0, odds[i]) for i in range(len(words)) if i not in inside
            ),
            "matches": math.log(len(span.matches)),
        }
        best = max(match.popularity for match in span.matches)
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
                "alias": match.is_alias,
                "same_spelling": match.matched.lower() == text.lower(),
                "own_name": match.name.lower() == text.lower(),
                "same_case": text in (match.name, match.matched),
                "unlike": 1 - match.score,
            }
            candidates.append(EntityCandidate(match, span, of_span | of_match))
    return candidates


def entity_features(
    candidate: EntityCandidate,
    facts: EntityFacts,
    around: AbstractSet[str],
    asked: Mapping[str, float],
    model: LinkingModel,
) -> Features:
    """Return a candidate's features, with those of the entity added.

    - ``types``, ``relations``: log of their number; ``untyped``: it has no type
    - ``type_agreement``: how well its types fit the words outside the mention
    - ``asked_relations``, ``asked_relation``: log of the probability that the question asks for any
      of its relations, and for the most likely of them

    Args:
        candidate: The candidate.
        facts: The entity's types and relations.
        around: Stems of the words outside the mention.
        asked: The probability of each relation, given these words.
        model: Its tables.
    """
    chances = [asked[relation] for relation in facts.relations if relation in asked]
    return {
        **candidate.features,
        "types": math.log1p(len(facts.types)),
        "untyped": not facts.types,
        "type_agreement": model.type_agreement(facts.types, around),
        "relations": math.log1p(len(facts.relations)),
        "asked_relations": math.log(_LEAST_CHANCE + sum(chances)),
        "asked_relation": math.log(_LEAST_CHANCE + max(chances, default=0.0)),
    }


def stems(text: str) -> frozenset[str]:
    """Return the stems of a text's words."""
    return frozenset(stem(token.text.lower()) for token in tokenise(text))


def words_around(mentions: Mentions, span: Span) -> frozenset[str]:
    """Return the stems of a question's words outside a span."""
    words = (stem(token.text.lower()) for token in mentions.tokens)
    return frozenset(w for i, w in enumerate(words) if not span.start <= i < span.end)


def weighted_sum(features: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the sum of features times weights; a feature without a weight counts 0."""
    return sum(value * weights.get(name, 0.0) for name, value in features.items())


def _neighbours(words: Sequence[str], start: int, end: int) -> Features:
    """Return the function words before and after a span."""
    before = words[start - 1] if start > 0 else "^"
    after = words[end] if end < len(words) else "$"
    return {
        f"{side}:{word}": 1.0
        for side, word in (("before", before), ("after", after))
        if word in FUNCTION_WORDS or word in "^$"
    }
