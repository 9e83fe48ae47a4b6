from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from kbqa.kb.names.index import NameIndex
from kbqa.kb.schema.properties import Schema
from kbqa.kb.store.layout import StoreLayout
from kbqa.kb.store.oxigraph import OxigraphStore
from kbqa.sparql.compiler.compile import compile_crp
from kbqa.sparql.crp import Crp, Entity, IsEntity
from kbqa.sparql.forms import parse_routerkgqa, render_routerkgqa
from kbqa.training.demo.intents import read_intents
from kbqa.training.demo.questions import DemoExample, demo_examples

SEED = 0


@pytest.fixture(scope="module")
def examples() -> list[DemoExample]:
    return demo_examples(SEED)


def test_there_are_enough_for_training_and_some_held_out(examples: list[DemoExample]) -> None:
    counted = Counter(example.split for example in examples)
    assert counted["train"] >= 1_500
    assert counted["valid"] >= 200


def test_every_intent_is_asked_in_each_of_its_wordings(examples: list[DemoExample]) -> None:
    counted = Counter(example.intent for example in examples)
    intents = read_intents()
    assert set(counted) == set(intents)
    for name, intent in intents.items():
        assert counted[name] >= len(intent.wordings), name


def test_every_kind_of_constraint_is_asked_for(examples: list[DemoExample]) -> None:
    kinds = Counter(one.kind for example in examples for one in example.crp.constraints)
    assert min(kinds["entity"], kinds["numeric"], kinds["string"]) >= 100
    assert sum(example.crp.order is not None for example in examples) >= 100


def test_no_crp_stands_in_both_splits(examples: list[DemoExample]) -> None:
    train = {example.crp for example in examples if example.split == "train"}
    assert not [one for one in examples if one.split == "valid" and one.crp in train]


def test_the_same_seed_gives_the_same_questions_whatever_else_is_asked(
    examples: list[DemoExample],
) -> None:
    intents = read_intents()
    some = {name: intents[name] for name in ("capital", "largest city", "neighbour by code")}
    assert demo_examples(SEED, some) == [one for one in examples if one.intent in some]


def test_questions_are_typed_as_users_type(examples: list[DemoExample]) -> None:
    questions = [example.question for example in examples]
    assert not [question for question in questions if "{" in question or "  " in question]
    lower = sum(question == question.lower() for question in questions) / len(questions)
    marked = sum(question.endswith("?") for question in questions) / len(questions)
    assert 0.6 < lower < 0.8
    assert 0.4 < marked < 0.7


def test_every_crp_can_be_said_in_the_papers_text_form(examples: list[DemoExample]) -> None:
    for example in examples:
        text = render_routerkgqa(example.crp)
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
    candidates = [
        [Entity(one.name, match.mid) for match in names.lookup(str(one)) if match.name == one.name]
        for one in crp.entities()
    ]
    for topic, *others in product(*candidates):
        rest = iter(others)
        constraints = tuple(
            replace(one, test=IsEntity(next(rest))) if isinstance(one.test, IsEntity) else one
            for one in crp.constraints
        )
        yield replace(crp, topic=topic, constraints=constraints)


def test_every_question_has_an_answer_in_the_store(
    examples: list[DemoExample], graph: OxigraphStore, names: NameIndex
) -> None:
    unanswered = [
        example
        for example in examples
        if not any(graph.select(compile_crp(crp)).rows for crp in groundings(example.crp, names))
    ]
    assert unanswered == []
