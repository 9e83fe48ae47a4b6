"""No question is lost if servers die in the middle of a run."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.kb.open import demo_store_directory, open_graph
from kbqa.sparql.terms import LiteralTerm
from tools.bench.failover import main
from tools.graph_servers import MissingServer, haproxy

QUESTIONS = 40
_COUNTRIES = """SELECT ?x ?name { ?x ns:location.country.capital ?c . ?x ns:type.object.name ?name
FILTER (LANG(?name) = "en") } ORDER BY ?x"""


def _write(path: Path, rows: Iterable[object]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """Questions on the demo graph and their paths, as options."""
    with open_graph(demo_store_directory()) as graph:
        named = graph.select(_COUNTRIES, limit=QUESTIONS).rows
    topics = [(str(mid), name.text) for mid, name in named if isinstance(name, LiteralTerm)]
    questions, beams = [], []
    for at, (mid, name) in enumerate(topics):
        topic = {"mid": mid, "name": name}
        asked = f"what is the capital of {name}?"
        path = f"{name} -> location.country.capital"
        questions.append({"id": str(at), "question": asked, "topic_entities": [topic]})
        written = {"crp": path, "logprob": -1.0, "tokens": 20, "topics": [mid]}
        beams.append({"id": str(at), "crps": [written]})
    return [
        *("--questions", _write(tmp_path / "questions.jsonl", questions)),
        *("--beams", _write(tmp_path / "beams.jsonl", beams)),
        *("--count", str(QUESTIONS)),
    ]


@pytest.mark.parametrize("balancer", [False, True], ids=["listed", "behind HAProxy"])
def test_no_question_is_lost(inputs: list[str], *, balancer: bool) -> None:
    if balancer:
        try:
            with haproxy([]):
                pass
        except MissingServer as missing:
            pytest.skip(str(missing))
    arguments = [str(demo_store_directory()), *inputs, *(["--balancer"] * balancer)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith(f"{QUESTIONS} questions, 3 servers")
    assert lines[1].startswith("undisturbed: 0 failed")
    assert lines[2].startswith("killed ")
    assert lines[2].count(",") >= 3  # three servers, and what failed
    assert ": 0 failed" in lines[2]
    assert lines[3] == "rows byte-equal: yes"
