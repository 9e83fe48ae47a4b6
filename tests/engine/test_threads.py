"""Questions that threads ask of one engine, over several query workers."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbqa.engine.engine import Engine
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.open import open_graph

CAPITAL = "{} -> location.country.capital"
CITIES = "{} -> location.location.contains\n?x -> common.topic.notable_types = City/Town/Village"
LARGEST = f"{CITIES}\nlargest ?x -> location.location.area"
NEIGHBOURS = (
    "{} -> location.location.adjoin_s -> location.adjoining_relationship.adjoins\n"
    "?x -> location.country.currency_used = Euro"
)
NOWHERE = "{} -> people.person.gender"
COUNTRIES = ("Kenya", "Germany", "Peru", "Switzerland")


@pytest.fixture(scope="module")
def engine(demo_store: Path) -> Iterator[Engine]:
    with open_graph(demo_store, workers=3) as graph, Engine(graph) as opened:
        yield opened


def _record(engine: Engine, asked: tuple[str, Sequence[str]]) -> dict[str, Any]:
    question, texts = asked
    candidates = [Candidate(text, -float(rank), 10) for rank, text in enumerate(texts)]
    answer = engine.answer(replace(engine.prepare(question), candidates=candidates))
    record = answer.to_dict()
    del record["seconds"]
    return record


def test_threads_get_the_answers_that_come_one_after_the_other(engine: Engine) -> None:
    asked = [
        (f"what is the {what} of {country}?", [path.format(country) for path in paths])
        for country in COUNTRIES
        for what, paths in {
            "capital": (CAPITAL, NEIGHBOURS, NOWHERE),
            "largest city": (LARGEST, CITIES, CAPITAL, "nonsense"),
            "euro": (NEIGHBOURS, NOWHERE),
        }.items()
    ]
    alone = [_record(engine, each) for each in asked]
    assert sum(bool(record["answers"]) for record in alone) > len(COUNTRIES)
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda each: _record(engine, each), asked * 2))
    assert together == alone * 2


def test_paths_that_threads_run_have_the_same_answers(engine: Engine) -> None:
    paths = [path.format(country) for country in COUNTRIES for path in (CAPITAL, LARGEST)]
    alone = [engine.run_path(path).answers for path in paths]
    assert all(alone)
    with ThreadPoolExecutor(6) as pool:
        assert [each.answers for each in pool.map(engine.run_path, paths * 2)] == alone * 2
