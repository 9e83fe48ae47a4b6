import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_runs import make_failed_row, make_row, write_run

from kbqa.engine.cli import main
from kbqa.engine.evaluation.predictions import FORMS

ROWS = [
    make_row("a", ["m.1", "m.2", "m.1"]),
    make_row("b", ["m.1", "m.2"], count=36),
    make_row("c", boolean=False),
    make_row("d"),
    make_failed_row("e"),
]
VALUES = {"a": ["m.1", "m.2"], "b": ["36"], "c": ["false"], "d": []}
EXPECTED = {
    "webqsp": [{"QuestionId": id_, "Answers": values} for id_, values in VALUES.items()],
    "cwq": [
        {"ID": "a", "answer": "name of m.1"},
        {"ID": "b", "answer": "36"},
        {"ID": "c", "answer": "false"},
        {"ID": "d", "answer": ""},
        {"ID": "e", "answer": ""},
    ],
    "grailqa": {
        id_: {"logical_form": "", "answer": values} for id_, values in {**VALUES, "e": []}.items()
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_answers_are_written_as_the_official_scripts_read_them(form: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, ROWS)
    done = CliRunner().invoke(main, ["report", str(run), "--predictions", form])
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout) == EXPECTED[form]


def test_names_are_in_lower_case_for_cwq(tmp_path: Path) -> None:
    row = make_row("a", ["m.1"])
    row["answers"][0]["name"] = " Genève "
    run = write_run(tmp_path, [row])
    done = CliRunner().invoke(main, ["report", str(run), "--predictions", "cwq"])
    assert json.loads(done.stdout) == [{"ID": "a", "answer": "genève"}]
