"""The perfect chooser's replies to walking methods, for prompts that the methods render."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choosing import numbered, written_prompt
from kbqa.engine.deciding.reading import read_choice, read_names, read_scores, read_verdict
from kbqa.engine.methods import bpc, knowpath, pog, tog
from kbqa.engine.methods import trace_search as trace
from kbqa.engine.methods.direct import direct_prompt
from kbqa.engine.questions.question_sets import Question
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity
from tools.methods.perfect_chooser import PerfectChooser, Prompt

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
        yield PerfectChooser([Question("1", ASKED, topics, golds, sparql=query)], graph)


def _reply(chooser: PerfectChooser, messages: Sequence[Message]) -> str:
    return chooser.reply("\n".join(message.content for message in messages))


def _asked(chooser: PerfectChooser, template: str, question: str = QUESTION, **fields: Any) -> str:
    """Fill in a template, with lists as methods write them, and return the reply."""
    lists = {"objectives": pog.listed, "memory": pog.listed, "triples": "\n".join}
    for name, value in fields.items():
        if not isinstance(value, str | int):
            fields[name] = lists.get(name, numbered)(value)
    return _reply(chooser, written_prompt(template, question=question, **fields))


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
    history = bpc.written_history(hops, 1, "neutral", True)
    fields = {"history": history, "entity": entity, "relations": offered, "width": 3}
    reply = _asked(chooser, bpc.RELATIONS, **fields)
    picked = read_choice(reply, offered, 3)
    assert picked.chosen == chosen
    assert picked.stops == (not chosen)


def test_of_entities_it_takes_those_that_lead_to_answers(chooser: PerfectChooser) -> None:
    options = ["m.0gxnnwp", "m.0gxnnwc"]
    fields = {"history": "(no hops)", "relation": RELATION, "entities": options, "width": 1}
    reply = _asked(chooser, bpc.ENTITIES, entity="Justin Bieber", **fields)
    assert read_choice(reply, options, 1).chosen == (1,)


def test_it_names_only_answers_whose_path_is_in_the_prompt(chooser: PerfectChooser) -> None:
    assert _asked(chooser, bpc.ANSWER, paths=WALKS) == "Jazmyn Bieber"
    assert _asked(chooser, bpc.ANSWER, paths=WALKS[:1]) == "none"
    elsewhere = ["Justin Bieber -> people.person.gender -> Jazmyn Bieber"]
    assert _asked(chooser, bpc.ANSWER, paths=elsewhere) == "none"
    assert [_asked(chooser, bpc.CHECK, paths=walks) for walks in (WALKS, WALKS[:1])] == [
        "YES",
        "NO",
    ]
    assert _asked(chooser, bpc.ANSWER, "another question?", paths=WALKS) == "none"


def test_it_scores_for_think_on_graph(chooser: PerfectChooser) -> None:
    offered = ["-> people.person.gender", f"-> {RELATION}"]
    for entity, options, chosen in (
        ("Justin Bieber", offered, (1,)),
        ("m.0gxnnwp", [f"-> {NEXT}"], ()),
    ):
        reply = _asked(chooser, tog.RELATIONS, entity=entity, relations=options, width=3)
        assert tog.read_relation_scores(reply, options, 3).chosen == chosen
    nodes = ["m.0gxnnwp", "m.0gxnnwc"]
    fields = {"entity": "Justin Bieber", "relation": offered[1], "entities": nodes}
    picked = tog.read_entity_scores(_asked(chooser, tog.ENTITIES, **fields), nodes)
    assert (picked.chosen, picked.scores) == ((1, 0), (1.0, 0.0))


def test_triples_suffice_only_if_they_lead_from_the_topic_to_an_answer(
    chooser: PerfectChooser,
) -> None:
    last = f"(m.0gxnnwc, {NEXT}, Jazmyn Bieber)"
    triples = [f"(Justin Bieber, {RELATION}, m.0gxnnwc)", last]
    assert _asked(chooser, tog.CHECK, triples=triples) == "Yes\nJazmyn Bieber"
    assert _asked(chooser, tog.ANSWER, triples=triples) == "Jazmyn Bieber"
    assert _asked(chooser, tog.CHECK, triples=[last]) == "No"


def test_a_triple_there_and_back_is_no_path_to_an_answer(small_store: Path) -> None:
    # As in "what else uses the currency of Jamaica?", where the topic itself is a gold answer.
    used = "location.country.currency_used"
    query = f"SELECT ?x {{ ns:m.03_r3 ns:{used} ?y . ?x ns:{used} ?y }}"
    topics = (Entity(mid="m.03_r3"),)
    with open_graph(small_store) as graph:
        asked = Question("1", QUESTION, topics, (("m.03_r3",),), sparql=query)
        chooser = PerfectChooser([asked], graph)
        triples = [f"(Jamaica, {used}, Jamaican dollar)"]
        assert _asked(chooser, tog.CHECK, triples=triples) == "No"


def test_if_one_parse_is_out_of_sight_it_goes_by_another(small_store: Path) -> None:
    query = f"SELECT ?x {{ ns:{BIEBER} ns:{RELATION} ?y . ?y ns:{NEXT} ?x }}"
    golds = (("m.0gxnnwd",), ("m.0gxnnwd", "m.0gxnnwq"))
    with open_graph(small_store) as graph:
        asked = Question("1", QUESTION, (Entity(mid=BIEBER),), golds, sparql=query)
        chooser = PerfectChooser([asked], graph)
        assert _asked(chooser, bpc.ANSWER, paths=WALKS) == "Jazmyn Bieber"
        assert _asked(chooser, bpc.ANSWER, paths=WALKS[:1]) == "Jaxon Bieber"


def test_it_explores_for_knowpath(chooser: PerfectChooser) -> None:
    reply = _reply(chooser, knowpath.paths_prompt(QUESTION, 15))
    memory = knowpath.read_thought(reply, QUESTION)
    assert (memory.hint, memory.names) == ((), ())
    topic, offered = "Justin Bieber", ["-> people.person.gender", f"-> {RELATION}"]
    for asked, chosen in ((topic, (1,)), ("Jamaica", ())):
        fields = {"topic": asked, "hint": "", "entities": topic, "relations": offered, "most": 7}
        reply = _asked(chooser, knowpath.RELATIONS, **fields)
        assert read_choice(reply, offered, 7).chosen == chosen
    nodes = ["m.0gxnnwp", "m.0gxnnwc"]
    fields = {"topic": topic, "hint": "", "relations": offered[1], "entities": nodes, "most": 7}
    assert read_choice(_asked(chooser, knowpath.ENTITIES, **fields), nodes, 7).chosen == (1,)
    leftwards = [f"Jazmyn Bieber <- {NEXT} <- m.0gxnnwc <- {RELATION} <- Justin Bieber"]
    for walks, names in (
        (WALKS, ("Jazmyn Bieber",)),
        (leftwards, ("Jazmyn Bieber",)),
        (WALKS[:1], ()),
    ):
        reply = _asked(chooser, knowpath.CHECK, paths="\n".join(walks))
        verdict = knowpath.read_judgement(reply, QUESTION, [])
        assert (verdict.names, verdict.unread) == (names, ())


def test_it_walks_for_plan_on_graph(chooser: PerfectChooser) -> None:
    assert pog.read_plan(_asked(chooser, pog.PLAN)) == (QUESTION,)
    offered = ["-> people.person.gender", f"-> {RELATION}"]
    for entity, chosen in (("Justin Bieber", (1,)), ("Jamaica", ())):
        fields = {"objectives": [QUESTION], "entity": entity, "relations": offered}
        picked = read_choice(_asked(chooser, pog.RELATIONS, **fields), offered, 2)
        assert (picked.chosen, picked.unread) == (chosen, ())
    nodes = ["m.0gxnnwp", "m.0gxnnwc"]
    for relation, chosen in ((offered[1], (1,)), (offered[0], ())):
        fields = {"objectives": [QUESTION], "relation": relation, "entities": nodes}
        reply = _asked(chooser, pog.ENTITIES, entity="Justin Bieber", **fields)
        picked = read_choice(reply, nodes, 2)
        assert (picked.chosen, picked.unread) == (chosen, ())


def test_it_answers_plan_on_graph_from_the_triples_alone(chooser: PerfectChooser) -> None:
    memory = ["Jazmyn Bieber is his sister."]
    triples = [
        f"(Justin Bieber, {RELATION}, m.0gxnnwc)",
        f"(m.0gxnnwc, {NEXT}, Jazmyn Bieber)",
    ]
    fields = {"objectives": numbered([QUESTION]), "memory": memory, "triples": pog.listed(triples)}
    reply = _asked(chooser, pog.REMEMBER, **fields)
    assert pog.read_memory(reply, [QUESTION], memory) == (tuple(memory), ())
    for shown, names in ((triples, ("Jazmyn Bieber",)), (triples[:1], ())):
        fields = {"memory": memory, "triples": pog.listed(shown)}
        verdict = read_verdict(_asked(chooser, pog.CHECK, **fields), [])
        assert (verdict.is_enough, verdict.names, verdict.unread) == (bool(names), names, ())
        assert read_names(_asked(chooser, pog.ANSWER, **fields), []) == (list(names), ())


def test_of_earlier_entities_it_takes_those_that_lead_on_to_answers(
    chooser: PerfectChooser,
) -> None:
    reply = _asked(chooser, pog.REFLECT, memory=[], entities=pog.listed(["Jaxon Bieber"]))
    assert pog.read_add(reply) == (False, ())
    met = ["Male", "m.0gxnnwp", "Jazmyn Bieber", "m.0gxnnwc", "Justin Bieber"]
    for question, chosen in ((QUESTION, (3, 4)), ("another question?", ())):
        reply = _asked(chooser, pog.EARLIER, question, memory=[], entities=met)
        picked = read_choice(reply, met, 5)
        assert (picked.chosen, picked.unread) == (chosen, ())


@pytest.mark.parametrize(
    ("start", "path", "offered", "right"),
    [
        ("Justin Bieber", [], ["-> people.person.gender", f"-> {RELATION}"], 1),
        ("Justin Bieber", [f"-> {RELATION}"], [f"-> {NEXT}", "-> people.person.gender"], 0),
        ("Justin Bieber", [f"-> {RELATION}", f"-> {NEXT}"], [f"-> {RELATION}"], None),
        ("Justin Bieber", ["-> people.person.gender"], [f"-> {RELATION}"], None),
        ("Jamaica", [], [f"-> {RELATION}"], None),
    ],
)
def test_it_follows_the_gold_path_in_trace(
    chooser: PerfectChooser, start: str, path: list[str], offered: list[str], right: int | None
) -> None:
    # The narrative is all that the proposal knows of the path.
    context = (
        _reply(chooser, trace.filled_prompt(trace.NARRATE, QUESTION, path=path))
        if path
        else trace.START
    )
    shown = (QUESTION, start, path, offered)
    proposal = trace.filled_prompt(trace.PROPOSE, *shown, context=context, most=3)
    proposed = _reply(chooser, proposal)
    picked = read_choice(proposed, offered, 3)
    assert (picked.chosen, picked.unread) == (() if right is None else (right,), ())
    ranking = trace.filled_prompt(trace.RANK, *shown, experience="None")
    ranked = read_scores(_reply(chooser, ranking), offered, 3)
    scores = dict(zip(ranked.chosen, ranked.scores, strict=True))
    assert scores == {at: float(at == right) for at in range(len(offered))}


def test_of_the_ends_in_trace_it_names_the_answers(chooser: PerfectChooser) -> None:
    ends, path = ["Jaxon Bieber", "Jazmyn Bieber"], [f"-> {RELATION}", f"-> {NEXT}"]
    for walked, names in ((path, ["Jazmyn Bieber"]), (path[:1], [])):
        prompt = trace.filled_prompt(trace.ANSWER, QUESTION, "Justin Bieber", walked, ends)
        reply = _reply(chooser, prompt)
        assert read_names(reply, ends) == (names, ())


def test_its_advice_in_trace_names_no_entities(chooser: PerfectChooser) -> None:
    path = [f"-> {RELATION}"]
    asked = trace.filled_prompt(trace.SUMMARISE, QUESTION, path=path, reason="it ended")
    summary = _reply(chooser, asked)
    summaries = f"- {summary}\n- Jazmyn Bieber"
    advice = _reply(chooser, trace.filled_prompt(trace.GENERALISE, QUESTION, summaries=summaries))
    assert "Bieber" not in summary + advice


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
