"""Files of the engine: JSON, manifests, and a cache that many processes share."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kbqa.engine.files import TextCache, claimed, discard, read_json
from kbqa.sparql.errors import InputError, ModelError

RUN = """\
import sys
from pathlib import Path
from kbqa.engine.files import claimed
from kbqa.sparql.errors import InputError

output, order = Path(sys.argv[1]), sys.argv[2]
try:
    with claimed(output, {"order": order}, {}) as is_begun:
        print("resumed" if is_begun else "begun", flush=True)
        sys.stdin.readline()
        output.open("a").write(order + "\\n")
except InputError as error:
    print(error, flush=True)
"""

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.fixture
def start(output: Path) -> Iterator[Start]:
    """Start processes that claim `output` and write a row when a line is sent to them."""
    started: list[subprocess.Popen[str]] = []

    def start(order: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(output), order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def order_in_manifest(output: Path) -> str:
    return str(json.loads(output.with_suffix(".manifest.json").read_text("utf-8"))["order"])


def test_the_loser_of_two_processes_leaves_the_winners_manifest(start: Start, output: Path) -> None:
    winner = start("full-first")
    assert first_line(winner) == "begun\n"
    assert not output.exists()
    loser = start("beam-first")
    assert "another process is writing to" in first_line(loser)
    assert order_in_manifest(output) == "full-first"
    winner.communicate("go\n")
    assert output.read_text("utf-8") == "full-first\n"
    assert order_in_manifest(output) == "full-first"


def test_of_many_processes_one_writes(start: Start, output: Path) -> None:
    processes = {str(number): start(str(number)) for number in range(6)}
    lines = {order: first_line(process) for order, process in processes.items()}
    [winner] = [order for order, line in lines.items() if line == "begun\n"]
    assert all("another process" in line for order, line in lines.items() if order != winner)
    assert order_in_manifest(output) == winner


def test_a_run_that_was_killed_before_its_first_row_is_begun_again(
    start: Start, output: Path
) -> None:
    killed = start("full-first")
    assert first_line(killed) == "begun\n"
    killed.kill()
    killed.wait()
    with claimed(output, {"order": "beam-first"}, {}) as is_begun:
        assert not is_begun
    assert order_in_manifest(output) == "beam-first"


def test_a_manifest_that_was_cut_off_before_the_first_row_is_written_again(output: Path) -> None:
    output.with_suffix(".manifest.json").write_text('{\n  "schema_', encoding="utf-8")
    with claimed(output, {"order": "full-first"}, {}) as is_begun:
        assert not is_begun
    assert order_in_manifest(output) == "full-first"


@pytest.mark.parametrize("content", ['{"name": "mine"}\n', "\x00", "{ }"])
def test_another_file_with_the_name_of_a_manifest_is_not_replaced(
    output: Path, content: str
) -> None:
    mine = output.with_suffix(".manifest.json")
    mine.write_text(content, encoding="utf-8")
    with (
        pytest.raises(InputError, match=r"run\.manifest\.json is not a manifest of kbqa"),
        claimed(output, {}, {}),
    ):
        pass
    output.write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.manifest\.json is not a manifest of kbqa"):
        discard(output)
    assert mine.read_text("utf-8") == content
    assert output.exists()


def test_settings_are_compared_as_json(output: Path) -> None:
    with claimed(output, {"without": ("a", "b")}, {"where": "here"}):
        output.write_text("{}\n", encoding="utf-8")
    with claimed(output, {"without": ("a", "b")}, {"where": "there"}) as is_begun:
        assert is_begun
    with (
        pytest.raises(InputError, match=r"other settings \(without\)"),
        claimed(output, {"without": ("a",)}, {}),
    ):
        pass


def test_a_manifest_says_when_a_run_began_and_ended_and_how_long_it_ran(output: Path) -> None:
    manifest = output.with_suffix(".manifest.json")
    for _ in range(2):
        with claimed(output, {}, {}):
            output.write_text("{}\n", encoding="utf-8")
            time.sleep(0.2)
    times = json.loads(manifest.read_text("utf-8"))["times"]
    assert times["began"] <= times["ended"] and times["wall_s"] >= 0.4
    older = {"schema_version": 1, "n": 5}
    manifest.write_text(json.dumps(older), encoding="utf-8")
    with claimed(output, {}, {}) as is_begun:
        assert is_begun
    assert json.loads(manifest.read_text("utf-8")) == older


def test_rows_without_a_manifest_get_none(output: Path) -> None:
    output.write_text("precious\n", encoding="utf-8")
    with pytest.raises(InputError, match="not a resumable run"), claimed(output, {}, {}):
        pass
    assert [path.name for path in output.parent.iterdir()] == ["run.jsonl"]


def test_rows_that_another_process_writes_are_not_discarded(start: Start, output: Path) -> None:
    output.with_suffix(".manifest.json").touch()
    holder = start("full-first")
    assert first_line(holder) == "begun\n"
    with pytest.raises(InputError, match="another process"):
        discard(output)
    holder.communicate("go\n")
    discard(output)
    assert not output.exists()


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="cannot be written"),
        claimed(tmp_path / "none" / "run.jsonl", {}, {}),
    ):
        pass


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
        "from kbqa.engine.files import TextCache\n"
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
