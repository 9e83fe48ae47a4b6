"""A question that the small model gets wrong is repaired, and its answer reports it."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from kbqa.engine.answer import Answer, answer_lines
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.engine import Engine
from kbqa.engine.methods import Resources
from kbqa.engine.methods.kbqa import Kbqa, KbqaSettings
from kbqa.engine.running.evidence import PathTrace
from kbqa.engine.running.judge import Judge
from kbqa.engine.running.repair import GuidedRepairer, Repair, Repairer
from kbqa.engine.running.tried import ConfidenceModel, Tried
from kbqa.engine.writing.generate import Generator, SavedBeams
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema, LiteralForms
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import EndpointError, ModelError
from kbqa.sparql.terms import LiteralTerm

QUESTION = "what jamaican money called?"
MONEY = "Main Path:\n Jamaica -[location , country , currency used]-> ?x"
SIBLINGS = """Main Path:
 Justin Bieber -[people , person , sibling s]-> ?y
 ?y -[people , sibling relationship , sibling]-> ?x"""
SIBLINGS_STEPS = " -> people.person.sibling_s -> people.sibling_relationship.sibling"
BROTHER = f"{SIBLINGS}\nEntity Restrictions:\n ?x -[people , person , gender]-> Male"
AREA = "Main Path:\n Kingston -[location , location , area]-> ?x"
POPULATION = "Main Path:\n Jamaica -[location , statistical region , population]-> ?x"
LARGEST = """Main Path:
 Kenya -[location , location , contains]-> ?x
Entity Restrictions:
 ?x -[common , topic , notable types]-> City/Town/Village
Numeric Restrictions:
 ?x -[location , statistical region , population]-> ?p
 ?p -[measurement unit , dated integer , number]-> ?n
 ORDER BY DESC(?n)
 LIMIT 1"""
EURO = """Main Path:
 Germany -[location , location , adjoin s]-> ?y
 ?y -[location , adjoining relationship , adjoins]-> ?x
Entity Restrictions:
 ?x -[location , country , currency used]-> Euro"""


@pytest.fixture
def ask(scripted):
    """Ask a question whose candidates are these texts, and no others."""

    def ask(graph, *texts, question=QUESTION, topics=(), settings=None, **options) -> Answer:
        model = scripted([(text, -float(rank)) for rank, text in enumerate(texts)])
        settings = {"judge": "confidence", **(settings or {})}
        with closing(Engine(graph, model, settings=settings, **options)) as engine:
            return engine.ask(question, topics)

    return ask


def tried(answer: Answer) -> Sequence[Tried]:
    assert isinstance(answer.trace, PathTrace)
    return answer.trace.tried


def _names(answer: Answer) -> list[str]:
    return [item.name for item in answer.answers]


def test_an_answer_comes_with_its_proof(graph, ask):
    answer = ask(graph, MONEY)
    assert [(item.term, item.name) for item in answer.answers] == [("m.04xc2m", "Jamaican dollar")]
    [triple] = answer.evidence
    assert (triple.subject_name, triple.relation, triple.object_name) == (
        "Jamaica",
        "location.country.currency_used",
        "Jamaican dollar",
    )
    record = answer.trace.to_dict()
    assert (record["beam"], record["level"]) == (0, "full")
    assert "location.country.currency_used" in (answer.sparql or "")
    assert (answer.problem, answer.reason, answer.truncated) == (None, None, False)
    assert set(answer.seconds) == {"write", "link", "ground", "reach", "execute", "prove"}


def test_an_answer_as_a_record_is_json(graph, ask):
    record = json.loads(json.dumps(ask(graph, "nonsense", BROTHER).to_dict()))
    brother = {"mid": "m.0gxnnwq", "name": "Jaxon Bieber", "origin": "graph"}
    assert record["answers"] == [{**brother, "confidence": record["confidence"]}]
    trace = record["trace"]
    assert trace["topic"] == {"mid": "m.06w2sn5", "name": "Justin Bieber"}
    assert (trace["beam"], trace["level"], trace["dropped"]) == (1, "full", [])
    assert trace["crp_words"][0].startswith("From Justin Bieber, follow")
    assert trace["crp"] == (
        "Justin Bieber (m.06w2sn5) -> people.person.sibling_s -> "
        "people.sibling_relationship.sibling\n?x -> people.person.gender = Male (m.05zppz)"
    )
    assert [beam["fate"] for beam in trace["beams"]] == ["unreadable", "reachable"]
    assert [beam["crp"] is None for beam in trace["beams"]] == [True, False]
    assert [beam["routerkgqa"] for beam in trace["beams"]] == ["nonsense", BROTHER]
    assert {"subject", "subject_name", "relation", "object", "object_name", "part"} == set(
        record["evidence"][0]
    )
    assert [triple["part"] for triple in record["evidence"]] == [0, 0, 1]


def test_each_candidate_shows_its_first_answers(graph, ask):
    both = "Main Path:\n Male -[R [people , person , gender]]-> ?x"
    counted = f"Justin Bieber{SIBLINGS_STEPS}\ncount"
    yes = f"{CAPITAL}\n?x = Kingston\nask"
    question = "is Kingston the capital of Jamaica?"  # of any other, it would not be the answer
    answer = ask(graph, MONEY, both, counted, yes, "nonsense", question=question)
    beams = answer.to_dict()["trace"]["beams"]
    assert [beam["answer_count"] for beam in beams] == [1, 2, 2, None, None]
    assert [sorted(beam["first_answers"]) for beam in beams] == [
        ["Jamaican dollar"],
        ["Jaxon Bieber", "Justin Bieber"],
        ["Jaxon Bieber", "Jazmyn Bieber"],
        [],
        [],
    ]
    assert beams[1]["crp_words"] == [
        "From Male, follow people.person.gender backwards to the answers."
    ]
    assert beams[4]["crp_words"] == []
    assert [beam.get("count") for beam in beams] == [None, None, 2, None, None]
    assert [beam.get("boolean") for beam in beams] == [None, None, None, True, None]


def test_the_names_of_all_candidates_are_one_look_up(small_store, ask, monkeypatch):
    with open_graph(small_store) as graph:
        asked: list[set[str]] = []
        labels = graph.labels
        monkeypatch.setattr(
            graph, "labels", lambda mids: labels(asked.append(set(mids)) or asked[-1])
        )
        answer = ask(graph, MONEY, AREA, f"Justin Bieber{SIBLINGS_STEPS}", "nonsense")
    beams = answer.to_dict()["trace"]["beams"]
    assert sorted(beams[2]["first_answers"]) == ["Jaxon Bieber", "Jazmyn Bieber"]
    assert {"m.04xc2m", "m.0gxnnwq", "m.0gxnnwd"} in asked


def test_no_answer_as_a_record_is_json_with_the_same_keys(graph, ask):
    answered = ask(graph, MONEY).to_dict()
    unanswered = json.loads(json.dumps(ask(graph, "nonsense").to_dict()))
    assert list(unanswered) == list(answered)
    assert unanswered["answers"] == []
    assert unanswered["sparql"] is None


def test_a_literal_is_an_answer(graph, ask):
    answer = ask(graph, AREA)
    [item] = answer.answers
    assert (item.term, item.name) == (LiteralTerm("480"), "480")
    assert item.confidence == pytest.approx(answer.confidence)
    record = {"value": "480", "name": "480", "origin": "graph"}
    assert replace(item, confidence=None).to_dict() == record


def test_a_mediator_is_an_answer_by_its_mid(graph, ask):
    answer = ask(graph, POPULATION)
    assert sorted(item.name for item in answer.answers) == ["m.0pop1", "m.0pop2"]
    assert {triple.object_name for triple in answer.evidence} == {"m.0pop1", "m.0pop2"}


def test_an_id_that_was_mended_is_an_answer(graph, ask):
    answer = ask(graph, "Main Path:\n Oddville -[common , topic , image]-> ?x")
    assert _names(answer) == ["en.not%7Can%5Eiri"]
    assert [triple.object_name for triple in answer.evidence] == _names(answer)


@pytest.mark.parametrize(
    ("texts", "reason", "problem"),
    [
        ((), "none-written", "no path was written, and none was found in the graph"),
        (("nonsense",), "unreadable", "the model wrote nothing that can be read as a path"),
        (("nonsense", MONEY.replace("Jamaica", "Zorblax")), "unlinked", "no entity was found"),
        (
            (SIBLINGS.replace("sibling]", "anthem]"), "nonsense"),
            "unreachable",
            "none of the model's paths exists",
        ),
        (
            (AREA.replace("area", "containedby") + "\n ?x -[people , person , gender]-> ?z",),
            "unreachable",
            "none of the model's paths exists",
        ),
    ],
    ids=["no candidate", "unreadable", "unlinked", "unreachable", "second hop unreachable"],
)
def test_without_an_answer_a_sentence_says_why(graph, ask, texts, reason, problem):
    # What the question mentions would stand in for a topic that is unknown.
    answer = ask(graph, *texts, question="why?")
    assert (answer.answers, answer.sparql, answer.evidence) == ((), None, ())
    assert answer.problem is not None
    assert problem in answer.problem
    assert answer.reason == answer.to_dict()["reason"] == reason


def test_a_greeting_is_called_no_question(graph, ask):
    answer = ask(graph, "nonsense", question="hello")
    assert answer.problem == "this does not look like a question"
    assert answer.reason == "no-question"


def test_a_word_that_the_path_passes_over_is_named_and_costs_confidence(graph, ask):
    plain, negated = (
        ask(graph, MONEY, question=f"what money does Jamaica {each}use?") for each in ("", "not ")
    )
    assert _names(plain) == _names(negated)
    assert (plain.not_understood, negated.not_understood) == ((), ("not",))
    assert plain.confidence is not None
    assert negated.confidence == pytest.approx(plain.confidence / 2)
    assert "not_understood" not in plain.to_dict()
    assert negated.to_dict()["not_understood"] == ["not"]


def test_of_two_paths_the_one_that_accounts_for_the_words_answers(graph, ask):
    counted = f"{MONEY}\nFurther Restrictions:\n count"
    answer = ask(graph, MONEY, counted, question="how many currencies does Jamaica use?")
    assert (answer.count, answer.not_understood) == (1, ())


def test_paths_in_our_own_form_are_answered(graph, ask):
    answer = ask(graph, "Jamaica -> location.country.currency_used\n?x -> a.b or none")
    assert _names(answer) == ["Jamaican dollar"]
    assert answer.trace.to_dict()["routerkgqa"] is None


def test_paths_are_told_where_they_break_when_none_answers(graph, ask):
    broken = SIBLINGS.replace("sibling]", "anthem]")
    beams = tried(ask(graph, broken, "nonsense", MONEY.replace("currency used", "anthem")))
    assert [beam.problem for beam in beams[::2]] == [
        "breaks at hop 2: people.sibling_relationship.anthem leads nowhere from there",
        "breaks at hop 1: location.country.anthem leads nowhere from Jamaica",
    ]
    assert tried(ask(graph, broken, MONEY))[0].problem is None


def test_a_question_without_a_known_name_is_told_so(graph, ask):
    answer = ask(graph, MONEY.replace("Jamaica", "Zorblax"), question="who is zorblax?")
    assert "the graph has no entity of any name in the question" in (answer.problem or "")
    assert answer.reason == "unlinked"


def test_a_graph_that_is_too_slow_is_told_so(graph, ask):
    endless = "Main Path:\n" + "\n".join(
        f" {'Justin Bieber' if n == 0 else f'?n{n}'} "
        f"-[{'R [' if n % 2 else ''}people , person , gender{']' if n % 2 else ''}]-> "
        f"{'?x' if n == 61 else f'?n{n + 1}'}"
        for n in range(62)
    )
    sister = "Entity Restrictions:\n ?x -[people , person , sibling s]-> Jamaica"
    answer = ask(graph, f"{endless}\n{sister}", question="who?", timeout_s=1)
    assert tried(answer)[0].fate == "failed"
    assert "did not answer in time" in (answer.problem or "")
    assert answer.reason == "graph"


def test_paths_start_from_what_the_question_is_likely_about(demo, scripted):
    model = scripted([])
    with closing(Engine(demo, model)) as engine:
        linked = engine.ask("what currency is used in Kenya?").linked
    likely = [each.mid for each in linked if each.score >= linked[0].score / 1000]
    [request] = model.requests
    assert [topic.mid for topic in request.topics] == likely
    assert 0 < len(likely) < len(linked)


@pytest.mark.parametrize("count", [0, 4])
def test_a_writer_that_was_trained_with_suggestions_gets_them(demo, scripted, count):
    model = scripted([("x", -1.0)])
    model.suggested_relations = count
    with closing(Engine(demo, model, settings={"judge": "confidence"})) as engine:
        engine.ask("what is the capital of Jamaica?")
        assert engine.method.settings().get("suggested_relations", 0) == count
    [request] = model.requests
    assert len(request.relations) == count
    assert request.relations[:1] == ("location.country.capital",)[:count]


def test_a_graph_that_is_too_slow_for_suggestions_ends_nothing(
    graph, scripted, monkeypatch, caplog
):
    def fail(*_: object) -> None:
        raise EndpointError("too slow")

    model = scripted([(MONEY, -1.0)])
    model.suggested_relations = 4
    monkeypatch.setattr(type(graph), "edges", fail)
    with closing(Engine(graph, model, settings={"judge": "confidence"})) as engine:
        assert _names(engine.ask(QUESTION)) == ["Jamaican dollar"]
    assert [request.relations for request in model.requests] == [()]
    assert "no relations are suggested: too slow" in caplog.text


def test_given_topics_take_the_place_of_named_ones(graph, ask):
    answer = ask(graph, MONEY.replace("Jamaica", "Atlantis"), topics=[Entity(mid="m.03_r3")])
    assert _names(answer) == ["Jamaican dollar"]
    assert answer.trace.to_dict()["topic"] == {"mid": "m.03_r3", "name": "Jamaica"}


def test_each_of_several_given_topics_is_tried(graph, ask):
    topics = [Entity(mid="m.06w2sn5"), Entity(mid="m.0nobody"), Entity(mid="m.03_r3")]
    assert _names(ask(graph, MONEY.replace("Jamaica", "Atlantis"), topics=topics)) == [
        "Jamaican dollar"
    ]


def test_a_given_topic_that_the_graph_does_not_know_is_not_replaced(graph, ask):
    answer = ask(graph, MONEY, topics=[Entity(mid="m.0nobody")])
    assert (answer.answers, tried(answer)[0].fate) == ((), "unreachable")


def test_more_answers_than_are_fetched_are_told(graph, ask, monkeypatch):
    monkeypatch.setattr("kbqa.engine.running.path_runner.MAX_ANSWERS", 1)
    answer = ask(graph, SIBLINGS)
    assert (len(answer.answers), answer.truncated) == (1, True)


CAPITAL = "Jamaica -> location.country.capital"


def test_yes_and_no_are_answers_with_evidence(graph, ask):
    for name, is_right in (("Kingston", True), ("Jamaica", False)):
        question = f"is {name} the capital of Jamaica?"
        answer = ask(graph, f"{CAPITAL}\n?x = {name}\nask", question=question)
        assert (answer.boolean, answer.answers, answer.is_answered) == (is_right, (), True)
        [triple] = answer.evidence
        assert (triple.subject_name, triple.object_name) == ("Jamaica", "Kingston")
        assert (answer.sparql or "").startswith("ASK")
        assert answer.to_dict()["boolean"] is is_right
        assert answer.confidence


def test_a_count_is_an_answer_with_what_was_counted(graph, ask):
    answer = ask(graph, f"Justin Bieber{SIBLINGS_STEPS}\ncount")
    assert answer.count == answer.to_dict()["count"] == 2
    assert sorted(_names(answer)) == ["Jaxon Bieber", "Jazmyn Bieber"]
    assert len(answer.evidence) == 4


def test_zero_is_an_answer_without_evidence(graph, ask):
    answer = ask(graph, f"Justin Bieber{SIBLINGS_STEPS}\n?x = Kingston\ncount")
    assert (answer.count, answer.answers, answer.evidence) == (0, (), ())
    assert (answer.is_answered, answer.problem) == (True, None)


def test_what_cannot_be_compared_is_told(graph, ask):
    both = "Male <- people.person.gender\n?x {= Justin Bieber | = Jaxon Bieber}"
    answer = ask(graph, f"{both}\nsmallest ?x -> people.person.date_of_birth")
    assert not answer.is_answered
    assert answer.reason == "empty"
    assert answer.problem == (
        "the path exists, but nothing on it leads to an answer: "
        "the graph has no people.person.date_of_birth of Jaxon Bieber to compare"
    )


def test_a_repaired_path_does_not_say_no(graph, ask):
    for name, is_known in (("Kingston", True), ("Justin Bieber", False)):
        answer = ask(
            graph,
            f"Jamaica -> location.country.main_city\n?x = {name}\nask",
            question=f"is {name} the capital city of Jamaica?",
            settings={"repair": "embedder"},
        )
        trace = answer.trace
        assert isinstance(trace, PathTrace)
        assert trace.repair is not None
        assert (answer.boolean, answer.stage) == ((True, "general") if is_known else (None, None))


def test_candidates_written_before_are_answered_without_the_model(graph, scripted):
    model = scripted([(MONEY, -1.0)])
    with closing(Engine(graph, model)) as engine:
        [asked] = engine.write([engine.prepare(QUESTION)])
        answer = engine.answer(asked)
    assert _names(answer) == ["Jamaican dollar"]
    assert model.questions == [QUESTION]


def test_the_engine_asks_for_n_candidates(graph, ask):
    assert len(tried(ask(graph, "nonsense", "nonsense", MONEY, n=2))) == 2


def test_a_model_that_fails_raises(graph, scripted):
    engine = Engine(graph, scripted(ModelError("out of memory")))
    with closing(engine), pytest.raises(ModelError, match="out of memory"):
        engine.ask(QUESTION)


def test_a_graph_that_is_gone_raises(scripted):
    engine = Engine(open_graph(endpoint="http://127.0.0.1:9"), scripted([]))
    with closing(engine), pytest.raises(EndpointError, match=r"127\.0\.0\.1:9"):
        engine.ask(QUESTION)


def test_a_graph_outlives_its_engine(graph, ask):
    ask(graph, MONEY)
    assert graph.labels(["m.03_r3"]) == {"m.03_r3": "Jamaica"}


@pytest.mark.parametrize(
    ("question", "text", "names"),
    [
        ("what is the largest city in Kenya?", LARGEST, {"Nairobi"}),
        (
            "which countries that border Germany use the euro?",
            EURO,
            {"Austria", "Belgium", "France", "Luxembourg", "Netherlands"},
        ),
    ],
    ids=["superlative", "entity constraint"],
)
def test_the_demo_graph_answers(demo, ask, question, text, names):
    answer = ask(demo, text, question=question)
    assert {name.removeprefix("The ") for name in _names(answer)} == names
    assert answer.trace.to_dict()["level"] == "full"
    assert answer.evidence


ROUTED = "which currency is used in Kenya?"
BROKEN = "Kenya -> finance.country.money"
RIGHT = "Kenya -> location.country.currency_used"
WRONG = "Kenya -> location.country.capital"
UNSURE, SURE = ConfidenceModel(-5.0, {}), ConfidenceModel(5.0, {})

Ask = Callable[..., Answer]


Repairing = Callable[[ChatModel | None], Repairer]


@pytest.fixture(scope="module")
def repairing(demo: Graph, embedder: Embedder) -> Repairing:
    """Make what repairs, by a general model if there is one."""
    return lambda chat: GuidedRepairer(
        demo, embedder, "embedder" if chat is None else "llm", model=chat
    )


@pytest.fixture
def ask_and_repair(demo: Graph, repairing: Repairing, scripted) -> Ask:
    """Ask the question with these paths written for it."""

    def asked(
        *written: str,
        chat: ChatModel | None = None,
        confidence: ConfidenceModel = SURE,
        call_budget: int | None = None,
    ) -> Answer:
        generator = scripted([(text, -1.0) for text in written])
        with make_engine(demo, generator, repairing(chat), chat, confidence, call_budget) as engine:
            return engine.ask(ROUTED)

    return asked


def make_engine(
    graph: Graph,
    generator: Generator,
    repairer: Repairer,
    chat: ChatModel | None = None,
    confidence: ConfidenceModel = SURE,
    call_budget: int | None = None,
) -> Engine:
    resources = Resources(graph, open_chat=lambda: chat, call_budget=call_budget, unsure_below=0.5)
    settings = KbqaSettings(judge="confidence")
    judge = Judge(GraphSchema(graph), replace(confidence, spread=(1.0,)))
    return Engine.over(resources, Kbqa(resources, settings, generator, judge, None, repairer))


def trace(answer: Answer) -> PathTrace:
    assert isinstance(answer.trace, PathTrace)
    return answer.trace


def repair(answer: Answer) -> Repair:
    found = trace(answer).repair
    assert found is not None
    return found


def names(answer: Answer) -> list[str]:
    return [each.name for each in answer.answers]


def test_a_path_that_exists_is_not_repaired(ask_and_repair: Ask, scripted_chat) -> None:
    answer = ask_and_repair(BROKEN, WRONG, chat=scripted_chat())
    assert (names(answer), answer.stage, trace(answer).repair) == (["Nairobi"], "specialised", None)
    assert answer.usage.calls == 0


def test_where_no_path_exists_another_is_found(ask_and_repair: Ask) -> None:
    answer = ask_and_repair(BROKEN)
    assert (names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    assert repair(answer).reason == "no path that was written exists"
    assert trace(answer).best == 1
    assert [tried.fate for tried in trace(answer).tried] == ["unreachable", "reachable"]
    assert answer.evidence
    told = (
        "Found by searching the graph, because no path that was written exists. Relaxation: full."
    )
    assert told in [line.text for line in answer_lines(answer, LiteralForms())]


@pytest.mark.parametrize(
    ("call_budget", "replies", "found"),
    [(1, [], []), (2, ["1"], ["Kenyan Shilling"]), (3, ["1. currency", "1"], ["Kenyan Shilling"])],
)
def test_the_writing_and_the_repair_share_the_calls(
    ask_and_repair: Ask, scripted_chat, call_budget: int, replies: list[str], found: list[str]
) -> None:
    chat = scripted_chat(*replies)
    answer = ask_and_repair(BROKEN, chat=chat, call_budget=call_budget)
    assert names(answer) == found
    assert chat.replies == []
    assert answer.trace.to_dict()["calls"] == call_budget
    told = "The call budget was spent before the search was over."
    assert (told in answer.trace.describe()) == repair(answer).is_cut_short == (call_budget < 3)


def test_a_path_that_exists_is_found_by_the_only_call(ask_and_repair: Ask, scripted_chat) -> None:
    answer = ask_and_repair(WRONG, chat=scripted_chat(), call_budget=1)
    assert (names(answer), answer.trace.to_dict()["calls"]) == (["Nairobi"], 1)
    assert "calls" not in ask_and_repair(WRONG, chat=scripted_chat()).trace.to_dict()


def test_what_the_new_path_could_not_carry_is_told(ask_and_repair: Ask) -> None:
    answer = ask_and_repair(f"{BROKEN}\n?x -> film.film.genre = Comedy")
    assert names(answer) == ["Kenyan Shilling"]
    *_, lost, constraint = answer.trace.describe()
    assert lost.startswith("Lost, because no node")
    assert "film.film.genre Comedy" in constraint


def test_constraints_of_the_broken_path_still_hold(ask_and_repair: Ask) -> None:
    answer = ask_and_repair(f"{BROKEN}\n?x -> type.object.name != [Kenyan shilling]")
    assert answer.stage == "general"
    answering = trace(answer).answering
    assert answering is not None
    assert answering.crp is not None
    assert answering.crp.constraints


def test_what_a_general_model_takes_is_counted(ask_and_repair: Ask, scripted_chat) -> None:
    chat = scripted_chat("1. currency of the country", "1")
    answer = ask_and_repair(BROKEN, chat=chat)
    assert names(answer) == ["Kenyan Shilling"]
    assert answer.usage.calls == 2
    record = answer.to_dict()
    assert record["usage"]["general"]["calls"] == 2
    repaired = record["trace"]["repair"]
    assert repaired["blueprint"] == ["currency of the country"]
    assert repaired["candidates"][repaired["chosen"]]["path"] == (
        "Kenya -> location.country.currency_used -> ?"
    )


def test_unsure_answers_are_repaired_by_confidence(ask_and_repair: Ask, scripted_chat) -> None:
    chat = scripted_chat("1. currency of the country", "1")
    surer = ConfidenceModel(-5.0, {"searched": 4.0})
    answer = ask_and_repair(WRONG, chat=chat, confidence=surer)
    assert (names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    assert answer.confidence == pytest.approx(0.27, abs=0.01)
    assert repair(answer).reason == "a confidence of 0.01 is below 0.50"
    assert "location.country.capital" in chat.prompts[1]  # It may be right after all.


def test_what_is_repaired_is_taken_only_if_it_is_surer(ask_and_repair: Ask, scripted_chat) -> None:
    chat = scripted_chat("1. currency of the country", "1")
    answer = ask_and_repair(WRONG, chat=chat, confidence=ConfidenceModel(-5.0, {"searched": -1.0}))
    assert (names(answer), answer.stage, answer.usage.calls) == (["Nairobi"], "specialised", 2)
    assert [each.candidate.source for each in trace(answer).tried] == ["writer", "repair"]


def test_the_path_that_answers_gives_its_own_constraints_and_depth(ask_and_repair: Ask) -> None:
    broken = f"{BROKEN} -> a.b\n?x -> film.film.genre = Comedy"
    answer = ask_and_repair(broken, WRONG, confidence=UNSURE)
    assert (repair(answer).depth, repair(answer).lost) == (1, ())


def test_sure_answers_are_not(ask_and_repair: Ask, scripted_chat) -> None:
    answer = ask_and_repair(WRONG, chat=scripted_chat(), confidence=SURE)
    assert (names(answer), answer.stage) == (["Nairobi"], "specialised")


def test_without_written_paths_every_question_is_repaired(ask_and_repair: Ask) -> None:
    answer = ask_and_repair()
    assert (names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    assert repair(answer).reason == "no path was written"


def test_a_question_about_nothing_known_cannot_be_repaired(
    demo: Graph, repairing: Repairing, scripted
) -> None:
    generator = scripted([("Zzyzx -> a.b", -1.0)])
    with make_engine(demo, generator, repairing(None)) as engine:
        answer = engine.ask("zzyzx qwrtp?")
    assert (answer.answers, answer.stage, trace(answer).repair) == ((), None, None)
    assert answer.problem is not None


def test_a_general_model_that_fails_fails_the_question(ask_and_repair: Ask, scripted_chat) -> None:
    with pytest.raises(ModelError, match="is down"):
        ask_and_repair(BROKEN, chat=scripted_chat(ModelError("the server is down")))


def test_what_a_question_took_is_known_though_it_fails(
    demo: Graph, repairing: Repairing, scripted_chat
) -> None:
    chat = scripted_chat("1. currency of the country", ModelError("the server is down"))
    with make_engine(demo, SavedBeams("beams"), repairing(chat), chat) as engine:
        asked = replace(engine.prepare(ROUTED), candidates=())
        with pytest.raises(ModelError, match="is down"):
            engine.answer(asked)
    assert asked.usage.calls == 1


def test_saved_beams_and_repair_go_together(demo: Graph, repairing: Repairing) -> None:
    with make_engine(demo, SavedBeams("beams.jsonl"), repairing(None)) as engine:
        asked = replace(engine.prepare(ROUTED), candidates=())
        assert engine.answer(asked).stage == "general"
