"""The file of the prompt in an adapter's folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.engine.writing.generate import CHATML, PLAIN, PROMPT_FILE, load_prompt_format
from kbqa.sparql.errors import ModelError


@pytest.mark.parametrize(
    "content",
    [
        b'{"template": -1, "crp_format": "routerkgqa"}',
        b'{"template": ["x"], "crp_format": "routerkgqa"}',
        b'{"template": "\xff", "crp_format": "routerkgqa"}',
        b"[" * 200_000,
        b"[]",
        b'{"template": "x", "crp_format": "routerkgqa", "relations": -1}',
        b'{"template": "x", "crp_format": "routerkgqa", "relations": true}',
    ],
    ids=["a number", "a list", "not UTF-8", "nested without end", "no object", "-1", "true"],
)
def test_a_damaged_prompt_is_an_error_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / PROMPT_FILE).write_bytes(content)
    with pytest.raises(ModelError, match=f"{PROMPT_FILE} cannot be read"):
        load_prompt_format(tmp_path)


def test_a_prompt_suggests_as_many_relations_as_its_format_says() -> None:
    relations = ("a.b.c", "d.e.f", "g.h.i")
    two = replace(PLAIN, relations=2)
    assert two.render("who?", relations) == (
        "Question: who?\nRelations: a.b.c d.e.f\nReasoning path:\n"
    )
    assert two.render("who?") == PLAIN.render("who?", relations) == PLAIN.render("who?")


def test_a_format_is_read_as_it_was_saved_and_older_files_suggest_nothing(tmp_path: Path) -> None:
    saved = replace(CHATML, crp_format="extended", relations=8)
    saved.save(tmp_path)
    assert load_prompt_format(tmp_path) == saved
    file = tmp_path / PROMPT_FILE
    older = file.read_text(encoding="utf-8").replace(',\n  "relations": 8', "")
    file.write_text(older, encoding="utf-8")
    assert load_prompt_format(tmp_path) == replace(saved, relations=0)
