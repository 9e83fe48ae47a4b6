"""Where a search of the graph starts, and what it compares paths with."""

import re
from collections.abc import Iterator, Sequence

from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.linking.starts import MAX_STARTS, starting_topics
from kbqa.engine.method import Asked
from kbqa.sparql.crp import Crp, Entity


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
        words = rf"(?<!\w){re.escape(mention)}(?!\w)"
        rest = re.sub(words, " ", rest, count=1, flags=re.IGNORECASE)
    return " ".join(rest.split()) if any(map(str.isalpha, rest)) else question
