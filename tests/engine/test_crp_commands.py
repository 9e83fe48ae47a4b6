import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.engine.options import ModelChoice

TEXT = "Main Path:\n Jamaica -[location , country , capital]-> ?x"
OURS = "Jamaica -> location.country.capital"
ROW = {"crp": OURS, "routerkgqa": TEXT, "logprob": -0.5, "tokens": 9}


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripted):
    """Run `kbqa crp generate` over three questions with a scripted model."""
    monkeypatch.chdir(tmp_path)
    rows = [{"id": str(n), "question": f"{'so ' * n}why?"} for n in (3, 1, 2)]
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def generate(*replies, output: str = "beams.jsonl") -> tuple[Result, list[str]]:
        model = scripted(*replies)
        monkeypatch.setattr(ModelChoice, "load", lambda _: model)
        result = CliRunner().invoke(
            main, ["crp", "generate", "--questions", "q.jsonl", "--output", output]
        )
        return result, model.questions

    return generate


def _written() -> list[dict[str, object]]:
    return [json.loads(line) for line in Path("beams.jsonl").read_text("utf-8").splitlines()]


def test_each_question_gets_a_row_of_paths(generate) -> None:
    result, asked = generate([(TEXT, -0.5)], [], [(TEXT, -0.5), ("nonsense", -2.0)])
    assert (result.exit_code, result.output) == (0, "")
    assert asked == ["so why?", "so so why?", "so so so why?"]
    assert _written()[:2] == [{"id": "1", "crps": [ROW]}, {"id": "2", "crps": []}]
    assert _written()[2]["crps"] == [
        ROW,
        {"crp": None, "routerkgqa": "nonsense", "logprob": -2.0, "tokens": 1},
    ]


@pytest.mark.parametrize("end", ["", '{"id": "2", "cr'], ids=["between rows", "within a row"])
def test_a_file_that_is_not_complete_is_gone_on_with(generate, end: str) -> None:
    Path("beams.jsonl").write_text(json.dumps({"id": "1", "crps": [ROW]}) + f"\n{end}")
    result, asked = generate([], [])
    assert (result.exit_code, asked) == (0, ["so so why?", "so so so why?"])
    assert [row["id"] for row in _written()] == ["1", "2", "3"]


def test_a_missing_folder_is_told(generate) -> None:
    result, asked = generate(output="none/beams.jsonl")
    assert (result.exit_code, asked) == (2, [])
    assert "Error: there is no folder none" in result.stderr
