"""What a language model is asked by KnowPath, in our words.

Source: KnowPath §2 and appendix F for what is asked; appendix B, algorithm 2, for written paths.

Read what a language model replies to KnowPath: paths from memory, and its judgement.

Both the form that our prompts ask for and the form of the paper are understood.

Source: KnowPath, appendix F, for the forms.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choosing import numbered
from kbqa.engine.deciding.reading import (
    clip_unread,
    field_of,
    names_within,
    read_names,
    read_record,
    read_yes,
)
from kbqa.engine.graph_walk import Walk, arrow
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import Term

_SYSTEM = "You answer questions with the help of the Freebase knowledge graph. Reply in the form \
that is asked for, with nothing before or after it."

_PATHS = """\
Answer the question from memory. First find the entities that it is about.{list_triples} Then give \
the answer, and the path of relations that leads from those entities to it. Reply with JSON alone:
{{{triples_form}"path": ["entity -> relation -> entity -> ..."], "answers": ["name", ...]}}

Question: {question}
"""

_LIST_TRIPLES = " Then list {count} facts that bear on the question, the most relevant first."

_RELATIONS = """\
A question is answered by exploring the Freebase knowledge graph from a topic entity. Choose at \
most {most} of the relations below that lead towards the answer, the most relevant first. `->` \
follows a relation forwards, `<-` backwards. Reply with JSON alone, names or numbers:
{{"Relations": ["...", ...]}}

Question: {question}
Topic entity: {topic}
{hint}Explored from: {entities}
Relations:
{relations}
"""

_ENTITIES = """\
A question is answered by exploring the Freebase knowledge graph from a topic entity. The chosen \
relations lead to the entities below. Choose at most {most} of them that answer the question or \
lead towards the answer, the most relevant first. Reply with JSON alone, names or numbers:
{{"Entities": ["...", ...]}}

Question: {question}
Topic entity: {topic}
{hint}Chosen relations: {relations}
Entities:
{entities}
"""

_CHECK = """\
Below are paths of the Freebase knowledge graph. `->` and `<-` give the direction of each \
relation. Decide whether the question can be answered from them and from what you know yourself. \
If it can, name all answers, written as in the paths. Reply with JSON alone:
{{"Answerable": true or false, "Response": "the answer in a sentence", "Answers": ["name", ...]}}

Question: {question}
Paths:
{paths}
"""


def paths_prompt(question: str, triples: int) -> tuple[Message, ...]:
    """Ask for triples, an answer and the path to it, all from memory; 0 triples are not listed."""
    return _messages(
        _PATHS.format(
            list_triples=_LIST_TRIPLES.format(count=triples) if triples else "",
            triples_form='"triples": [["entity", "relation", "entity"], ...], ' if triples else "",
            question=question,
        )
    )


def relations_prompt(
    question: str,
    topic: str,
    hint: Sequence[str],
    entities: Sequence[str],
    relations: Sequence[str],
    most: int,
) -> tuple[Message, ...]:
    """Ask which relations to follow.

    Args:
        question: In one line.
        topic: Name of the subgraph's topic.
        hint: Paths from memory; without any, the prompt has no such line.
        entities: Names of those that have the relations.
        relations: Offered, each with its arrow.
        most: How many to choose.
    """
    return _messages(
        _RELATIONS.format(
            most=most,
            question=question,
            topic=topic,
            hint=_hint_line(hint),
            entities="; ".join(entities),
            relations=numbered(relations),
        )
    )


def entities_prompt(
    question: str,
    topic: str,
    hint: Sequence[str],
    relations: Sequence[str],
    entities: Sequence[str],
    most: int,
) -> tuple[Message, ...]:
    """Ask which entities to go on from; the arguments are those of `relations_prompt`."""
    return _messages(
        _ENTITIES.format(
            most=most,
            question=question,
            topic=topic,
            hint=_hint_line(hint),
            relations="; ".join(relations),
            entities=numbered(entities),
        )
    )


def check_prompt(question: str, paths: Sequence[str]) -> tuple[Message, ...]:
    """Ask whether paths and the model's own knowledge answer the question, and how."""
    return _messages(_CHECK.format(question=question, paths="\n".join(paths)))


def written_hop(hop: Hop) -> str:
    """Write a relation as it is offered.

    >>> written_hop(Hop("people.person.parents", inverse=True))
    '<- people.person.parents'
    """
    return f"{arrow(hop)} {hop.relation}"


def written_path(walk: Walk, name: Callable[[Term], str]) -> str:
    """Write a walk as algorithm 2 does: it grows to the side to which its first arrow lets it.

    A walk whose first hop leaves the topic grows to the right. One whose first hop enters the topic
    grows to the left, so that the topic stands last. An arrow always points at the object.

    >>> from kbqa.sparql.crp import Entity
    >>> walk = Walk(Entity("Kenya", "m.k")).then(Hop("a.b", True), "m.1").then(Hop("c.d"), "m.2")
    >>> written_path(walk, {"m.k": "Kenya", "m.1": "Nairobi", "m.2": "Eve"}.__getitem__)
    'Eve <- c.d <- Nairobi -> a.b -> Kenya'
    """
    grows_left = bool(walk.steps) and walk.steps[0].inverse
    path = name(walk.nodes[0])
    for step in walk.steps:
        # Read from the left, a hop forwards is `<-` where the path grows to the left.
        way = "->" if step.inverse == grows_left else "<-"
        reached = name(step.reached)
        if grows_left:
            path = f"{reached} {way} {step.relation} {way} {path}"
        else:
            path = f"{path} {way} {step.relation} {way} {reached}"
    return path


def _messages(prompt: str) -> tuple[Message, ...]:
    return Message("system", _SYSTEM), Message("user", prompt)


def _hint_line(hint: Sequence[str]) -> str:
    return f"Path from memory, perhaps wrong: {'; '.join(hint)}\n" if hint else ""


MAX_HINTS = 3
"""Paths from memory that count; a prompt of the paper has one."""

MAX_HINT_LETTERS = 500
"""Letters of a path from memory that are shown."""

_ARROW = re.compile(r"\s*(?:-+>|→|⟶)\s*")
_RESPONSE = re.compile(r"\b(?:responses?|answers?)[\"'”]?\s*(?:is|are)?\s*:\s*(.+)", re.I | re.S)
_ANSWERABLE = re.compile(r"\banswerable[\"'”]?\s*:?\s*\W?(?:true|yes)\b", re.I)
_ANSWER_IS = re.compile(r"\banswers?\b.*?(?:\b(?:is|are|was|were)\b|:)\s*(.+)", re.I | re.S)


class Thought(NamedTuple):
    """What the model knows of a question from memory.

    Attributes:
        hint: Paths, as it wrote them.
        names: Its answer.
        unread: What could not be understood.
    """

    hint: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """Whether the model can answer a question, and what.

    Attributes:
        names: Its answers; none if it cannot answer.
        unread: What could not be understood.
    """

    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def read_thought(reply: str, question: str) -> Thought:
    """Read paths and an answer from memory.

    >>> read_thought('{"path": ["Kenya -> capital -> Nairobi"], "answers": ["Nairobi"]}', "?")
    Thought(hint=('Kenya -> capital -> Nairobi',), names=('Nairobi',), unread=())
    >>> read_thought('{reasoning_path : ["Kenya→capital→Nairobi"], "response": "based on the '
    ...     'knowledge, the answer to the question what is it is Nairobi" }', "what is it?")
    Thought(hint=('Kenya -> capital -> Nairobi',), names=('Nairobi',), unread=())
    """
    record = read_record(reply)
    paths = _texts(field_of(record, "path", "paths", "reasoning_path", "reasoning path"))
    if not paths:
        paths = re.split(r'[\n"“”\[\]{}]', reply)
    hint = [" -> ".join(parts) for path in paths if len(parts := _ARROW.split(_line(path))) > 2]
    names = _names(record, reply, question, ())
    unread = [path[MAX_HINT_LETTERS:] for path in hint[:MAX_HINTS]] + hint[MAX_HINTS:]
    if not names:
        unread.append(reply)
    return Thought(
        tuple(path[:MAX_HINT_LETTERS] for path in hint[:MAX_HINTS]),
        tuple(names),
        clip_unread(list(filter(None, unread))),
    )


def read_verdict(reply: str, question: str, known: Sequence[str]) -> Verdict:
    """Read whether the model can answer, and its answers.

    Only what says that it can answer, and names an answer, counts as an answer.

    >>> read_verdict('{"Answerable": True, "Response": "the answer to the question what is the '
    ...     'capital is Nairobi"}', "what is the capital?", ["Kenya", "Nairobi"])
    Verdict(names=('Nairobi',), unread=())
    >>> read_verdict('{"Answerable": false, "Response": "", "Answers": []}', "who?", [])
    Verdict(names=(), unread=())

    Args:
        reply: What the model wrote.
        question: In one line.
        known: Names that the prompt showed.
    """
    record = read_record(reply)
    verdict = field_of(record, "answerable", "sufficient")
    if verdict is None:
        is_answerable = _ANSWERABLE.search(reply) is not None
        if not is_answerable:
            is_read = re.search(r"\banswerable\b\W*(?:false|no)\b", reply, re.I) is not None
            return Verdict((), () if is_read else clip_unread([reply or "(empty)"]))
    elif not read_yes(verdict):
        return Verdict()
    names = _names(record, reply, question, known)
    return Verdict(tuple(names), () if names else clip_unread([reply]))


def _names(
    record: Mapping[str, Any] | None, reply: str, question: str, known: Sequence[str]
) -> list[str]:
    """Read the answers of a reply: from its list, or else from its sentence."""
    names = _listed_names(_texts(field_of(record, "answers", "answer")), question, known)
    if names:
        return names
    response = " ".join(_texts(field_of(record, "response", "responses")))
    if record is None and (match := _RESPONSE.search(reply)):
        response = match[1].strip("\"'{}[] \n")
    return _names_of_sentence(response, question, known)


def _listed_names(texts: Sequence[str], question: str, known: Sequence[str]) -> list[str]:
    """Read names that stand each for itself: commas inside unknown ones do not part them."""
    found: dict[str, None] = {}
    for text in texts:
        read, unread = read_names(_line(text), known)
        if unread:
            read = _names_of_sentence(text, question, known)
        elif len(read) > 1:
            read = [name for name in read if name in known] or [_line(text)]
        found.update(dict.fromkeys(read))
    return list(found)


def _names_of_sentence(text: str, question: str, known: Sequence[str]) -> list[str]:
    """Read the answers that a sentence gives; names in the question itself are none."""
    asked = re.escape(question.rstrip("?. "))
    text = re.sub(rf"{asked}\??", " ", _line(text), flags=re.I) if asked else _line(text)
    match = _ANSWER_IS.search(text)
    said = match[1] if match else text
    within = names_within(said, known)
    if within and not match:
        within = [each for each in within if not names_within(question, [each])] or within
    return within or read_names(said.rstrip(". "), known)[0]


def _texts(value: object) -> list[str]:
    """Return the texts of a field that may be a list or one text."""
    if value is None:
        return []
    if isinstance(value, (list, tuple, set)):
        return [" ".join(map(str, v)) if isinstance(v, list) else str(v) for v in value]
    return [str(value)]


def _line(text: str) -> str:
    return " ".join(text.split())
