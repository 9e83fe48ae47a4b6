"""What a language model is asked by Bounded Path Context, in our words.

The prompt for relations is the same for every length of the history but for the history itself.

Source: Bounded Path Context, §3 and appendix A, for what is asked.
"""

from collections.abc import Sequence

from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.prompts import numbered
from kbqa.engine.methods.bpc.settings import Marker

_NO_HISTORY: dict[Marker, str] = {
    "neutral": "(no hops are shown)",
    "start": "(none: the reasoning starts here)",
}

_RELATIONS = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. Choose \
at most {width} of the relations below that lead from the current entity towards the answer. Reply \
with their names alone, one a line, the best first. If the current entity answers the question, or \
no relation leads on, reply with STOP.

Question: {question}
History: {history}
Current entity: {entity}
Relations:
{relations}
"""

_ENTITIES = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. The \
relation below leads to several entities. Choose at most {width} of them that lead towards the \
answer. Reply with their names alone, one a line, the best first.

Question: {question}
History: {history}
Current entity: {entity}
Relation: {relation}
Entities:
{entities}
"""

_CHECK = """\
Below are paths of the Freebase knowledge graph. `->` follows a relation forwards, `<-` backwards. \
Can the question be answered from them? Reply with YES or NO alone.

Question: {question}
Paths:
{paths}
"""

_ANSWER = """\
Answer the question from these paths of the Freebase knowledge graph. `->` follows a relation \
forwards, `<-` backwards. Reply with the names of all answers alone, one a line, written as in the \
paths.

Question: {question}
Paths:
{paths}
"""


def relations_prompt(
    question: str, history: str, entity: str, relations: Sequence[str], width: int
) -> tuple[Message, ...]:
    """Ask which relations to follow from an entity."""
    prompt = _RELATIONS.format(
        width=width,
        question=question,
        history=history,
        entity=entity,
        relations=numbered(relations),
    )
    return (Message("user", prompt),)


def entities_prompt(
    question: str, history: str, entity: str, relation: str, entities: Sequence[str], width: int
) -> tuple[Message, ...]:
    """Ask which entities to go on from; only the variant of Think-on-Graph asks this."""
    prompt = _ENTITIES.format(
        width=width,
        question=question,
        history=history,
        entity=entity,
        relation=relation,
        entities=numbered(entities),
    )
    return (Message("user", prompt),)


def check_prompt(question: str, paths: Sequence[str]) -> tuple[Message, ...]:
    """Ask whether paths suffice."""
    return (Message("user", _CHECK.format(question=question, paths=numbered(paths))),)


def answer_prompt(question: str, paths: Sequence[str]) -> tuple[Message, ...]:
    """Ask for the answers; the prompt depends on the paths alone."""
    return (Message("user", _ANSWER.format(question=question, paths=numbered(paths))),)


def written_history(hops: Sequence[str], shown: int, marker: Marker, has_numbers: bool) -> str:
    r"""Write the last hops of a walk.

    >>> written_history(["A -> r -> B", "B -> s -> C"], 1, "neutral", True)
    '\nHop 2: B -> s -> C'
    >>> written_history(["A -> r -> B"], 0, "neutral", False)
    '(no hops are shown)'

    Args:
        hops: All hops of the walk, drawn.
        shown: How many of the last ones are shown.
        marker: What stands for none.
        has_numbers: Whether each is numbered from the start of the walk.
    """
    first = max(len(hops) - shown, 0)
    if first == len(hops):
        return _NO_HISTORY[marker]
    lines = (
        f"Hop {number}: {hop}" if has_numbers else hop
        for number, hop in enumerate(hops[first:], first + 1)
    )
    return "\n" + "\n".join(lines)
