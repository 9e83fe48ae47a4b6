"""The six prompts of TRACE, each in a function whose arguments are what it may know.

Prompts also name the topic that the path starts from, since a question may have several.

Source: TRACE figures 3 to 7 for contents and form; the words are ours.
"""

from collections.abc import Sequence

from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choosing import numbered
from kbqa.kb.graph import prompt_line

START = "This is the start of the path."  # the context if there is no other

_NARRATE = """\
A question is being answered by following relations of the Freebase knowledge graph from an entity \
that it names. Put the relations followed so far into one short sentence that says what they find, \
in the words of the question. Say only what the relations say. Reply with the sentence alone.

Question: who wrote the anthem of the country where Nairobi is?
Relations so far: location.location.containedby, location.country.national_anthem
Sentence: Find the country that contains Nairobi, and then find the anthem of that country.

Question: {question}
Relations so far: {relations}
Sentence:"""

_PROPOSE = """\
A question is being answered by following relations of the Freebase knowledge graph, one after the \
other. Choose from the list below the relations, {most} at most, that are most likely to be the \
next step towards the answer.{arrows} Choose only from the list. Reply with a Python list of \
strings; if no relation leads closer to the answer, or the path has reached it, reply with [].

Question: {question}
The path starts at: {start}
Context: {context}
Relations:
{options}
"""

_RANK = """\
A question is being answered by following relations of the Freebase knowledge graph. Score how \
well each of the relations below continues the path so far: 1.0 fits perfectly, 0.0 not at all. \
Heed what earlier attempts have taught.{arrows} Reply with a Python dictionary of each relation \
and its score, such as {{"people.person.parents": 0.8}}.

Question: {question}
The path starts at: {start}
Path so far: {relations}
Experience: {experience}
Relations:
{options}
"""

_SUMMARISE = """\
An attempt to answer a question by following relations of a knowledge graph has ended. Say in one \
or two short sentences what this attempt looked for, and why it ended. Write about this attempt \
alone; give no general advice. Reply with the sentences alone.

Question: {question}
Relations followed: {relations}
It ended because {reason}.
Summary:"""

_GENERALISE = """\
Below are summaries of attempts to answer a question by following relations of a knowledge graph. \
Find what they have in common: which kinds of relations led nowhere, and which look promising. \
Write a few short sentences of advice for the next attempt. Name no entities. Reply with the \
advice alone.

Question: {question}
Summaries:
{summaries}
Advice:"""

_ANSWER = """\
A path of relations has been followed through the Freebase knowledge graph to answer a question. \
Which of the entities at its end answer the question? Choose only from the list. Reply with their \
names, one a line.

Question: {question}
The path starts at: {start}
Path: {relations}
Entities:
{options}
"""


def narrate_prompt(question: str, relations: Sequence[str]) -> list[Message]:
    """Ask for the path so far in words (f_ctx)."""
    return _user(_NARRATE.format(question=question, relations=_path(relations)))


def propose_prompt(
    question: str, start: str, context: str, options: Sequence[str], most: int
) -> list[Message]:
    """Ask for at most so many relations that may come next (f_ret), by the narrative."""
    return _user(
        _PROPOSE.format(
            question=question,
            start=prompt_line(start),
            context=context,
            options=_numbered(options),
            most=most,
            arrows=_arrows(options),
        )
    )


def rank_prompt(
    question: str, start: str, relations: Sequence[str], experience: str, options: Sequence[str]
) -> list[Message]:
    """Ask for a score of each relation that was proposed (f_rank); the experience may be empty."""
    return _user(
        _RANK.format(
            question=question,
            start=prompt_line(start),
            relations=_path(relations),
            experience=experience or "None",
            options=_numbered(options),
            arrows=_arrows(options),
        )
    )


def summarise_prompt(question: str, relations: Sequence[str], reason: str) -> list[Message]:
    """Ask what an attempt looked for, and why it ended (f_sum)."""
    return _user(_SUMMARISE.format(question=question, relations=_path(relations), reason=reason))


def generalise_prompt(question: str, summaries: Sequence[str]) -> list[Message]:
    """Ask what some attempts have in common (f_gen)."""
    lines = "\n".join(f"- {summary}" for summary in summaries)
    return _user(_GENERALISE.format(question=question, summaries=lines))


def answer_prompt(
    question: str, start: str, relations: Sequence[str], names: Sequence[str]
) -> list[Message]:
    """Ask which ends of the path are answers."""
    return _user(
        _ANSWER.format(
            question=question,
            start=prompt_line(start),
            relations=_path(relations),
            options=_numbered(names),
        )
    )


def _path(relations: Sequence[str]) -> str:
    return ", ".join(relations) or "nothing yet"


def _numbered(options: Sequence[str]) -> str:
    return numbered(list(map(prompt_line, options)))


def _arrows(options: Sequence[str]) -> str:
    """Explain the arrows if there are some."""
    if not any(option.startswith(("-> ", "<- ")) for option in options):
        return ""
    return " `->` follows a relation forwards, `<-` backwards."


def _user(text: str) -> list[Message]:
    return [Message("user", text)]
