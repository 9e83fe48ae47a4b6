"""`kbqa train-judge`, from beams for the demo graph to a judge that answers."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.engine.running.judge import (
    ADAPTER_FILE,
    ASKER_FILES,
    ASKER_FOLDER,
    CONFIDENCE_FILE,
    PRECEDENTS_FILE,
    READER_FOLDER,
    CrossEncoder,
)
from kbqa.engine.running.tried import ASKED_LEAD, ConfidenceModel
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.terms import iri
from kbqa.training.judge.learning import POOLS_FILE
from kbqa.training.run import CARD_FILE, MANIFEST_FILE, RunFolder

pytest.importorskip("torch", reason="needs the lm extra")

COUNTRIES = ("Kenya", "Peru", "Chile", "Ghana", "Nepal", "Oman", "Fiji", "Mali", "Chad", "Togo")
ASKED = {
    "what is the capital of {}?": "location.country.capital",
    "which money is used in {}?": "location.country.currency_used",
}


@pytest.fixture
def files(demo_store: Path, tmp_path: Path) -> Path:
    """A question set, and beams for both halves of it."""
    rows: list[dict[str, object]] = []
    with closing(open_graph(demo_store)) as graph:
        mids = {country: _mid(graph, country) for country in COUNTRIES}
    for country, mid in mids.items():
        for at, (question, relation) in enumerate(ASKED.items()):
            rows.append(
                {
                    "id": f"{country}-{at}",
                    "question": question.format(country),
                    "sparql": f"SELECT DISTINCT ?x WHERE {{ {iri(mid)} {iri(relation)} ?x }}",
                    "topic_entities": [{"mid": mid, "name": country}],
                    "crp_routerkgqa": _published(country, relation),
                }
            )
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for fold in (0, 1):
        beams = [_beams(row) for row in rows[fold::2]]
        (tmp_path / f"beams-{fold + 1}.jsonl").write_text("".join(beams))
    return tmp_path


def _mid(graph: Graph, country: str) -> str:
    name, type_ = iri("type.object.name"), iri("type.object.type")
    query = f'SELECT ?s {{ ?s {name} "{country}"@en ; {type_} {iri("location.country")} }}'
    [[mid]] = graph.select(query).rows
    return str(mid)


def _published(country: str, relation: str) -> str:
    words = " , ".join(relation.replace("_", " ").split("."))
    return f"Main Path:\n {country} -[{words}]-> ?x"


def _beams(row: dict[str, object]) -> str:
    country = str(row["id"]).split("-", maxsplit=1)[0]
    crps = [
        {"crp": f"{country} -> {relation}", "routerkgqa": None, "logprob": -1.0, "tokens": 9}
        for relation in ASKED.values()
    ]
    return json.dumps({"id": row["id"], "crps": crps}) + "\n"


def _train(files: Path, store: Path, *more: str, asker_epochs: int = 0) -> Result:
    written = [f"--held-out={files / 'beams-1.jsonl'}", f"--beams={files / 'beams-2.jsonl'}"]
    arguments = ["--data", str(files / "set.jsonl"), "--store", str(store)]
    options = ["--output", str(files / "judge"), "--asker-epochs", str(asker_epochs)]
    return CliRunner().invoke(main, ["train-judge", *arguments, *options, *(more or written)])


def test_a_judge_is_trained_and_resumed(files: Path, demo_store: Path) -> None:
    result = _train(files, demo_store)
    assert result.exit_code == 0, result.stderr
    judge = files / "judge"
    assert f"kbqa ask --set judge={judge}" in result.stdout
    model = ConfidenceModel.load(judge / CONFIDENCE_FILE)
    assert {"fit", "fit lead", "searched", "votes"} <= model.weights.keys()
    assert (judge / READER_FOLDER).is_dir()
    card = (judge / CARD_FILE).read_text("utf-8")
    assert "| set | 10 | 10 |" in card
    assert "held out: `beams-1.jsonl`, SHA-256 " in card
    manifest = json.loads((judge / MANIFEST_FILE).read_text("utf-8"))
    assert manifest["result"]["questions"] == 10
    assert manifest["precedents"] == 10  # none of those held out
    assert manifest["result"]["f1"] <= manifest["result"]["best_f1"] == 1.0
    again = _train(files, demo_store)
    assert again.exit_code == 0, again.stderr
    assert "training the" not in again.stderr
    assert ConfidenceModel.load(judge / CONFIDENCE_FILE) == model


def test_an_asker_is_added_resumed_and_kept(files: Path, demo_store: Path) -> None:
    assert _train(files, demo_store).exit_code == 0
    result = _train(files, demo_store, asker_epochs=1)
    assert result.exit_code == 0, result.stderr
    assert "training the asker" in result.stderr
    assert "training the cross-encoder" not in result.stderr
    judge = files / "judge"
    model = ConfidenceModel.load(judge / ASKER_FOLDER / CONFIDENCE_FILE)
    assert ASKED_LEAD in model.weights
    assert ASKED_LEAD not in ConfidenceModel.load(judge / CONFIDENCE_FILE).weights
    card = (judge / CARD_FILE).read_text("utf-8")
    assert "- the asker was trained on 10 examples (set 10)" in card  # none of those held out
    assert "| with its asker | 10 |" in card
    assert "| without it | 10 |" in card
    again = _train(files, demo_store, asker_epochs=1)
    assert again.exit_code == 0, again.stderr
    assert "training the" not in again.stderr

    fitted, held_out = files / "fitted", ("--held-out", str(files / "beams-1.jsonl"))
    options = ("--start", str(judge), "--epochs", "0", "--output", str(fitted))
    kept = _train(files, demo_store, *held_out, *options)
    assert kept.exit_code == 0, kept.stderr
    assert "training the" not in kept.stderr
    for name in ASKER_FILES:
        first, second = (folder / ASKER_FOLDER / name for folder in (judge, fitted))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.usefixtures("few_intents")
def test_what_was_held_out_is_not_read(files: Path, demo_store: Path) -> None:
    held_out = ("--held-out", str(files / "beams-1.jsonl"))
    result = _train(files, demo_store, *held_out, "--demo-questions", "5", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["questions"] == {"read": 15, "held_out": 10}
    rows = [json.loads(line) for line in (files / "judge" / POOLS_FILE).read_text().splitlines()]
    kept_away = {
        json.loads(line)["id"] for line in (files / "beams-1.jsonl").read_text().splitlines()
    }
    assert sum(row["id"].startswith("demo ") for row in rows) == 5
    assert not kept_away & {row["id"].split()[-1] for row in rows}
    assert all(max(f1 for _, f1 in row["candidates"]) == 1 for row in rows)

    again = _train(
        files, demo_store, *held_out, "--start", str(files / "judge"), "--output", str(files / "on")
    )
    assert again.exit_code == 0, again.stderr
    first, second = (
        CrossEncoder.load(files / judge / READER_FOLDER).revision for judge in ("judge", "on")
    )
    assert first != second


def test_a_part_of_a_set_is_read(files: Path, demo_store: Path) -> None:
    written = [f"--held-out={files / 'beams-1.jsonl'}", "--weight=set=0.4", "--epochs=1"]
    result = _train(files, demo_store, *written)
    assert result.exit_code == 0, result.stderr
    assert "4 questions to read, 10 held out" in result.stderr
    assert "left out 6: set: not drawn" in result.stderr


def test_composed_questions_are_read_and_not_remembered(files: Path, demo_store: Path) -> None:
    held_out = ("--held-out", str(files / "beams-1.jsonl"), "--composed-questions", "6")
    result = _train(files, demo_store, *held_out)
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in (files / "judge" / POOLS_FILE).read_text().splitlines()]
    composed = [row["candidates"] for row in rows if row["id"].startswith("composed ")]
    assert 0 < len(composed) <= 6
    assert all(max(f1 for _, f1 in candidates) == 1 for candidates in composed)
    manifest = json.loads((files / "judge" / MANIFEST_FILE).read_text("utf-8"))
    assert manifest["precedents"] == 10


def test_composed_questions_need_a_graph(files: Path) -> None:
    arguments = ["--data", str(files / "set.jsonl"), "--held-out", str(files / "beams-1.jsonl")]
    output = ["--output", str(files / "judge"), "--composed-questions", "6"]
    result = CliRunner().invoke(main, ["train-judge", *arguments, *output])
    assert result.exit_code == 2
    assert "--composed-questions needs a graph" in result.stderr


def test_a_judge_is_fitted_to_another_writer_and_keeps_the_rest(
    files: Path, demo_store: Path
) -> None:
    assert _train(files, demo_store).exit_code == 0
    first, fitted = files / "judge", files / "fitted"
    other = ["--held-out", str(files / "beams-2.jsonl"), "--start", str(first), "--epochs", "0"]
    result = _train(files, demo_store, *other, "--output", str(fitted))
    assert result.exit_code == 0, result.stderr
    for kept in (PRECEDENTS_FILE, f"{READER_FOLDER}/{ADAPTER_FILE}"):
        assert (fitted / kept).read_bytes() == (first / kept).read_bytes()
    assert "votes" in ConfidenceModel.load(fitted / CONFIDENCE_FILE).weights
    manifest = json.loads((fitted / MANIFEST_FILE).read_text("utf-8"))
    assert manifest["started_from"] == manifest["result"]["reader"]
    assert manifest["precedents"] == 10
    card = (fitted / CARD_FILE).read_text("utf-8")
    assert "| set | 0 | 10 |" in card
    assert "those of another judge, whose card has the questions" in card
    assert "- not trained further" in card


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--beams", "nowhere.jsonl"], "'nowhere.jsonl' does not exist"),
        (["--beams", "{0}/beams-1.jsonl"], "Missing option '--held-out'"),
        (["--held-out", "{0}/other.jsonl"], "no question of --held-out has gold answers"),
        (["--held-out", "{0}/beams-1.jsonl", "--epochs", "0"], "--epochs 0 needs --start DIR"),
        (
            ["--held-out", "{0}/beams-1.jsonl", "--start", "{0}"],
            "has no precedents that can be read",
        ),
    ],
)
def test_mistakes_end_in_one_line(
    more: list[str], message: str, files: Path, demo_store: Path
) -> None:
    (files / "other.jsonl").write_text('{"id": "other", "crps": []}\n', encoding="utf-8")
    result = _train(files, demo_store, *[each.format(files) for each in more])
    assert result.exit_code == (1 if "--start" in more else 2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_two_trainings_of_one_judge_are_one_too_many(files: Path, demo_store: Path) -> None:
    # Their rows would be mixed in one file.
    with RunFolder(files / "judge").locked():
        result = _train(files, demo_store)
    assert result.exit_code == 1
    assert "another process is writing to" in result.stderr


def test_a_judge_replaces_no_file_of_the_user(files: Path, demo_store: Path) -> None:
    mine = files / "judge" / "README.md"
    mine.parent.mkdir()
    mine.write_text("mine", encoding="utf-8")
    result = _train(files, demo_store)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "judge holds README.md, and no run to resume. Choose an empty folder." in result.stderr
    assert [path.name for path in mine.parent.iterdir()] == ["README.md"]


def test_a_judge_is_not_written_into_a_folder_that_it_reads(files: Path, demo_store: Path) -> None:
    before = sorted(files.iterdir())
    held_out = ("--held-out", str(files / "beams-1.jsonl"))
    result = _train(files, demo_store, *held_out, "--output", str(files))
    assert result.exit_code == 2
    assert f"--output {files} would overwrite {files / 'set.jsonl'}, which is read (--data)" in (
        result.stderr
    )
    assert sorted(files.iterdir()) == before


def test_a_folder_that_cannot_be_made_is_no_traceback(files: Path, demo_store: Path) -> None:
    held_out, output = files / "beams-1.jsonl", files / "set.jsonl" / "judge"
    result = _train(files, demo_store, "--held-out", str(held_out), "--output", str(output))
    assert result.exit_code == 1
    assert "cannot be written to" in result.stderr
