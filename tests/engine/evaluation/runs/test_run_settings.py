import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kbqa.engine.chat.model import ChatModel
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.runs.run_settings import (
    record_beams,
    record_graph,
    record_method,
    record_model,
    record_questions,
)
from kbqa.engine.writing.model_choice import ModelChoice
from kbqa.kb.endpoint.sparql_endpoint import SparqlEndpoint
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError


def test_a_question_file_is_known_by_its_content(tmp_path: Path) -> None:
    first, moved = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path in (first, moved):
        path.write_text("{}")
    a, b = (record_questions(path, None, 42) for path in (first, moved))
    assert a.settings == b.settings
    assert (a.notes, b.notes) == ({"questions": str(first)}, {"questions": str(moved)})
    moved.write_text("{} ")
    assert record_questions(moved, None, 42).settings != a.settings


def test_a_seed_decides_only_where_a_sample_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.touch()
    assert record_questions(path, None, 1) == record_questions(path, None, 2)
    assert record_questions(path, 5, 1) != record_questions(path, 5, 2)


def test_a_store_is_known_by_what_it_was_loaded_from(graph: Graph, small_store: Path) -> None:
    recorded = record_graph(graph, 5.0)
    assert recorded.settings["endpoint"] is None
    store = recorded.settings["store"]
    assert isinstance(store, dict)
    assert set(store) == {"versions", "rules_sha256", "languages", "dumps_sha256"}
    assert [len(digest) for digest in store["dumps_sha256"]] == [64]
    assert recorded.notes["graph"] == f"store {small_store}"
    json.dumps(recorded.notes)


def test_an_endpoint_is_known_by_its_url() -> None:
    recorded = record_graph(SparqlEndpoint("http://a/sparql"), 5.0)
    assert recorded.settings == {
        "store": None,
        "endpoint": "endpoint http://a/sparql",
        "timeout_s": 5.0,
    }


def test_candidates_are_told_with_what_made_them(tmp_path: Path) -> None:
    path = tmp_path / "beams.jsonl"
    path.write_text("{}\n")
    assert record_beams(path).notes == {"beams": str(path), "beams_manifest": None}
    (tmp_path / "beams.manifest.json").write_text('{"model": "a"}')
    assert record_beams(path).notes["beams_manifest"] == {"model": "a"}
    assert record_beams(None).settings == {"beams_sha256": None}
    (tmp_path / "beams.manifest.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        record_beams(path)


def test_a_call_budget_is_recorded_where_there_is_one(graph: Graph, scripted) -> None:
    with Engine(graph, scripted()) as engine:
        limited = record_method(engine.method, None, 5).settings
        free = record_method(engine.method, None).settings
        other = record_method(engine.method, None, unsure_below=0.5).settings
    assert limited == {**free, "call_budget": 5}
    assert other == {**free, "unsure_below": 0.5}


def test_the_general_model_is_recorded_where_it_decides(
    graph: Graph, scripted_chat: Callable[[], ChatModel]
) -> None:
    for chooser, named in (("llm", "scripted chat"), ("random", None)):
        with Engine(graph, chat=scripted_chat(), method="bpc", chooser=chooser) as engine:
            recorded = record_method(engine.method, None, None, "scripted chat").settings["method"]
        assert isinstance(recorded, dict)
        assert recorded.get("general_model") == named


def test_a_model_that_is_not_loaded_decides_nothing(tmp_path: Path) -> None:
    choice = ModelChoice(None, tmp_path, 5, "schema")
    recorded = record_model(choice, "model + adapter 0a1b") | record_beams(None)
    assert recorded.settings == {
        "model": "model + adapter 0a1b",
        "n": 5,
        "decoding": "schema",
        "beams_sha256": None,
    }
    assert recorded.notes["adapter"] == str(tmp_path)
    assert record_model(choice, None).settings == {"model": None, "n": None, "decoding": None}
