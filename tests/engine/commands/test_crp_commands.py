import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.engine.cli import main
from kbqa.engine.files.manifest import claimed
from kbqa.engine.writing.model_choice import ModelChoice

TEXT = "Main Path:\n Jamaica -[location , country , capital]-> ?x"
OURS = "Jamaica -> location.country.capital"
KINGSTON = {"mid": "m.03yl7", "name": "Kingston"}
ROW = {"crp": OURS, "routerkgqa": TEXT, "logprob": -0.5, "tokens": 9, "topics": []}


@pytest.fixture
def generate(tmp_path: Path, small_store: Path, monkeypatch: pytest.MonkeyPatch, scripted):
    """Run `kbqa crp generate` over three questions with a scripted model, which is handed back."""
    monkeypatch.chdir(tmp_path)
    rows = [{"id": str(n), "question": f"{'so ' * n}why?"} for n in (3, 1)]
    rows.append({"id": "2", "question": "the money of Jamaica", "topic_entities": [KINGSTON]})
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def generate(*replies, options: tuple[str, ...] = (), output: str = "beams.jsonl"):
        model = scripted(*replies)
        monkeypatch.setattr(ModelChoice, "load", lambda *_: model)
        command = ["crp", "generate", "--questions", "q.jsonl", "--output", output]
        command += ["--store", str(small_store), *options]
        return CliRunner().invoke(main, command), model

    return generate


def _written() -> list[dict[str, object]]:
    rows = [json.loads(line) for line in Path("beams.jsonl").read_text("utf-8").splitlines()]
    assert all(row.pop("seconds") >= 0 for row in rows)
    return rows


def test_each_question_gets_a_row_of_paths(generate) -> None:
    result, model = generate([(TEXT, -0.5)], [], [(TEXT, -0.5), ("nonsense", -2.0)])
    assert (result.exit_code, result.output) == (0, "")
    assert model.questions == ["so why?", "so so so why?", "the money of Jamaica"]
    assert _written()[:2] == [{"id": "1", "crps": [ROW]}, {"id": "3", "crps": []}]
    assert _written()[2]["crps"] == [
        ROW,
        {"crp": None, "routerkgqa": "nonsense", "logprob": -2.0, "tokens": 1, "topics": []},
    ]


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ((), {"m.03_r3"}),
        (("--gold-entities",), {"m.03yl7"}),
        (("--decoding", "schema"), {"m.03_r3"}),
        (("--decoding", "none"), set()),
    ],
    ids=["mentioned", "gold", "schema", "no graph"],
)
def test_paths_may_start_from_the_topics(generate, options, topics) -> None:
    _, model = generate([], [], [], options=options)
    assert {topic.mid for topic in model.requests[-1].topics} == topics


def test_the_questions_are_not_written_to(generate) -> None:
    before = Path("q.jsonl").read_bytes()
    Path("link.jsonl").symlink_to("q.jsonl")
    for output in ("q.jsonl", "link.jsonl"):
        result, _ = generate(output=output)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"--output {output} would overwrite q.jsonl, which is read" in result.stderr
    assert Path("q.jsonl").read_bytes() == before


@pytest.mark.parametrize("end", ["", '{"id": "3", "cr'], ids=["between rows", "within a row"])
def test_a_file_that_is_not_complete_is_gone_on_with(generate, end: str) -> None:
    generate([(TEXT, -0.5)], [], [])
    first, *_ = Path("beams.jsonl").read_text("utf-8").splitlines()
    Path("beams.jsonl").write_text(f"{first}\n{end}", "utf-8")
    result, model = generate([], [])
    assert (result.exit_code, model.questions) == (0, ["so so so why?", "the money of Jamaica"])
    assert [row["id"] for row in _written()] == ["1", "3", "2"]


@pytest.mark.parametrize(
    ("options", "setting"), [(("--n", "2"), "n"), (("--gold-entities",), "gold_entities")]
)
def test_beams_that_were_made_otherwise_are_not_gone_on_with(generate, options, setting) -> None:
    generate([], [], [])
    result, model = generate(options=options)
    assert (result.exit_code, model.questions) == (2, [])
    assert f"beams.jsonl holds a run with other settings ({setting})" in result.stderr


def test_beams_that_another_process_is_writing_are_left_to_it(generate) -> None:
    generate([], [], [])
    with claimed(Path("beams.jsonl"), {}, {}):
        result, _ = generate()
    assert result.exit_code == 2
    assert "another process is writing to beams.jsonl" in result.stderr


def test_a_missing_folder_is_told(generate) -> None:
    result, model = generate(output="none/beams.jsonl")
    assert (result.exit_code, model.questions) == (2, [])
    assert "Error: there is no folder none" in result.stderr


def test_a_removed_level_names_its_replacement(generate) -> None:
    result, _ = generate(options=("--decoding", "grammar"))
    assert result.exit_code == 2
    assert "grammar was removed: it improved nothing. Use schema." in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--backend", "server"), "--backend server and --server URL go together"),
        (("--backend", "vllm", "--server", "http://x/v1"), "go together"),
    ],
    ids=["no server", "a server too many"],
)
def test_a_back_end_that_cannot_do_what_is_asked_is_told(generate, options, message) -> None:
    result, _ = generate(options=options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_server_that_does_not_answer_is_told(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="needs the llm extra")
    questions = tmp_path / "q.jsonl"
    questions.write_text(json.dumps({"id": "1", "question": "why?"}))
    arguments = ["--questions", questions, "--output", tmp_path / "beams.jsonl"]
    command = ["crp", "generate", *map(str, arguments), "--server", "http://127.0.0.1:9/v1"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert "http://127.0.0.1:9/v1" in result.stderr
    assert not (tmp_path / "beams.jsonl").exists()
