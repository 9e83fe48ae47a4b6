"""Link a question to entities of the graph by the names that it mentions.

Every run of words that is a name is a mention, and every entity of that name a candidate. A linear
model (`kbqa.engine.linking.model`) ranks the candidates: first by features of their names and
positions, then the best of them also by how well their types and relations fit the question. The
linker keeps candidates instead of choosing one; the paths show which is right.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbqa.engine.linking.features import (
    EntityCandidate,
    EntityFacts,
    Features,
    entity_features,
    find_candidates,
    weighted_sum,
    words_around,
)
from kbqa.engine.linking.mentions import Mentions, find_mentions
from kbqa.engine.linking.model import LinkingModel, softmax
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import Names
from kbqa.sparql.errors import QueryTimeout

logger = logging.getLogger(__name__)

FINALISTS = 12
"""Maximum number of candidates that are looked up in the graph: 0.3 ms each."""

_KEPT_FACTS = 4096


def explain_unlinked(names: Names) -> str:
    """Say that a question names nothing in the graph."""
    why = "; an endpoint forgives no typing errors" if names.is_exact else ""
    return f"the graph has no entity of any name in the question{why}"


@dataclass(frozen=True, slots=True)
class LinkedEntity:
    """An entity that a question may be about.

    Attributes:
        mid: The entity.
        name: Its own name.
        mention: The words of the question that name it.
        score: The probability that the question is about it, given that it is about one of the
            finalists; 0 for other candidates.
    """

    mid: str
    name: str
    mention: str
    score: float

    def to_dict(self) -> dict[str, str | float]:
        """Return a JSON record; the score is rounded to four digits."""
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
        model: The model that ranks; the shipped one by default.
    """

    def __init__(self, graph: Graph, names: Names, model: LinkingModel | None = None) -> None:
        self._names = names
        self._model = model or LinkingModel.load()
        self._graph = graph
        self._kept: dict[str, EntityFacts] = {}

    def link(self, question: str, limit: int = 10) -> list[LinkedEntity]:
        """Find the entities that a question mentions, best first, each once.

        Args:
            question: As typed; case does not matter.
            limit: Maximum number of entities.

        Raises:
            GraphError: The graph does not answer.
        """
        return self.rank(self.mentions(question), limit)

    def mentions(self, question: str) -> Mentions:
        """Find the names and values in a question.

        Raises:
            GraphError: The graph does not answer.
        """
        return find_mentions(question, self._names, model=self._model)

    def rank(self, mentions: Mentions, limit: int = 10) -> list[LinkedEntity]:
        """Rank the entities whose names a question mentions, each once.

        Raises:
            GraphError: The graph does not answer.
        """
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
        ranked += [(0.0, candidate) for candidate in others]
        return [
            LinkedEntity(
                c.match.mid, c.match.name, mentions.text(c.span.start, c.span.end), probability
            )
            for probability, c in ranked[:limit]
        ]

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
