"""Where a search of the graph starts, and what it compares paths with."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.linking.starts import MAX_STARTS, starting_topics
from kbqa.engine.method import Asked
from kbqa.engine.questions.measures import find_values
from kbqa.sparql.crp import Compare, Crp, Entity, TextEquals
from kbqa.sparql.terms import LiteralTerm

_EACH_MENTION = 2


def search_topics(asked: Asked, readings: Sequence[Crp]) -> list[Entity]:
    """Return the entities that a search starts from, best first.

    Args:
        asked: The question.
        readings: Grounded CRPs; their topics come before the given and the linked entities.
    """
    return list(dict.fromkeys(_topics(readings, asked.given, asked.linked)))[:MAX_STARTS]


def without_mentions(asked: Asked, topics: Sequence[Entity]) -> str:
    """Return the question without the words that name these entities."""
    return _without(asked.question, [_mention(topic, asked.linked) for topic in topics])


def unnamed_entities(asked: Asked, crp: Crp) -> Iterator[Entity]:
    """Yield linked entities whose words name no entity of a CRP, two for the same words at most.

    Args:
        asked: The question.
        crp: Grounded.
    """
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
        match each.test:
            case TextEquals(text) | Compare(_, LiteralTerm(text)):
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
