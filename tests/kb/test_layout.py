import json
import multiprocessing
from pathlib import Path

import pytest

from kbqa.kb.layout import write_safely


def _write_often(path: Path, text: str) -> None:
    for _ in range(50):
        write_safely(path, text)


def test_two_processes_that_write_one_file_leave_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    texts = [json.dumps([number] * 20_000) for number in range(2)]
    write_safely(path, texts[0])
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_often, args=(path, text)) for text in texts]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_text(encoding="utf-8") in texts
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_safely(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_safely(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
