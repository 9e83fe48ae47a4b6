"""The tools that judge beams, on the small graph."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.engine.running.tried import ConfidenceModel
from tools.fit.confidence import main as train_confidence
from tools.fit.take_questions import main as take_questions
from tools.score.beams import main as score_beams

PATH = "Main Path:\n Jamaica -[location , country , {}]-> ?x"
MONEY, CAPITAL, MADE_UP = map(PATH.format, ("currency used", "capital", "moneys"))
JAMAICA = {"mid": "m.03_r3", "name": "Jamaica"}


def _crp(text: str, logprob: float) -> dict[str, object]:
    return {"crp": None, "routerkgqa": text, "logprob": logprob, "tokens": 10}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A question set, beams of two makers, and a confidence model that goes by probability."""
    rows = [
        {
            "id": id_,
            "question": "what money does Jamaica use?",
            "topic_entities": [JAMAICA],
            "answers": [{"arg": "m.04xc2m"}],
            "crp_routerkgqa": MONEY,
            "evidence": tier,
        }
        for id_, tier in (("a", "independent"), ("b", "annotated"), ("c", "none"))
    ]
    beams = {
        "first": [_crp(MADE_UP, -1.0), _crp(CAPITAL, -2.0), _crp(MONEY, -3.0)],
        "second": [_crp(MONEY, -0.1)],
    }
    paths = {name: tmp_path / f"{name}.jsonl" for name in ("questions", *beams)}
    paths["questions"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, crps in beams.items():
        written = [{"id": id_, "crps": crps, "seconds": 0.5} for id_ in "abc"]
        paths[name].write_text("".join(json.dumps(row) + "\n" for row in written))
    paths["confidence"] = tmp_path / "confidence.json"
    ConfidenceModel(0.0, {"logprob": 1.0}).save(paths["confidence"])
    return paths


def test_paths_and_answers_are_scored(files: dict[str, Path], small_store: Path) -> None:
    arguments = ["--questions", files["questions"], "--store", small_store, "--gold-entities"]
    arguments += ["--confidence", files["confidence"], files["first"], files["second"]]
    done = CliRunner().invoke(score_beams, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    table = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if "| " in line]
    means = {name: " ".join(cell.split()[0] for cell in cells) for name, *cells in table[1:]}
    # n, exact, skeleton, main path, in n, depth, reachable, F1, F1 by tier, tokens, seconds
    assert means == {
        "first, paper": "2 0.000 0.000 0.000 1.000 1.000 0.000 0.000 0.000 0.000 30 0.50",
        "first, kbqa": "2 0.000 0.000 0.000 1.000 1.000 1.000 0.000 0.000 0.000 30 0.50",
        "second, kbqa": "2 1.000 1.000 1.000 1.000 1.000 1.000 1.000 1.000 1.000 10 0.50",
    }
    assert "- second, kbqa: 1.000 [1.000, 1.000]" in done.stdout
    assert "Always guessing 1 hops" in done.stdout


def test_a_confidence_is_fitted_to_beams(
    files: dict[str, Path], small_store: Path, tmp_path: Path
) -> None:
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


def test_questions_are_drawn_and_taken(files: dict[str, Path], tmp_path: Path) -> None:
    drawn = CliRunner().invoke(take_questions, [str(files["questions"]), "--draw", "5"])
    assert drawn.stdout.split() == ["a", "b"]
    ids = tmp_path / "ids.txt"
    ids.write_text("b\n")
    taken = CliRunner().invoke(take_questions, [str(files["questions"]), str(ids)])
    assert [json.loads(line)["id"] for line in taken.stdout.splitlines()] == ["b"]
    ids.write_text("b\nz\n")
    missing = CliRunner().invoke(take_questions, [str(files["questions"]), str(ids)])
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
