"""The perfect reader's replies to prompts of methods that retrieve."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.methods.retrieval import follow_up, reading_prompt, said_answers
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.retrieval.retrieval import RetrievedTriple
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.terms import LiteralTerm, Term
from tools.methods.perfect_chooser import PerfectChooser

NAMES: dict[Term, str] = {
    "m.06w2sn5": "Justin Bieber",
    "m.0gxnnwq": "Jaxon Bieber",
    "m.0gxnnwd": "Jazmyn Bieber",
    LiteralTerm("480"): "480",
}
SHOWN = [
    RetrievedTriple("m.06w2sn5", "people.person.friend", "m.0gxnnwq", 0.9, None),
    RetrievedTriple("m.0gxnnwq", "people.person.size", LiteralTerm("480"), 0.8, None),
]


@pytest.fixture(scope="module")
def chooser(small_store: Path) -> Iterator[PerfectChooser]:
    topics = (Entity(mid="m.06w2sn5"),)
    questions = [
        Question("1", "who?", topics, (("m.0gxnnwd",), ("m.0gxnnwq", "m.03_r3"))),
        Question("2", "how large  is it?", topics, (("480",),)),
        Question("3", "whose sister?", topics, (("m.0gxnnwd",),)),
    ]
    with open_graph(small_store) as graph:
        yield PerfectChooser(questions, graph)


@pytest.mark.parametrize("form", ["triples", "paths"])
@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("who?", ["Jaxon Bieber"]),  # of the second parse, and nothing that is not shown
        ("how large is it?", ["480"]),
        ("whose sister?", []),
        ("unheard of?", []),
    ],
)
def test_it_names_the_gold_answers_that_a_prompt_shows(
    chooser: PerfectChooser, form, question: str, said: list[str]
) -> None:
    prompt = reading_prompt(question, SHOWN, NAMES.__getitem__, form)
    for messages in (prompt, follow_up(prompt, form)):
        reply = chooser.reply("\n".join(message.content for message in messages))
        assert said_answers(reply) == said
