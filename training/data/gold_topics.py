"""The topic entities of a question that is trained on."""

from collections.abc import Mapping
from typing import Any

from kbqa.engine.questions.question_sets import topic_entities
from kbqa.sparql.crp import Crp, Entity, IsEntity

_TYPE_RELATION = "common.topic.notable_types"


def gold_topics(row: Mapping[str, Any], crp: Crp) -> tuple[Entity, ...]:
    """Return the topics that a record states, or else the entities that its query names.

    An entity that is only the type of an answer is no topic: questions name it by a common noun.
    """
    if stated := topic_entities(row):
        return stated
    types = {
        each.test.entity
        for each in crp.all_constraints()
        if isinstance(each.test, IsEntity)
        and each.hops
        and each.hops[-1].relation == _TYPE_RELATION
    }
    names = {each.get("mid"): each.get("name") for each in row.get("entities_in_sparql") or ()}
    found = dict.fromkeys(each for each in crp.entities() if each not in types)
    return tuple(Entity(names.get(each.mid) or each.name, each.mid) for each in found)
