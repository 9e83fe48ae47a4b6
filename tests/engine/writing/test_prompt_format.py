"""The file of the prompt in an adapter's folder."""

from pathlib import Path

import pytest

from kbqa.engine.writing.prompt import PROMPT_FILE, load_prompt_format
from kbqa.sparql.errors import ModelError


@pytest.mark.parametrize(
    "content",
    [
        b'{"template": -1, "crp_format": "routerkgqa"}',
        b'{"template": ["x"], "crp_format": "routerkgqa"}',
        b'{"template": "\xff", "crp_format": "routerkgqa"}',
        b"[" * 200_000,
        b"[]",
    ],
    ids=["a number", "a list", "not UTF-8", "nested without end", "no object"],
)
def test_a_damaged_prompt_is_an_error_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / PROMPT_FILE).write_bytes(content)
    with pytest.raises(ModelError, match=f"{PROMPT_FILE} cannot be read"):
        load_prompt_format(tmp_path)
