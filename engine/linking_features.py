"""What tells the entities that a question is about from all others whose names it holds.

A candidate is an entity that bears the words of a span. Its features are plain numbers under plain
names, so that a linear model over them can be read. Those of the span and the name cost nothing;
those of the entity (its types and relations) are looked up in the graph, and only for the few
candidates that the first put in front.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from kbqa.engine.embedder import Embedder, relation_text
from kbqa.engine.linking_model import LinkingModel, stem
from kbqa.engine.question_mentions import FUNCTION_WORDS, Mentions, capitals_tell, tokenise
from kbqa.kb.graph import Graph
from kbqa.kb.names import NameMatch, Span

Features = dict[str, float]

_LEAST_CHANCE = 0.003


class Candidate(NamedTuple):
    """An entity that a question may be about: who bears the words of which span."""

    match: NameMatch
    span: Span
    features: Features


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """What the graph says of an entity, as far as linking asks.

    Attributes:
        types: Its types.
        relations: Relations that leave or enter it, each once; of a hub those of the most edges.
    """

    types: tuple[str, ...]
    relations: tuple[str, ...]

    @classmethod
    def fetch(cls, graph: Graph, mid: str) -> "EntityFacts":
        """Look an entity up; raises a `GraphError`."""
        relations = {*graph.relations(mid, "out"), *graph.relations(mid, "in")}
        return cls(tuple(graph.types(mid)), tuple(sorted(relations)))


def find_candidates(mentions: Mentions, model: LinkingModel) -> list[Candidate]:
    """List every bearer of every span with the features of span and name.

    - ``words``, ``telling_words``, ``letters`` (tens): how long the span is; ``tells_nothing``: it
      has function words alone
    - ``before:of``, ``after:in`` and so on: the function words next to it; ``before:^`` and
      ``after:$`` at the question's ends
    - ``inside_longer``, ``crosses``: another span holds it, or overlaps it in part
    - ``value``: it stands on a date, an ordinal or a number; ``quoted``: between quotation marks
    - ``capitals``, ``no_capitals``: where capitals set names apart, the span has them or not
    - ``name_odds``, ``least_name_odds``, ``name_odds_outside``: how often its words, the least of
      them, and the words outside it stood in topics' names in training
    - ``bearers``: log of how many share the name; ``rank``: log of its place among them
    - ``popularity``: log₂ of its triples; ``popularity_share``: log₂ of its share of the best's
    - ``alias``, ``same_spelling``, ``own_name``, ``same_case``: how the words match the name
    - ``unlike``: how far the name is from the words, for plurals and typing errors
    """
    words = [token.text for token in mentions.tokens]
    lower = [word.lower() for word in words]
    odds = [model.name_odds(stem(word)) for word in lower]
    tells = capitals_tell(words)
    in_value = {i for value in mentions.values for i in range(value.start, value.end)}
    extents = [(span.start, span.end) for span in mentions.spans]
    candidates = []
    for span in mentions.spans:
        start, end = span.start, span.end
        inside = range(start, end)
        telling = [i for i in inside if lower[i] not in FUNCTION_WORDS]
        # A function word in capitals inside a question, as in "who wrote It", is a name.
        is_capital = (bool(telling) or start > 0) and all(
            words[i][:1].isupper() for i in telling or inside
        )
        text = mentions.text(start, end)
        of_span: Features = {
            "words": end - start,
            "telling_words": len(telling),
            "letters": len(text) / 10,
            "tells_nothing": not telling,
            **_neighbours(lower, start, end),
            "inside_longer": any(
                s <= start and end <= e and e - s > end - start for s, e in extents
            ),
            "crosses": any(s < start < e < end or start < s < end < e for s, e in extents),
            "value": in_value.issuperset(inside),
            "quoted": (start, end) in mentions.quoted,
            "capitals": tells and is_capital,
            "no_capitals": tells and not is_capital,
            "name_odds": sum(odds[i] for i in inside) / (end - start),
            "least_name_odds": min(odds[i] for i in inside),
            "name_odds_outside": sum(
                max(0.0, odds[i]) for i in range(len(words)) if i not in inside
            ),
            "bearers": math.log(len(span.matches)),
        }
        best = max(match.popularity for match in span.matches)
        for rank, match in enumerate(span.matches, 1):
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
            candidates.append(Candidate(match, span, of_span | of_match))
    return candidates


def entity_features(
    candidate: Candidate,
    facts: EntityFacts,
    around: AbstractSet[str],
    asked: Mapping[str, float],
    model: LinkingModel,
) -> Features:
    """Return a candidate's features with those of the entity.

    - ``types``, ``relations``: log of how many it has; ``untyped``: it has no type
    - ``type_agreement``: how well its types go with the words outside the mention
    - ``asked_relations``, ``asked_relation``: log of the probability that the question asks for one
      of its relations, and for the likeliest of them

    Args:
        candidate: The candidate.
        facts: What the graph says of the entity.
        around: Stems of the words outside the mention.
        asked: How likely these ask for which relation.
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


def meaning_features(question: str, facts: EntityFacts, embedder: Embedder) -> Features:
    """Tell how like the meaning of a question is to an entity's relations.

    - ``meaning``, ``mean_meaning``: the cosine of the relation that is most like it, and the mean
      of the three that are

    Args:
        question: Without the topic's name, which else draws relations of its own.
        facts: What the graph says of the entity.
        embedder: What compares meanings.
    """
    texts = sorted({relation_text(relation) for relation in facts.relations})
    best = sorted(embedder.similarity(question, texts), reverse=True)[:3] if texts else []
    return {
        "meaning": max(best, default=0.0),
        "mean_meaning": sum(best) / len(best) if best else 0.0,
    }


def stems(text: str) -> frozenset[str]:
    """Collect the stems of a text's words."""
    return frozenset(stem(token.text.lower()) for token in tokenise(text))


def words_around(mentions: Mentions, span: Span) -> frozenset[str]:
    """Collect the stems of a question's words outside a span."""
    words = (stem(token.text.lower()) for token in mentions.tokens)
    return frozenset(w for i, w in enumerate(words) if not span.start <= i < span.end)


def weigh(features: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Sum up weighed features; those without a weight count nothing."""
    return sum(value * weights.get(name, 0.0) for name, value in features.items())


def _neighbours(words: Sequence[str], start: int, end: int) -> Features:
    """Name the function words before and after a span."""
    before = words[start - 1] if start > 0 else "^"
    after = words[end] if end < len(words) else "$"
    return {
        f"{side}:{word}": 1.0
        for side, word in (("before", before), ("after", after))
        if word in FUNCTION_WORDS or word in "^$"
    }
