import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from random import Random

import pytest

from kbqa.engine.running.path_runner import PathRunner, is_reachable
from kbqa.kb.graph import Schema
from kbqa.kb.layout import StoreLayout
from kbqa.kb.names import NameIndex
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.crp import AnyOf, Crp, Entity, IsNotEntity
from kbqa.sparql.forms import parse_routerkgqa, render_extended
from kbqa.training import demo
from kbqa.training.data.training_set import ASKED, DEMO_SOURCE, Example, load_examples
from kbqa.training.demo import DemoExample, DemoFacts, _with_slip, demo_examples, read_intents

SEED = 42
UNSEEN_RELATIONS = {
    "aviation.airport.icao",
    "chemistry.chemical_element.electronegativity",
    "language.language_writing_system.iso_15924_alpha",
    "location.administrative_division.iso_3166_2_code",
    "location.country.iso_numeric",
    "time.time_zone.offset_from_uct",
}


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.slow)])
def examples(request: pytest.FixtureRequest) -> list[DemoExample]:
    if request.param == "some":
        request.getfixturevalue("few_intents")
    return demo_examples(SEED)


@pytest.fixture(scope="module")
def everything() -> list[DemoExample]:
    """All questions, for tests that are marked as slow."""
    return demo_examples(SEED)


@pytest.mark.slow
def test_there_are_enough_for_training_and_some_held_out(everything: list[DemoExample]) -> None:
    counted = Counter(example.split for example in everything)
    assert counted["train"] >= 10_000
    assert counted["valid"] >= 1_200


def test_every_intent_is_asked_in_each_of_its_wordings(examples: list[DemoExample]) -> None:
    counted = Counter(example.intent for example in examples)
    intents = demo.read_intents()
    assert set(counted) == set(intents)
    for name, intent in intents.items():
        assert counted[name] >= len(intent.wordings), name


def test_every_wording_is_trained_on() -> None:
    intent = read_intents()["time zone of a city"]
    drawn = demo_examples(SEED, {"time zone of a city": intent})
    trained = [example for example in drawn if example.split == "train"]
    assert len(trained) >= 2 * len(intent.wordings)
    for one in intent.wordings:
        start, _, end = one.partition("{city}")
        pattern = re.compile(f"{re.escape(start)}.+{re.escape(end)}[?]?$", re.IGNORECASE)
        assert any(pattern.match(example.question) for example in trained), one


def test_a_wording_asks_for_all_that_its_path_needs() -> None:
    filled_by = {
        "continental": "continent",
        "rank": "nth",
        "local_time": "zone",
        "land": "country",
    }
    for name, intent in read_intents().items():
        for wording in intent.wordings:
            places = re.findall(r"[{](\w+)[}]", wording)
            assert {filled_by.get(place, place) for place in places} == set(intent.slots), name


def test_some_relations_stay_unseen(examples: list[DemoExample]) -> None:
    asked = {relation for example in examples for relation in example.crp.relations()}
    assert not asked & UNSEEN_RELATIONS


def test_names_are_never_misspelt() -> None:
    slipped = {_with_slip("which countries border {country}", Random(seed)) for seed in range(200)}
    assert len(slipped) > 5
    assert all(one.endswith(" {country}") for one in slipped)


@pytest.mark.slow
def test_every_kind_of_constraint_is_asked_for(everything: list[DemoExample]) -> None:
    kinds = Counter(one.kind for example in everything for one in example.crp.constraints)
    assert min(kinds["entity"], kinds["numeric"], kinds["string"]) >= 100
    assert sum(example.crp.order is not None for example in everything) >= 100


def test_no_crp_stands_in_both_splits(examples: list[DemoExample]) -> None:
    train = {example.crp for example in examples if example.split == "train"}
    assert not [one for one in examples if one.split == "valid" and one.crp in train]


def test_the_same_seed_gives_the_same_questions_whatever_else_is_asked(
    examples: list[DemoExample],
) -> None:
    some = dict(islice(demo.read_intents().items(), 5, 8))
    assert demo_examples(SEED, some) == [one for one in examples if one.intent in some]


def test_questions_are_typed_as_users_type(examples: list[DemoExample]) -> None:
    questions = [example.question for example in examples]
    assert not [question for question in questions if "{" in question or "  " in question]
    lower = sum(question == question.lower() for question in questions) / len(questions)
    marked = sum(question.endswith("?") for question in questions) / len(questions)
    assert 0.6 < lower < 0.8
    assert 0.4 < marked < 0.7


@pytest.mark.slow
def test_questions_ask_for_all_that_a_path_can_say(everything: list[DemoExample]) -> None:
    crps = [example.crp for example in everything]
    tests = Counter(type(one.test) for crp in crps for one in crp.constraints)
    forms = Counter(crp.form for crp in crps)
    assert min(forms["count"], forms["ask"]) >= 200
    assert min(tests[AnyOf], tests[IsNotEntity]) >= 50
    assert sum(any(one.negated for one in crp.constraints) for crp in crps) >= 200
    assert sum(crp.order is not None and crp.order.offset > 0 for crp in crps) >= 200
    assert sum(crp.order is not None and crp.order.limit > 1 for crp in crps) >= 50
    assert sum(crp.topic.mid is not None for crp in crps) >= 500  # a class


def test_as_many_are_answered_yes_as_no(examples: list[DemoExample]) -> None:
    asking = {one.crp for one in examples if one.crp.form == "ask"}
    with DemoFacts() as facts:
        yes = sum(facts.says(crp) is True for crp in asking)
    assert 0.4 < yes / len(asking) < 0.6


def test_every_crp_can_be_said_in_the_form_to_learn(examples: list[DemoExample]) -> None:
    for example in examples:
        text = render_extended(example.crp)
        assert text is not None, example
        assert parse_routerkgqa(text).crp == example.crp


def test_every_relation_is_in_the_demo_graphs_schema(
    examples: list[DemoExample], demo_store: Path
) -> None:
    schema = Schema.open(StoreLayout(demo_store).schema)
    asked = {relation for example in examples for relation in example.crp.relations()}
    assert asked <= set(schema.properties)


@pytest.fixture(scope="module")
def graph(demo_store: Path) -> Iterator[OxigraphStore]:
    store = OxigraphStore.open(demo_store)
    yield store
    store.close()


@pytest.fixture(scope="module")
def names(demo_store: Path) -> Iterator[NameIndex]:
    index = NameIndex.open(StoreLayout(demo_store).names)
    yield index
    index.close()


def groundings(crp: Crp, names: NameIndex) -> Iterator[Crp]:
    """Yield the CRP with mids, the best known entities of its names first."""
    written = {str(one) for one in crp.entities() if one.mid is None}
    candidates = [
        [Entity(name, match.mid) for match in names.lookup(name) if match.name == name]
        for name in written
    ]
    for chosen in product(*candidates):
        mids = dict(zip(written, chosen, strict=True))
        yield crp.with_entities(lambda one, mids=mids: mids.get(str(one), one))


def says(runner: PathRunner, graph: OxigraphStore, crp: Crp) -> bool:
    """Return whether a path has an answer, be it no for lack of any that fits."""
    outcome = runner.run(crp)
    if outcome is None and is_reachable(graph, crp, 10.0):
        outcome = runner.run_unsatisfied(crp)
    return outcome is not None


def test_every_question_has_an_answer_in_the_store(
    examples: list[DemoExample], graph: OxigraphStore, names: NameIndex
) -> None:
    runner = PathRunner(graph, 10.0)
    unanswered = [
        example
        for example in examples[::7]
        if not any(says(runner, graph, crp) for crp in groundings(example.crp, names))
    ]
    assert unanswered == []


@pytest.fixture(scope="module")
def drawn(examples: list[DemoExample]) -> list[Example]:
    return load_examples([], demo_questions=50, seed=SEED).examples


def test_as_many_demo_questions_as_wanted(drawn: list[Example]) -> None:
    assert len(drawn) == 50
    assert {example.source for example in drawn} == {DEMO_SOURCE}
    assert len({example.id for example in drawn}) == 50


def test_none_that_is_kept_for_testing(drawn: list[Example], examples: list[DemoExample]) -> None:
    kept = {one.question.casefold() for one in examples if one.split == "valid"}
    assert not {example.question.casefold() for example in drawn} & kept


def test_none_that_a_test_set_asks(drawn: list[Example], tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps({"id": "1", "question": drawn[7].question.upper()}))
    gathered = load_examples([], demo_questions=50, seed=SEED, scored=[path])
    assert gathered.skipped_rows == {ASKED: [f"demo {drawn[7].id}"]}
    assert gathered.examples == [*drawn[:7], *drawn[8:]]
