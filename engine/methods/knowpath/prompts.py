"""What a language model is asked by KnowPath, in our words.

Source: KnowPath §2 and appendix F for what is asked; appendix B, algorithm 2, for written paths.
"""

from collections.abc import Callable, Sequence

from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.prompts import numbered
from kbqa.engine.exploring.walks import Walk, arrow
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
