"""The best texts of two back ends, as files of `kbqa crp generate`."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.errors import InputError
from tools.score.backends import compare, main


def _beams(path: Path, texts: Mapping[str, str | None], logprob: float = -1.0) -> Path:
    rows = [
        {"id": id_, "crps": [{"routerkgqa": text, "logprob": logprob, "tokens": 4}] * bool(text)}
        for id_, text in texts.items()
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def _run(*files: Path) -> Result:
    return CliRunner().invoke(main, [str(file) for file in files])


def test_differences_are_listed_with_their_log_probabilities(tmp_path: Path) -> None:
    one = _beams(tmp_path / "one.jsonl", {"1": "a", "2": "b", "3": None, "4": "only here"})
    same = _beams(tmp_path / "same.jsonl", {"1": "a", "2": "b", "3": None}, -1.25)
    other = _beams(tmp_path / "other.jsonl", {"2": "c", "1": "a", "3": "d"}, -2.0)
    done = _run(one, same, other)
    assert done.exit_code == 1
    assert (
        "one.jsonl and same.jsonl: the same best text for 3 of 3, 100.0 % [43.9, 100.0]; "
        "their log-probabilities differ by 0.2500 at most\n"
        "one.jsonl and other.jsonl: the same best text for 1 of 3, 33.3 % [6.1, 79.2]; "
        "their log-probabilities differ by 1.0000 at most\n"
    ) in done.stdout
    assert "\n2\n   -1.0000    4 tokens  'b'\n   -2.0000    4 tokens  'c'\n" in done.stdout
    assert "\n3\n  (nothing)\n   -2.0000    4 tokens  'd'\n" in done.stdout


@pytest.mark.parametrize(("different", "exit_code"), [(1, 0), (2, 1)], ids=["95 %", "90 %"])
def test_95_in_100_must_agree(tmp_path: Path, different: int, exit_code: int) -> None:
    one = _beams(tmp_path / "one.jsonl", {str(id_): "a" for id_ in range(20)})
    other = _beams(
        tmp_path / "other.jsonl", {str(id_): "b" if id_ < different else "a" for id_ in range(20)}
    )
    assert _run(one, other).exit_code == exit_code


def test_files_of_other_questions_are_refused() -> None:
    with pytest.raises(InputError, match="no question in common"):
        compare({"1": [Candidate("a", -1.0, 1)]}, {"2": []})
