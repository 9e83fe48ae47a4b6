from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kbqa.engine.files.json_file import read_json
from kbqa.sparql.errors import InputError, ModelError


@dataclass(frozen=True, slots=True)
class Weights:
    bias: float
    weights: Mapping[str, float] = field(default_factory=dict)


def read(path: Path) -> Weights:
    return read_json(path, Weights, ModelError, schema_version=1)


def test_a_dataclass_is_read_without_the_fields_that_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text('{"schema_version": 1, "bias": 2, "weights": {"a": 0.5}, "old": []}')
    assert read(path) == Weights(2.0, {"a": 0.5})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cannot be read: EOF while parsing"),
        ("[" * 100_000, "cannot be read: recursion limit exceeded"),
        ("\x00", "cannot be read: expected value"),
        ("[1]", "cannot be read: it is not a JSON object"),
        ('{"bias": 1}', "has schema_version None, and this kbqa reads version 1"),
        ('{"schema_version": 2}', "has schema_version 2, and this kbqa reads version 1"),
        ('{"schema_version": 1}', "cannot be read: bias: Field required"),
        ('{"schema_version": 1, "bias": "x"}', "cannot be read: bias: Input should be a valid"),
        ('{"schema_version": 1, "bias": NaN}', "cannot be read: expected value"),
        ('{"schema_version": 1, "bias": 1, "weights": {"a": []}}', "weights.a: Input should be"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "weights.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path} ")
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_or_unreadable_file_raises_the_callers_error(tmp_path: Path) -> None:
    def sentence(problem: str) -> InputError:
        return InputError(f"no run: {problem}. Choose another.")

    for path, problem in ((tmp_path / "none", "is missing"), (tmp_path, "cannot be read")):
        with pytest.raises(InputError, match=f"no run: .*{problem}.*Choose another"):
            read_json(path, Weights, sentence, schema_version=1)
