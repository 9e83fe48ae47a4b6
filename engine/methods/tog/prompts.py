"""What a language model is asked by Think-on-Graph, in our words, and how it scores entities.

Source: Think-on-Graph, §2 and its appendix of prompts, for what is asked; without its examples.
"""

from collections.abc import Sequence

from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choice import Picked
from kbqa.engine.deciding.prompts import numbered
from kbqa.engine.deciding.reading import clip_unread, read_list, read_scores

_RELATIONS = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. `->` \
follows a relation forwards, `<-` backwards. Choose at most {width} of the relations below that \
lead from the entity towards the answer, and rate how much each contributes by a score from 0 to \
1; the scores add up to 1. Reply with a relation and its score a line, the best first, such as:
-> people.person.parents: 0.7

Question: {question}
Entity: {entity}
Relations:
{relations}
"""

_ENTITIES = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. The \
relation below leads from an entity to those that are listed. Rate how much each of them \
contributes to the answer by a score from 0 to 1; the scores add up to 1. Reply with the number of \
every entity and its score, one a line, such as:
1: 0.7

Question: {question}
Entity: {entity}
Relation: {relation}
Entities:
{entities}
"""

_CHECK = """\
Below are triples of the Freebase knowledge graph. Can the question be answered from them and what \
you know? Reply with Yes or No on the first line. After Yes, write the names of all answers, one a \
line, as in the triples.

Question: {question}
Triples:
{triples}
"""

_ANSWER = """\
Answer the question from these triples of the Freebase knowledge graph and what you know. Reply \
with the names of all answers alone, one a line, as in the triples.

Question: {question}
Triples:
{triples}
"""


def relations_prompt(
    question: str, entity: str, relations: Sequence[str], width: int
) -> tuple[Message, ...]:
    """Ask for scores of the relations of an entity."""
    prompt = _RELATIONS.format(
        width=width, question=question, entity=entity, relations=numbered(relations)
    )
    return (Message("user", prompt),)


def entities_prompt(
    question: str, entity: str, relation: str, entities: Sequence[str]
) -> tuple[Message, ...]:
    """Ask for scores of the entities that a relation leads to."""
    prompt = _ENTITIES.format(
        question=question, entity=entity, relation=relation, entities=numbered(entities)
    )
    return (Message("user", prompt),)


def check_prompt(question: str, triples: Sequence[str]) -> tuple[Message, ...]:
    """Ask whether triples suffice, and then for the answers."""
    return (Message("user", _CHECK.format(question=question, triples="\n".join(triples))),)


def answer_prompt(question: str, triples: Sequence[str]) -> tuple[Message, ...]:
    """Ask for the answers from triples."""
    return (Message("user", _ANSWER.format(question=question, triples="\n".join(triples))),)


def read_relation_scores(reply: str, options: Sequence[str], width: int) -> Picked:
    """Read at most `width` relations with their scores."""
    picked = read_scores(reply, options, width, is_loose=True)
    if picked.chosen or picked.unread:
        return picked
    return Picked((), (), clip_unread([reply.strip() or "(empty)"]))


def read_entity_scores(reply: str, options: Sequence[str]) -> Picked:
    r"""Read a score for each entity: by number or name, or all in a list in the entities' order.

    If scores are missing or too many, all are equal, and the reply counts as not understood.

    >>> read_entity_scores("1: 0.2\n2: 0.8", ["Paris", "Paris"])
    Picked(chosen=(1, 0), scores=(0.8, 0.2), unread=(), stops=False)
    >>> read_entity_scores("Score: 0.2, 0.8", ["Paris", "Nice"]).scores
    (0.2, 0.8)
    >>> read_entity_scores("Paris", ["Paris", "Nice"])
    Picked(chosen=(0, 1), scores=(0.5, 0.5), unread=('Paris',), stops=False)
    """
    size = len(options)
    listed = read_list(reply)
    if listed is None:
        listed = ((reply.strip().splitlines() or [""])[-1].rpartition(":")[2]).split(",")
    scores = _scores(listed)
    if len(scores) == size:
        return Picked(tuple(range(size)), scores)
    picked = read_scores(reply, options, size)
    if len(picked.chosen) == size:
        return picked
    return Picked(
        tuple(range(size)), (1.0 / size,) * size, clip_unread([reply.strip() or "(empty)"])
    )


def _scores(texts: Sequence[str]) -> tuple[float, ...]:
    """Read texts as scores, clipped to [0, 1]; none if one of them is no number."""
    try:
        scores = tuple(map(float, texts))
    except ValueError:
        return ()
    if any(score != score for score in scores):  # not a number
        return ()
    return tuple(min(max(score, 0.0), 1.0) for score in scores)
