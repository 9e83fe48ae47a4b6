"""The perfect chooser's replies to walking methods, for prompts that the methods render."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.deciding.direct import direct_prompt
from kbqa.engine.deciding.reading import read_choice
from kbqa.engine.methods.bpc.prompts import (
    answer_prompt,
    check_prompt,
    entities_prompt,
    relations_prompt,
    written_history,
)
from kbqa.engine.methods.knowpath import prompts as knowpath
from kbqa.engine.methods.knowpath.replies import Verdict, read_thought, read_verdict
from kbqa.engine.methods.tog import prompts as tog
from kbqa.engine.questions.question_sets import Question
from kbqa.kb.open import open_graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Entity
from tools.methods.perfect.rendered import Prompt
from tools.methods.perfect_chooser import GoldKnowledge, PerfectChooser

BIEBER, RELATION = "m.06w2sn5", "people.person.sibling_s"
NEXT = "people.sibling_relationship.sibling"
ASKED = "who is the  sister of Justin Bieber?"
QUESTION = " ".join(ASKED.split())
WALKS = [
    f"Justin Bieber -> {RELATION} -> m.0gxnnwp -> {NEXT} -> Jaxon Bieber",
    f"Justin Bieber -> {RELATION} -> m.0gxnnwc -> {NEXT} -> Jazmyn Bieber",
]


@pytest.fixture(scope="module")
def chooser(small_store: Path) -> Iterator[PerfectChooser]:
    query = f"SELECT ?x {{ ns:{BIEBER} ns:{RELATION} ?y . ?y ns:{NEXT} ?x }}"
    topics, golds = (Entity(mid=BIEBER),), (("m.0gxnnwd",),)
    with open_graph(small_store) as graph:
        know = GoldKnowledge([Question("1", ASKED, topics, golds, sparql=query)], graph)
        yield PerfectChooser({}, GraphSchema(graph), know)


def _reply(chooser: PerfectChooser, messages: object) -> str:
    assert isinstance(messages, tuple)
    return chooser.reply("\n".join(message.content for message in messages))


@pytest.mark.parametrize(
    ("entity", "hops", "offered", "chosen"),
    [
        ("Justin Bieber", [], ["people.person.gender", RELATION], (1,)),
        ("m.0gxnnwp", [f"Justin Bieber -> {RELATION} -> m.0gxnnwp"], [NEXT], (0,)),
        ("Jazmyn Bieber", [f"m.0gxnnwc -> {NEXT} -> Jazmyn Bieber"], ["people.person.gender"], ()),
        ("Jamaica", [], [RELATION], ()),
        # The hop that led there is not the path's, so the walk is not on it.
        ("m.0gxnnwp", ["Justin Bieber -> people.person.gender -> m.0gxnnwp"], [NEXT], ()),
    ],
)
def test_it_follows_the_gold_path_in_bounded_path_context(
    chooser: PerfectChooser,
    entity: str,
    hops: list[str],
    offered: list[str],
    chosen: tuple[int, ...],
) -> None:
    history = written_history(hops, 1, "neutral", True)
    reply = _reply(chooser, relations_prompt(QUESTION, history, entity, offered, 3))
    picked = read_choice(reply, offered, 3)
    assert picked.chosen == chosen
    assert picked.stops == (not chosen)


def test_of_entities_it_takes_those_that_lead_to_answers(chooser: PerfectChooser) -> None:
    options = ["m.0gxnnwp", "m.0gxnnwc"]
    prompt = entities_prompt(QUESTION, "(no hops)", "Justin Bieber", RELATION, options, 1)
    assert read_choice(_reply(chooser, prompt), options, 1).chosen == (1,)


def test_it_names_only_answers_whose_path_is_in_the_prompt(chooser: PerfectChooser) -> None:
    assert _reply(chooser, answer_prompt(QUESTION, WALKS)) == "Jazmyn Bieber"
    assert _reply(chooser, answer_prompt(QUESTION, WALKS[:1])) == "none"
    elsewhere = ["Justin Bieber -> people.person.gender -> Jazmyn Bieber"]
    assert _reply(chooser, answer_prompt(QUESTION, elsewhere)) == "none"
    assert [_reply(chooser, check_prompt(QUESTION, walks)) for walks in (WALKS, WALKS[:1])] == [
        "YES",
        "NO",
    ]
    assert _reply(chooser, answer_prompt("another question?", WALKS)) == "none"


def test_it_scores_for_think_on_graph(chooser: PerfectChooser) -> None:
    offered = ["-> people.person.gender", f"-> {RELATION}"]
    relations = tog.relations_prompt(QUESTION, "Justin Bieber", offered, 3)
    assert tog.read_relation_scores(_reply(chooser, relations), offered, 3).chosen == (1,)
    useless = tog.relations_prompt(QUESTION, "m.0gxnnwp", [f"-> {NEXT}"], 3)
    assert tog.read_relation_scores(_reply(chooser, useless), [f"-> {NEXT}"], 3).chosen == ()
    nodes = ["m.0gxnnwp", "m.0gxnnwc"]
    entities = tog.entities_prompt(QUESTION, "Justin Bieber", offered[1], nodes)
    picked = tog.read_entity_scores(_reply(chooser, entities), nodes)
    assert (picked.chosen, picked.scores) == ((1, 0), (1.0, 0.0))


def test_triples_suffice_only_if_they_lead_from_the_topic_to_an_answer(
    chooser: PerfectChooser,
) -> None:
    last = f"(m.0gxnnwc, {NEXT}, Jazmyn Bieber)"
    triples = [f"(Justin Bieber, {RELATION}, m.0gxnnwc)", last]
    assert _reply(chooser, tog.check_prompt(QUESTION, triples)) == "Yes\nJazmyn Bieber"
    assert _reply(chooser, tog.answer_prompt(QUESTION, triples)) == "Jazmyn Bieber"
    assert _reply(chooser, tog.check_prompt(QUESTION, [last])) == "No"


def test_a_triple_there_and_back_is_no_path_to_an_answer(small_store: Path) -> None:
    # As in "what else uses the currency of Jamaica?", where the topic itself is a gold answer.
    used = "location.country.currency_used"
    query = f"SELECT ?x {{ ns:m.03_r3 ns:{used} ?y . ?x ns:{used} ?y }}"
    topics = (Entity(mid="m.03_r3"),)
    with open_graph(small_store) as graph:
        know = GoldKnowledge(
            [Question("1", QUESTION, topics, (("m.03_r3",),), sparql=query)], graph
        )
        chooser = PerfectChooser({}, GraphSchema(graph), know)
        prompt = tog.check_prompt(QUESTION, [f"(Jamaica, {used}, Jamaican dollar)"])
        assert _reply(chooser, prompt) == "No"


def test_it_explores_for_knowpath(chooser: PerfectChooser) -> None:
    memory = read_thought(_reply(chooser, knowpath.paths_prompt(QUESTION, 15)), QUESTION)
    assert (memory.hint, memory.names) == ((), ())
    topic, offered = "Justin Bieber", ["-> people.person.gender", f"-> {RELATION}"]
    for asked, chosen in ((topic, (1,)), ("Jamaica", ())):
        prompt = knowpath.relations_prompt(QUESTION, asked, [], [topic], offered, 7)
        assert read_choice(_reply(chooser, prompt), offered, 7).chosen == chosen
    nodes = ["m.0gxnnwp", "m.0gxnnwc"]
    prompt = knowpath.entities_prompt(QUESTION, topic, [], offered[1:], nodes, 7)
    assert read_choice(_reply(chooser, prompt), nodes, 7).chosen == (1,)
    leftwards = [f"Jazmyn Bieber <- {NEXT} <- m.0gxnnwc <- {RELATION} <- Justin Bieber"]
    for walks, names in ((WALKS, ("Jazmyn Bieber",)), (leftwards, ("Jazmyn Bieber",))):
        reply = _reply(chooser, knowpath.check_prompt(QUESTION, walks))
        assert read_verdict(reply, QUESTION, []) == Verdict(names)
    assert not read_verdict(
        _reply(chooser, knowpath.check_prompt(QUESTION, WALKS[:1])), "", []
    ).names


@pytest.mark.parametrize("reason", [True, False])
def test_it_knows_nothing_by_heart(chooser: PerfectChooser, reason: bool) -> None:
    reply = _reply(chooser, direct_prompt(QUESTION, reason=reason))
    assert reply.splitlines() == ["Answer:", "unknown"]


def test_a_prompt_of_no_known_method_is_reported(
    chooser: PerfectChooser, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chooser.reply("Write a poem.") == "none"
    assert "No method is known that asks: Write a poem." in capsys.readouterr().err


def test_prompts_are_read_by_their_last_lines() -> None:
    prompt = Prompt(
        "Question: an example\n\nQuestion: who?\nAt most 3\nRelations:\n1. a.b\n2. c.d\n"
    )
    assert prompt.question == "who?"
    assert prompt.lines("Relations") == ["a.b", "c.d"]
