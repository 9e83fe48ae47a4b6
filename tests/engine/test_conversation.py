"""Follow-ups and several questions in one, over the demo graph and without a model."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.conversation import Completed, answering_path, split
from kbqa.engine.engine import Conversation, Engine
from kbqa.kb.graph import Graph

CAPITAL = ("what is the capital of Kenya?", "Kenya -> location.country.capital")
NEIGHBOURS = (
    "which countries border Peru?",
    "Peru -> location.location.adjoin_s -> location.adjoining_relationship.adjoins",
)
IS_CAPITAL = (
    "is Zurich the capital of Switzerland?",
    "Switzerland -> location.country.capital\n?x = Zurich\nask",
)
LARGEST = "which of the countries border Peru is the largest?"
LARGER = (
    "which is larger, Kenya or Peru?",
    "Kenya -> location.location.area",
)
CURRENCY = ("what currency does Peru use?", "Peru -> location.country.currency_used")
POPULATION = (
    "how many people live in {}?",
    "{} -> location.statistical_region.population -> measurement_unit.dated_integer.number",
)
DISCOVERED = ("when was radium discovered?", "Radium -> chemistry.chemical_element.discovery_date")


@pytest.mark.parametrize(
    ("text", "questions"),
    [
        (
            "What is the capital of Peru and what currency do they use there?",
            ["What is the capital of Peru?", "what currency do they use there?"],
        ),
        (
            "who was Marie Curie, and where was she born?",
            ["who was Marie Curie?", "where was she born?"],
        ),
        (
            "What is the capital of Kenya? And of Peru?",
            ["What is the capital of Kenya?", "And of Peru?"],
        ),
        (
            "the symbol and the atomic number of tungsten",
            ["the symbol of tungsten", "the atomic number of tungsten"],
        ),
        (
            "what is the currency and the capital of Peru?",
            ["what is the currency of Peru?", "what is the capital of Peru?"],
        ),
        (
            "what is the capital of Chile and its population?",
            ["what is the capital of Chile?", "its population?"],
        ),
        ("and its capital and currency?", ["and its capital?", "and its currency?"]),
        (
            "what is the melting point of tungsten, and its symbol?",
            ["what is the melting point of tungsten?", "its symbol?"],
        ),
    ],
)
def test_several_questions_in_one_are_told_apart(text: str, questions: list[str]) -> None:
    assert split(text) == questions


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of Kenya? Thanks!",
        "What is the capital of Kenya? I need it for a quiz.",
        "Hello! What is the capital of Kenya?",
        "does France border Spain and Italy?",
        "which countries border both Italy and Austria?",
        "which country is larger, Brazil or Peru?",
        "which city lies in Kenya and has more than a million people?",
        "who wrote Pride and Prejudice?",
        "and its population?",
        "which countries border Laos and its neighbours?",
        pytest.param("is it? " * 100 + "is it?", id="too many to be meant"),
        pytest.param("who is it? " * 10_000 + "who?", id="more than the stack is deep"),
        "",
    ],
)
def test_one_question_stays_one(text: str) -> None:
    assert split(text) == [text]


@pytest.fixture(scope="module")
def engine(demo: Graph) -> Iterator[Engine]:
    with Engine(demo) as engine:
        yield engine


def turn(engine: Engine, question: str, path: str) -> Answer:
    """Answer a question by its path."""
    answer = engine.run_path(path, question)
    assert answer.is_answered
    return replace(answer, question=question)


def after(engine: Engine, question: str, *turns: tuple[str, str]) -> Completed:
    return engine.complete(question, [turn(engine, *each) for each in turns])


def population(place: str) -> tuple[str, str]:
    question, path = POPULATION
    return question.format(place), path.format(place)


def names(completed: Completed) -> list[str | None]:
    return [each.name for each in completed.topics]


@pytest.mark.parametrize(
    "question",
    [
        "what is the capital of Peru?",
        "How many people live in Nairobi?",
        "which countries border Brazil?",
        "does France border Spain?",
        "is there a desert in Chile?",
    ],
)
def test_a_question_with_a_name_of_its_own_is_left_alone(engine: Engine, question: str) -> None:
    assert after(engine, question, CAPITAL) == Completed(question)


def test_the_first_question_is_left_alone(engine: Engine) -> None:
    assert engine.complete("and its population?", []) == Completed("and its population?")


@pytest.mark.parametrize("question", ["What about Peru?", "And of Peru?", "and Peru then?"])
def test_the_last_question_is_asked_about_another_entity(engine: Engine, question: str) -> None:
    completed = after(engine, question, CAPITAL)
    assert completed.question == "what is the capital of Peru?"
    assert names(completed) == ["Peru"]
    assert completed.path is not None
    assert [each.name for each in completed.path.entities()] == ["Peru"]
    assert completed.typed == question


@pytest.mark.parametrize(
    ("question", "understood", "topic"),
    [
        ("and its population?", "Nairobi's population?", "Nairobi"),
        ("What is its currency?", "What is Kenya's currency?", "Kenya"),
    ],
)
def test_a_pronoun_is_what_has_the_relation_that_is_asked_for(
    engine: Engine, question: str, understood: str, topic: str
) -> None:
    completed = after(engine, question, CAPITAL)
    assert (completed.question, names(completed)) == (understood, [topic])


def test_he_is_the_last_man_and_no_place(graph: Graph) -> None:
    born = ("when was Justin Bieber born?", "Justin Bieber -> people.person.date_of_birth")
    capital = ("capital of Jamaica?", "Jamaica -> location.country.capital")
    with Engine(graph) as engine:
        completed = after(engine, "where was he born?", born, capital)
    assert completed.question == "where was Justin Bieber born?"


def test_a_question_that_names_nothing_is_about_the_last_topic(engine: Engine) -> None:
    completed = after(engine, "Population?", CAPITAL)
    assert (completed.question, names(completed)) == ("Population of Nairobi?", ["Nairobi"])


def test_a_class_word_is_the_last_of_its_kind(engine: Engine) -> None:
    completed = after(engine, "what currency does that country use?", CAPITAL)
    assert completed.question == "what currency does Kenya use?"


def test_of_those_means_the_last_answers(engine: Engine) -> None:
    completed = after(engine, "Which of those is the largest?", NEIGHBOURS)
    assert completed.question == "Which of the countries border Peru is the largest?"
    assert names(completed) == ["Peru"]
    assert completed.path == answering_path(turn(engine, *NEIGHBOURS))


def test_of_the_two_means_the_last_two_topics(engine: Engine) -> None:
    two = [population("Peru"), population("Chile")]
    completed = after(engine, "Which of the two is larger?", *two)
    assert completed.question == "Which is larger, Peru or Chile?"
    assert names(completed) == ["Peru", "Chile"]


def test_which_one_is_of_what_was_asked_for(engine: Engine) -> None:
    completed = after(engine, "Which one uses the real?", NEIGHBOURS)
    assert completed.question == "which country uses the real?"


def test_where_alone_asks_the_last_question_with_where(engine: Engine) -> None:
    completed = after(engine, "And where?", DISCOVERED)
    assert completed.question == "where was radium discovered?"
    assert names(completed) == ["Radium"]


def test_after_no_the_right_one_is_asked_for(engine: Engine) -> None:
    completed = after(engine, "what is it then?", IS_CAPITAL)
    assert completed.question == "what is the capital of Switzerland?"


def test_together_means_the_last_two_topics(engine: Engine) -> None:
    completed = after(engine, "How many is that together?", population("Peru"), population("Chile"))
    assert completed.question == "how many people live in Peru and Chile together?"
    assert names(completed) == ["Peru", "Chile"]


def test_others_leave_out_what_is_known(engine: Engine) -> None:
    completed = after(engine, "which other countries border it?", NEIGHBOURS)
    left_out = {each.name for each in completed.without}
    assert names(completed) == ["Peru"]
    assert left_out == {"Ecuador", "Chile", "Colombia", "Bolivia", "Brazil"}
    whole = turn(engine, *NEIGHBOURS)
    chile = [each for each in completed.without if each.name == "Chile"]
    left = engine.leave_out(whole, chile)
    assert {each.name for each in left.answers} == left_out - {"Chile"}
    path = answering_path(left)
    assert path is not None and path.constraints, "a next question goes on from what is left"


def test_one_half_cannot_mean_the_answer_to_the_other(demo: Graph, scripted) -> None:
    capital = [("Peru -> location.country.capital", -0.5)]
    money = [("Peru -> location.country.currency_used", -0.5)]
    model = scripted(capital, money)
    with Engine(demo, model, settings={"judge": "confidence"}) as engine:
        conversation = Conversation(engine)
        both = conversation.ask("What is the capital of Peru and what currency do they use there?")
    assert model.questions[-1] == "what currency do they use in Peru?"
    assert [[each.name for each in part.answers] for part in both.parts] == [
        ["Lima"],
        ["Peruvian Sol"],
    ]
    assert conversation.turns == list(both.parts)
    assert (both.status, both.is_partial, both.problem) == ("answered", False, None)


def test_history_answers_as_a_conversation_does(demo: Graph, scripted) -> None:
    capital = [("Kenya -> location.country.capital", -0.5)]
    with Engine(demo, scripted(capital, []), settings={"judge": "confidence"}) as engine:
        answer = engine.ask("And of Peru?", history=[CAPITAL[0]])
    assert (answer.question, answer.understood) == ("And of Peru?", "what is the capital of Peru?")
    assert [each.name for each in answer.answers] == ["Lima"], "by the path of the last question"


@pytest.mark.parametrize(
    ("question", "turns", "understood"),
    [
        ("Which one is larger?", ("Kenya", "Peru"), "which is larger, Kenya or Peru?"),
        ("which other countries use it?", (CURRENCY,), "which other countries use Peruvian Sol?"),
        ("which is the largest of those?", (NEIGHBOURS,), LARGEST),
        ("How many are there?", (NEIGHBOURS,), "how many countries border Peru?"),
        ("by how much?", (LARGER,), "how much larger is Kenya than Peru?"),
        ("and its symbol?", (DISCOVERED, CAPITAL), "Radium's symbol?"),
        ("where is it?", (CAPITAL,), "where is Nairobi?"),
        ("What is, then?", (IS_CAPITAL,), "What is the capital of Switzerland?"),
        ("and their capitals?", (NEIGHBOURS,), "capitals of the countries border Peru?"),
        ("and in Africa?", (DISCOVERED,), "when was radium discovered in Africa?"),
    ],
)
def test_words_stand_for_what_a_reader_takes_them_for(
    engine: Engine, question: str, turns: tuple[object, ...], understood: str
) -> None:
    asked = [population(each) if isinstance(each, str) else each for each in turns]
    assert after(engine, question, *asked).question == understood  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "turn"),
    [
        ("What about tungsten?", CAPITAL),  # it has no capital
        ("where was she born?", CAPITAL),  # neither Kenya nor Nairobi is a woman
        ("do they border Chile?", NEIGHBOURS),
        ("thanks!", CAPITAL),
    ],
)
def test_what_has_nothing_to_stand_for_is_left_alone(
    engine: Engine, question: str, turn: tuple[str, str]
) -> None:
    assert after(engine, question, turn) == Completed(question)
