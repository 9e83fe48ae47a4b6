"""What a language model is asked by Plan-on-Graph, in our words, and how its replies are read.

Source: Plan-on-Graph, §3 and its appendix of prompts, for what is asked; without its examples.
"""

import re
from collections.abc import Sequence

from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choosing import numbered
from kbqa.engine.deciding.reading import (
    clip_unread,
    field_of,
    plain_lines,
    read_list,
    read_record,
    read_yes,
)

MAX_OBJECTIVES = 8
MAX_OBJECTIVE_LETTERS = 200
MAX_MEMORY_LETTERS = 2000
"""Sub-objectives that count, the letters of each, and those of what is remembered about one."""

_PLAN = """\
Break the question into the sub-objectives by which it is answered from a knowledge graph. Reply \
with a JSON list of short phrases alone.

Question: {question}
"""

_RELATIONS = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. `->` \
follows a relation forwards, `<-` backwards. Choose as few of the relations below as possible that \
lead from the entity towards the answer. Reply with a JSON list of them, or with [] if none does.

Question: {question}
Sub-objectives:
{objectives}
Entity: {entity}
Relations:
{relations}
"""

_ENTITIES = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. The \
relation below leads from an entity to those that are listed. Choose as few of them as possible \
that are the answer or lead to it. Reply with a JSON list of their numbers, or with [] if none is.

Question: {question}
Sub-objectives:
{objectives}
Entity: {entity}
Relation: {relation}
Entities:
{entities}
"""

_REMEMBER = """\
Keep a memory of what is known about each sub-objective of a question. Below are the memory so far \
and new triples of the Freebase knowledge graph. Reply with a JSON record alone: for the number of \
each sub-objective, what is known about it now, in a short sentence.

Question: {question}
Sub-objectives:
{objectives}
Memory:
{memory}
New triples:
{triples}
"""

_CHECK = """\
Can the question be answered from the memory and the triples of the Freebase knowledge graph below \
and what you know? Reply with a JSON record alone, such as
{{"A": {{"Sufficient": "Yes", "Answer": ["a name", "another name"]}}, "R": "the reason"}}
with the names of all answers as in the triples, or with "No" and null if it cannot.

Question: {question}
Memory:
{memory}
Triples:
{triples}
"""

_REFLECT = """\
A question is answered by walking the Freebase knowledge graph. What was found does not suffice \
yet. The walk goes on from the entities below. Should entities that were met earlier be added to \
them, because the walk went the wrong way? Reply with a JSON record alone, such as \
{{"Add": "No", "Reason": "the reason"}}

Question: {question}
Memory:
{memory}
Entities:
{entities}
"""

_EARLIER = """\
A question is answered by walking the Freebase knowledge graph. What was found does not suffice \
yet. Choose as few as possible of the entities below, which were met earlier, to walk on from. \
Reply with a JSON list of their numbers, or with [] for none.

Question: {question}
Memory:
{memory}
Earlier entities:
{entities}
"""

_ANSWER = """\
Answer the question from these triples of the Freebase knowledge graph and what you know. Reply \
with the names of all answers alone, one a line, as in the triples.

Question: {question}
Memory:
{memory}
Triples:
{triples}
"""

_ID = re.compile(r"[mg]\.[0-9a-z_]+")


def plan_prompt(question: str) -> tuple[Message, ...]:
    """Ask for the sub-objectives of a question."""
    return _prompt(_PLAN, question=question)


def relations_prompt(
    question: str, objectives: Sequence[str], entity: str, relations: Sequence[str]
) -> tuple[Message, ...]:
    """Ask which relations to follow from an entity."""
    return _prompt(
        _RELATIONS,
        question=question,
        objectives=listed(objectives),
        entity=entity,
        relations=numbered(relations),
    )


def entities_prompt(
    question: str, objectives: Sequence[str], entity: str, relation: str, entities: Sequence[str]
) -> tuple[Message, ...]:
    """Ask which of the entities that a relation leads to are needed."""
    return _prompt(
        _ENTITIES,
        question=question,
        objectives=listed(objectives),
        entity=entity,
        relation=relation,
        entities=numbered(entities),
    )


def remember_prompt(
    question: str, objectives: Sequence[str], memory: Sequence[str], triples: Sequence[str]
) -> tuple[Message, ...]:
    """Ask what is known about each sub-objective."""
    return _prompt(
        _REMEMBER,
        question=question,
        objectives=numbered(objectives),
        memory=listed(memory),
        triples=listed(triples),
    )


def check_prompt(
    question: str, memory: Sequence[str], triples: Sequence[str]
) -> tuple[Message, ...]:
    """Ask whether memory and triples suffice, and then for the answers."""
    return _prompt(_CHECK, question=question, memory=listed(memory), triples=listed(triples))


def reflect_prompt(
    question: str, memory: Sequence[str], entities: Sequence[str]
) -> tuple[Message, ...]:
    """Ask whether earlier entities should be taken up again."""
    return _prompt(_REFLECT, question=question, memory=listed(memory), entities=listed(entities))


def earlier_prompt(
    question: str, memory: Sequence[str], entities: Sequence[str]
) -> tuple[Message, ...]:
    """Ask which earlier entities to take up again."""
    return _prompt(_EARLIER, question=question, memory=listed(memory), entities=numbered(entities))


def answer_prompt(
    question: str, memory: Sequence[str], triples: Sequence[str]
) -> tuple[Message, ...]:
    """Ask for the answers from memory and triples."""
    return _prompt(_ANSWER, question=question, memory=listed(memory), triples=listed(triples))


def listed(texts: Sequence[str]) -> str:
    """Write texts one a line; those that are empty are left out."""
    return "\n".join(f"- {text}" for text in texts if text) or "(none)"


def read_plan(reply: str) -> tuple[str, ...]:
    r"""Read sub-objectives: a list, or one a line.

    >>> read_plan('["who his parents are", "their other children"]')
    ('who his parents are', 'their other children')
    """
    found = read_list(reply)
    texts = plain_lines(reply) if found is None else found
    kept = dict.fromkeys(" ".join(text.split())[:MAX_OBJECTIVE_LETTERS] for text in texts)
    return tuple(text for text in kept if text)[:MAX_OBJECTIVES]


def read_memory(
    reply: str, objectives: Sequence[str], memory: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read what is known now about each sub-objective; what the reply leaves out stays.

    >>> read_memory('{"2": "Jaxon", "9": "?"}', ["parents", "children"], ["Jeremy", ""])
    (('Jeremy', 'Jaxon'), ('9: ?',))

    Returns:
        The memory, and what could not be understood.
    """
    record = read_record(reply)
    if record is None:
        return tuple(memory), clip_unread([reply.strip() or "(empty)"])
    known = list(memory)
    unread = []
    keys = {" ".join(each.lower().split()): at for at, each in enumerate(objectives)}
    keys |= {str(at): at - 1 for at in range(1, len(objectives) + 1)}
    for name, text in record.items():
        at = keys.get(" ".join(name.lower().split()).strip(".# "))
        if at is None:
            unread.append(f"{name}: {text}")
        elif text is not None:
            known[at] = " ".join(str(text).split())[:MAX_MEMORY_LETTERS]
    return tuple(known), clip_unread(unread)


def read_add(reply: str) -> tuple[bool, tuple[str, ...]]:
    """Read whether earlier entities should be added, and what could not be understood.

    >>> read_add('{"Add": "Yes", "Reason": "a wrong turn"}'), read_add("Hm")
    ((True, ()), (False, ('Hm',)))
    """
    said = field_of(read_record(reply), "add")
    text = reply if said is None else str(said)
    is_clear = read_yes(text) or re.match(r"\W*(?:no|false)\b", text, re.IGNORECASE) is not None
    return read_yes(text), () if is_clear else clip_unread([reply.strip() or "(empty)"])


def is_id(name: str) -> bool:
    """Return whether a name is a node's id, which answers no question.

    >>> is_id("m.0d05w3"), is_id("m.A.A.D City")
    (True, False)
    """
    return _ID.fullmatch(name) is not None


def _prompt(template: str, **fields: str) -> tuple[Message, ...]:
    return (Message("user", template.format(**fields)),)
