"""What the chooser that is blind to history decides, from rendered prompts."""

import pytest

from kbqa.engine.deciding.choosing import numbered, written_prompt
from kbqa.engine.methods.bpc import ANSWER, RELATIONS
from tools.methods.histories import BlindChooser


@pytest.fixture(scope="module")
def chooser() -> BlindChooser:
    embedding = pytest.importorskip("kbqa.engine.embedding.embedder")
    pytest.importorskip("sentence_transformers", reason="needs the lm extra")
    return BlindChooser(embedding.Embedder.load())


def test_relations_are_chosen_whatever_the_history_is(chooser: BlindChooser) -> None:
    offered = ["people.person.gender", "location.country.capital", "location.capital_of.country"]
    question = "what is the capital of Kenya?"
    fields = {"question": question, "entity": "x", "relations": numbered(offered), "width": 3}
    replies = {
        chooser.reply(prompt.content)
        for history in ("(no hops are shown)", "Kenya -> people.person.gender -> Nairobi")
        for prompt in written_prompt(RELATIONS, history=history, **fields)
    }
    [reply] = replies
    assert set(reply.splitlines()) == set(offered[1:])


def test_the_end_of_the_first_path_is_the_answer(chooser: BlindChooser) -> None:
    paths = numbered(["Kenya -> a.b -> Nairobi", "Kenya -> c.d -> Mombasa"])
    [prompt] = written_prompt(ANSWER, question="what?", paths=paths)
    assert chooser.reply(prompt.content) == "Nairobi"
