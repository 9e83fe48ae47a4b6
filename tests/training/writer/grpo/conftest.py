"""A tiny writer that knows how paths look, and questions about the small graph."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.training.data.training_set import Example, Split
from kbqa.training.writer.config import TrainingConfig

NS = "PREFIX ns: <http://rdf.freebase.com/ns/>"
JAMAICA, KINGSTON, DOLLAR, BIEBER = "m.03_r3", "m.03yl7", "m.04xc2m", "m.06w2sn5"
ASKED = (
    ("what is the capital of Jamaica?", JAMAICA, "ns:m.03_r3 ns:location.country.capital ?x"),
    ("which money is used in Jamaica?", JAMAICA, "ns:m.03_r3 ns:location.country.currency_used ?x"),
    ("where is Kingston?", KINGSTON, "ns:m.03yl7 ns:location.location.containedby ?x"),
    ("how large is Kingston?", KINGSTON, "ns:m.03yl7 ns:location.location.area ?x"),
    ("who pays in dollars?", DOLLAR, "ns:m.04xc2m ns:finance.currency.countries_used ?x"),
    ("what is Bieber's gender?", BIEBER, "ns:m.06w2sn5 ns:people.person.gender ?x"),
    ("when was Bieber born?", BIEBER, "ns:m.06w2sn5 ns:people.person.date_of_birth ?x"),
)
NAMES = {JAMAICA: "Jamaica", KINGSTON: "Kingston", DOLLAR: "Jamaican dollar"}


def asked_rows() -> list[dict[str, object]]:
    """The questions as records of a question set."""
    return [
        {
            "id": f"q{number}",
            "question": question,
            "sparql": f"{NS} SELECT DISTINCT ?x WHERE {{ {pattern} }}",
            "topic_entities": [{"mid": mid, "name": NAMES.get(mid, "Justin Bieber")}],
        }
        for number, (question, mid, pattern) in enumerate(ASKED)
    ]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """The questions as a file."""
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in asked_rows()), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def start(
    examples: Sequence[Example], tiny_base: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An adapter that was trained for a moment, on other countries."""
    from kbqa.training.writer.train import train_adapter

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
def small_graph(small_store: Path) -> Iterator[Graph]:
    """The small graph, as a store."""
    with open_graph(small_store) as graph:
        yield graph
