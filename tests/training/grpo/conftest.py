"""A tiny writer that knows how paths look, and questions about the small graph."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from kbqa.engine.linking.linker import Linker
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.writing.steering import Decoding
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.training.config import GrpoConfig, TrainingConfig
from kbqa.training.data.training_set import Example, Split
from kbqa.training.grpo.questions import RewardFunction

NS = "PREFIX ns: <http://rdf.freebase.com/ns/>"
ASKED = (
    ("what is the capital of Jamaica?", "m.03_r3 Jamaica", "location.country.capital"),
    ("which money is used in Jamaica?", "m.03_r3 Jamaica", "location.country.currency_used"),
    ("where is Kingston?", "m.03yl7 Kingston", "location.location.containedby"),
    ("how large is Kingston?", "m.03yl7 Kingston", "location.location.area"),
    ("who pays in dollars?", "m.04xc2m Jamaican dollar", "finance.currency.countries_used"),
    ("what is Bieber's gender?", "m.06w2sn5 Justin Bieber", "people.person.gender"),
    ("when was Bieber born?", "m.06w2sn5 Justin Bieber", "people.person.date_of_birth"),
)


class SmallGraph(NamedTuple):
    """The small graph, with what training by reward needs of it."""

    graph: Graph
    decoding: Decoding
    reward: RewardFunction


@pytest.fixture(scope="session")
def asked() -> list[dict[str, object]]:
    """Seven questions as records of a question set, each with its query."""
    rows: list[dict[str, object]] = []
    for question, topic, relation in ASKED:
        mid, _, name = topic.partition(" ")
        query = f"{NS} SELECT DISTINCT ?x WHERE {{ ns:{mid} ns:{relation} ?x }}"
        topics = [{"mid": mid, "name": name}]
        row_id = f"q{len(rows)}"
        rows.append({"id": row_id, "question": question, "sparql": query, "topic_entities": topics})
    return rows


@pytest.fixture(scope="session")
def asked_file(asked: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a file."""
    path = tmp_path_factory.mktemp("data") / "asked.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def asked_questions(asked_file: Path) -> list[Question]:
    """The same as questions with the gold answers of the small graph."""
    golds = ["m.03yl7", "m.04xc2m", "m.03_r3", "480", "m.03_r3", "m.05zppz", "1994-03-01"]
    return [
        replace(question, golds=((gold,),))
        for question, gold in zip(read_questions(asked_file), golds, strict=True)
    ]


@pytest.fixture(scope="session")
def start(
    examples: Sequence[Example], tiny_base: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An adapter that was trained for a moment, on other countries."""
    from kbqa.training.writer import train_adapter

    folder = tmp_path_factory.mktemp("adapters") / "start"
    config = TrainingConfig(
        base=str(tiny_base),
        epochs=3,
        batch_size=4,
        learning_rate=2e-2,
        crp_format="routerkgqa",
        valid_generate=0,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBQA_PRECISION", "float32")
        train_adapter(Split(tuple(examples), ()), folder, config)
    return folder


@pytest.fixture(scope="session")
def start_config(start: Path, tiny_base: Path) -> TrainingConfig:
    """Settings that start from the adapter."""
    return TrainingConfig(
        base=str(tiny_base), start=str(start), crp_format="routerkgqa", learning_rate=1e-2
    )


@pytest.fixture(scope="session")
def small_graph(small_store: Path) -> Iterator[SmallGraph]:
    """The small graph, opened once."""
    with open_graph(small_store) as graph:
        names = graph.names()
        reward = RewardFunction(graph, names, Linker(graph, names), 10.0, GrpoConfig())
        yield SmallGraph(graph, Decoding("graph", graph), reward)
        names.close()
