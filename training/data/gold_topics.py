"""The topic entities of a question that is trained on."""

from collections.abc import Mapping
from typing import Any

from kbqa.engine.linking.mentions import named_entities
from kbqa.engine.questions.question_sets import topic_entities
from kbqa.sparql.crp import Crp, Entity


def gold_topics(row: Mapping[str, Any], crp: Crp) -> tuple[Entity, ...]:
    """Return the topics that a record states, or else the entities that its query names."""
    if stated := topic_entities(row):
        return stated
    names = {each.get("mid"): each.get("name") for each in row.get("entities_in_sparql") or ()}
    return tuple(Entity(names.get(each.mid) or each.name, each.mid) for each in named_entities(crp))
