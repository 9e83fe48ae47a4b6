"""Link a question to entities of the graph by the names that it mentions.

Every run of words that is somebody's name is a mention, and everybody who bears it a candidate. A
linear model (`kbqa.engine.linking_model`) puts the candidates in order: first by what their names
and places tell, then, the foremost alone, also by how their types and relations go with the rest of
the question. Which reading is right is for the paths to decide: candidates are kept, not chosen.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from kbqa.engine.embedder import Embedder
from kbqa.engine.linking_features import (
    Candidate,
    EntityFacts,
    Features,
    entity_features,
    find_candidates,
    meaning_features,
    weigh,
    words_around,
)
from kbqa.engine.linking_model import LinkingModel
from kbqa.engine.question_mentions import Mentions, find_mentions
from kbqa.kb.entity_search import Names
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import ModelError, QueryTimeout

logger = logging.getLogger(__name__)

FINALISTS = 12
"""Candidates that are looked up in the graph: 0.3 ms each."""

_KEPT_FACTS = 4096


@dataclass(frozen=True, slots=True)
class LinkedEntity:
    """An entity that a question may be about.

    Attributes:
        mid: The entity.
        name: Its own name.
        mention: The words of the question that name it.
        score: The model's probability that the question is about it, given that it is about one of
            the foremost candidates; 0 behind these.
    """

    mid: str
    name: str
    mention: str
    score: float

    def to_dict(self) -> dict[str, str | float]:
        """Make a JSON record; the score is rounded to four digits."""
        return {
            "mid": self.mid,
            "name": self.name,
            "score": round(self.score, 4),
            "mention": self.mention,
        }


class Linker:
    """Finds the entities that questions are about.

    Args:
        graph: Where types and relations of candidates are looked up.
        names: The graph's names.
        model: The model that ranks; the shipped one unless another is given.
        embedder: Also compares the question's meaning with the candidates' relations.

    Raises:
        ModelError: The shipped model cannot be read, or the model knows no embedder.
    """

    def __init__(
        self,
        graph: Graph,
        names: Names,
        model: LinkingModel | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self._names = names
        self._model = model or LinkingModel.load()
        self._embedder = embedder
        self._weights = self._model.final if embedder is None else self._model.final_embedded
        if not self._weights:
            kind = "without" if embedder is None else "with"
            raise ModelError(
                f"the model cannot rank {kind} an embedder; train one by tools/train_linker.py"
            )
        self._fetch = lru_cache(_KEPT_FACTS)(partial(EntityFacts.fetch, graph))

    def link(self, question: str, limit: int = 10) -> list[LinkedEntity]:
        """Find the entities that a question mentions, best first, each once.

        Args:
            question: As a user typed it; case does not matter.
            limit: Entities to return at most.

        Raises:
            GraphError: The graph does not answer.
        """
        return self.rank(self.mentions(question), limit)

    def mentions(self, question: str) -> Mentions:
        """Find the names and values in a question; raises as `link` does."""
        return find_mentions(question, self._names, is_ordinary=self._model.is_ordinary)

    def rank(self, mentions: Mentions, limit: int = 10) -> list[LinkedEntity]:
        """Order those who bear the names that a question mentions; see `link`."""
        candidates = find_candidates(mentions, self._model)
        chosen = choose_finalists(candidates, self._model, max(limit, FINALISTS))
        finalists, others = chosen[:FINALISTS], chosen[FINALISTS:]
        features = final_features(mentions, finalists, self._facts, self._model)
        if self._embedder is not None:
            add_meaning(features, mentions, finalists, self._facts, self._embedder)
        scores = [weigh(of_one, self._weights) for of_one in features]
        ranked = sorted(
            zip(_probabilities(scores), finalists, strict=True),
            key=lambda pair: (-pair[0], pair[1].match.mid),
        )
        ranked += [(0.0, candidate) for candidate in others]
        return [
            LinkedEntity(
                c.match.mid, c.match.name, mentions.text(c.span.start, c.span.end), probability
            )
            for probability, c in ranked[:limit]
        ]

    def _facts(self, mid: str) -> EntityFacts:
        """Look an entity up; of one that is not told in time nothing is known."""
        try:
            return self._fetch(mid)
        except QueryTimeout as error:
            logger.warning("%s is ranked without its types and relations: %s", mid, error)
            return EntityFacts((), ())


def choose_finalists(
    candidates: Iterable[Candidate], model: LinkingModel, limit: int = FINALISTS
) -> list[Candidate]:
    """Choose the candidates that are worth looking up: the best of each entity, best first."""
    ranked = sorted(
        ((weigh(candidate.features, model.first), candidate) for candidate in candidates),
        key=lambda pair: (-pair[0], pair[1].match.mid),
    )
    best: dict[str, Candidate] = {}
    for _, candidate in ranked:
        best.setdefault(candidate.match.mid, candidate)
        if len(best) == limit:
            break
    return list(best.values())


def final_features(
    mentions: Mentions,
    finalists: Sequence[Candidate],
    facts: Callable[[str], EntityFacts],
    model: LinkingModel,
) -> list[Features]:
    """Return all features of the finalists, in their order; `facts` looks an entity up."""
    features = []
    asked_around: dict[frozenset[str], Mapping[str, float]] = {}
    for candidate in finalists:
        around = words_around(mentions, candidate.span)
        if around not in asked_around:
            asked_around[around] = model.asked_relations(around)
        features.append(
            entity_features(
                candidate, facts(candidate.match.mid), around, asked_around[around], model
            )
        )
    return features


def add_meaning(
    features: Sequence[Features],
    mentions: Mentions,
    finalists: Sequence[Candidate],
    facts: Callable[[str], EntityFacts],
    embedder: Embedder,
) -> None:
    """Add to the finalists' features what an embedder tells of them.

    A question is embedded once, without the name of the foremost finalist: it takes some 17 ms.
    """
    if not finalists:
        return
    span = finalists[0].span
    tokens = (*mentions.tokens[: span.start], *mentions.tokens[span.end :])
    question = " ".join(token.text for token in tokens)
    for of_one, candidate in zip(features, finalists, strict=True):
        of_one |= meaning_features(question, facts(candidate.match.mid), embedder)


def _probabilities(scores: list[float]) -> list[float]:
    """Turn scores into the shares of a softmax."""
    highest = max(scores, default=0.0)
    powers = [math.exp(score - highest) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]
