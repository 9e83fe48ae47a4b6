import logging
from pathlib import Path

import pytest

from kbqa.engine.questions.question_sets import Unconverted, convert_queries
from kbqa.sparql.crp import Crp, Entity, Hop

CAPITAL = "SELECT ?x { ns:m.0k ns:location.country.capital ?x . FILTER (?x != ns:m.0k) }"
LEAST = "SELECT (MIN(?x) AS ?n) { ns:m.0k ns:location.country.capital ?x }"
NONSENSE = "what?"


def test_each_query_is_converted_once_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path))
    caplog.set_level(logging.INFO, "kbqa")
    queries = [CAPITAL, NONSENSE, LEAST, CAPITAL]
    first = convert_queries(queries)
    assert "converting 3 queries" in caplog.text
    assert list(first) == [CAPITAL, NONSENSE, LEAST]
    found = first[CAPITAL]
    assert isinstance(found, Crp)
    assert (found.topic, found.path) == (Entity(mid="m.0k"), (Hop("location.country.capital"),))
    assert first[NONSENSE] == Unconverted("SPARQL that does not parse")
    assert isinstance(first[LEAST], Unconverted)

    caplog.clear()
    assert convert_queries(queries) == first
    assert caplog.text == ""
