"""What was made of texts, on disk: found again, by many at once, and done without if it fails."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kbqa.engine.files.text_cache import TextCache

VECTORS = {"person gender": b"abcd", "": b"", "名前\0": b"efgh"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is to be, in a folder that is not there yet."""
    return tmp_path / "cache" / "vectors.sqlite"


def test_what_is_written_is_found_by_others(path: Path) -> None:
    TextCache(path, "vectors").write(VECTORS)
    assert TextCache(path, "vectors").read([*VECTORS, "unseen", "person"]) == VECTORS


def test_nothing_is_found_and_nothing_made_where_there_is_no_file(path: Path) -> None:
    assert TextCache(path, "vectors").read(["person gender"]) == {}
    assert not path.parent.exists()


def test_more_texts_are_found_than_one_query_takes(path: Path) -> None:
    vectors = {f"text {i}": str(i).encode() for i in range(2345)}
    TextCache(path, "vectors").write(vectors)
    assert TextCache(path, "vectors").read(list(vectors)) == vectors


def test_the_first_vector_of_a_text_stays(path: Path) -> None:
    cache = TextCache(path, "vectors")
    cache.write({"text": b"first"})
    cache.write({"text": b"second", "other": b"third"})
    assert cache.read(["text", "other"]) == {"text": b"first", "other": b"third"}


@pytest.mark.parametrize("kept_bytes", [0, 100, 5000], ids=["header", "page", "table"])
def test_a_broken_file_is_told_and_made_anew(
    path: Path, kept_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = {f"text {i}": b"v" * 100 for i in range(500)}
    TextCache(path, "vectors").write(vectors)
    path.write_bytes(path.read_bytes()[:kept_bytes] + b"no database" * 1000)
    cache = TextCache(path, "vectors")
    assert cache.read(list(vectors)) == {}
    assert [f"{path} is damaged" in record.getMessage() for record in caplog.records] == [True]
    cache.write(vectors)
    assert cache.read(list(vectors)) == vectors
    assert len(caplog.records) == 1


def test_another_table_is_left_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE made_of (size)")
    content = path.read_bytes()
    cache = TextCache(path, "vectors")
    cache.write(VECTORS)
    assert cache.read(list(VECTORS)) == {}
    assert path.read_bytes() == content
    assert [str(path) in record.getMessage() for record in caplog.records] == [True]


def test_a_folder_that_cannot_be_made_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    cache = TextCache(tmp_path / "file" / "vectors.sqlite", "vectors")
    for _ in range(3):
        cache.write(VECTORS)
        assert cache.read(list(VECTORS)) == {}
    assert ["vectors are not cached" in record.getMessage() for record in caplog.records] == [True]


def test_processes_write_at_once(path: Path) -> None:
    write = (
        "import sys; from pathlib import Path\n"
        "from kbqa.engine.files.text_cache import TextCache\n"
        "cache = TextCache(Path(sys.argv[1]), 'vectors')\n"
        "for i in range(int(sys.argv[2]), 100): cache.write({f'text {i}': b'%d' % i})\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", write, str(path), start], stderr=subprocess.PIPE, text=True
        )
        for start in ("0", "30", "60")
    ]
    assert [writer.communicate(timeout=60)[1] for writer in writers] == [""] * 3
    expected = {f"text {i}": b"%d" % i for i in range(100)}
    assert TextCache(path, "vectors").read(list(expected)) == expected


def test_a_damaged_table_is_rebuilt_though_sqlite_cannot_name_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    TextCache(path, "vectors").write(VECTORS)
    # Python cannot decode SQLite's message, which quotes the damaged statement.
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE made_of", b"CREATE\xffTABLE made_of"))
    cache = TextCache(path, "vectors")
    assert cache.read(list(VECTORS)) == {}
    assert f"{path} is damaged" in caplog.text
    cache.write(VECTORS)
    assert cache.read(list(VECTORS)) == VECTORS
