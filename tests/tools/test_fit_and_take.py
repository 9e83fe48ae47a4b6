"""The tools that fit the confidence model and take questions, on the small graph."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.engine.running.tried import ConfidenceModel
from tools.fit.confidence import main as train_confidence
from tools.fit.take_questions import main as take_questions

PATH = "Main Path:\n Jamaica -[location , country , {}]-> ?x"
MONEY, CAPITAL = map(PATH.format, ("currency used", "capital"))
JAMAICA = {"mid": "m.03_r3", "name": "Jamaica"}


def _crp(text: str, logprob: float) -> dict[str, object]:
    return {"crp": None, "routerkgqa": text, "logprob": logprob, "tokens": 10}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """A question set in all tiers."""
    rows = [
        {
            "id": id_,
            "question": "what money does Jamaica use?",
            "topic_entities": [JAMAICA],
            "crp_routerkgqa": MONEY,
            "evidence": tier,
        }
        for id_, tier in (("a", "independent"), ("b", "annotated"), ("c", "none"))
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_confidence_is_fitted_to_beams(small_store: Path, tmp_path: Path) -> None:
    sparql = (
        "SELECT ?x WHERE { ns:m.03_r3 ns:location.country.currency_used ?x . "
        "FILTER(?x != ns:m.03_r3) }"
    )
    rows = [
        {"id": str(n), "question": "what money?", "topic_entities": [JAMAICA], "sparql": sparql}
        for n in range(8)
    ]
    rows.append({"id": "9", "question": "?", "sparql": sparql.replace("currency_used", "unknown")})
    crps = [_crp(MONEY, -0.1), _crp(CAPITAL, -4.0)]
    questions, beams, output = (tmp_path / f"{name}.jsonl" for name in ("q", "b", "model"))
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    beams.write_text("".join(json.dumps({"id": row["id"], "crps": crps}) + "\n" for row in rows))
    arguments = ["--store", small_store, "--output", output, f"{questions}={beams}"]
    done = CliRunner().invoke(train_confidence, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    assert "fitted on 8 of q; linked, 16 candidates" in done.stdout
    assert ConfidenceModel.load(output).weights["share"] > 0


def test_questions_are_drawn_and_taken(questions: Path, tmp_path: Path) -> None:
    drawn = CliRunner().invoke(take_questions, [str(questions), "--draw", "5"])
    assert drawn.stdout.split() == ["a", "b"]
    ids = tmp_path / "ids.txt"
    ids.write_text("b\n")
    taken = CliRunner().invoke(take_questions, [str(questions), str(ids)])
    assert [json.loads(line)["id"] for line in taken.stdout.splitlines()] == ["b"]
    ids.write_text("b\nz\n")
    missing = CliRunner().invoke(take_questions, [str(questions), str(ids)])
    assert "does not have 1 of the ids" in str(missing.exception)


def test_an_official_file_is_converted_and_drawn_from(tmp_path: Path) -> None:
    official = tmp_path / "ComplexWebQuestions_test.json"
    query = "SELECT ?x { ns:m.03_r3 ns:location.country.currency_used ?x }"
    records = [{"ID": f"c{n}", "question": "what money?", "sparql": query} for n in range(3)]
    official.write_text(json.dumps(records))
    converted = CliRunner().invoke(take_questions, [str(official)])
    rows = [json.loads(line) for line in converted.stdout.splitlines()]
    assert [row["id"] for row in rows] == ["c0", "c1", "c2"]
    assert rows[0]["topic_entities"] == [{"mid": "m.03_r3"}]
    drawn = CliRunner().invoke(take_questions, [str(official), "--draw", "2"])
    assert len(set(drawn.stdout.split())) == 2
