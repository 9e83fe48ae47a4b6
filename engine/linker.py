"""Link a question to entities of the graph by the names that it mentions.

Every run of words that is somebody's name is a mention. Longer mentions that say something come
first, then the better known entity; a mention inside a longer one counts less. Which reading is
right is for the paths to decide: candidates are kept, not chosen.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kbqa.kb.entity_search import Names
from kbqa.kb.names import NameMatch

_WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*(?:['’]s)?", re.UNICODE)
_MAX_WORDS = 100  # a question; the rest of a longer text is not searched for names
_FUNCTION_WORDS = frozenset(
    """a about after all also an and any are as at be been before being by can could did do does
    each for from had has have he her him his how i if in into is it its many me more most much my
    name names of on one or our out she should so some than that the their them then there these
    they this those to up us was we were what when where which while who whom whose why will with
    would you your""".split()  # noqa: SIM905 – a list of a hundred words reads better as text
)


@dataclass(frozen=True, slots=True)
class LinkedEntity:
    """An entity that a question may be about.

    Attributes:
        mid: The entity.
        name: Its own name.
        mention: The words of the question that name it.
        score: Higher is better; comparable within one question.
    """

    mid: str
    name: str
    mention: str
    score: float


def link_entities(question: str, names: Names, limit: int = 10) -> list[LinkedEntity]:
    """Find the entities that a question mentions, best first.

    Args:
        question: As a user typed it; case does not matter.
        names: The graph's names.
        limit: Entities to return at most.
    """
    words = _WORD.findall(question)[:_MAX_WORDS]
    spans = names.match_spans(words)
    best: dict[str, LinkedEntity] = {}
    for span in spans:
        mention = words[span.start : span.end]
        is_inside = any(
            other.start <= span.start and span.end <= other.end and other != span for other in spans
        )
        for match in span.matches:
            score = _score(mention, match, is_inside)
            if match.mid not in best or score > best[match.mid].score:
                best[match.mid] = LinkedEntity(match.mid, match.name, " ".join(mention), score)
    return sorted(best.values(), key=lambda entity: (-entity.score, entity.mid))[:limit]


def _score(mention: Sequence[str], match: NameMatch, is_inside: bool) -> float:
    telling = sum(word.lower() not in _FUNCTION_WORDS for word in mention)
    return (
        2.0 * telling
        + 0.15 * math.log2(1 + match.popularity)
        - (0.5 if match.is_alias else 0.0)
        - (1.5 if is_inside else 0.0)
    )
