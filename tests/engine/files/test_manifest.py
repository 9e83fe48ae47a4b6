import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbqa.engine.files.manifest import claimed, discard
from kbqa.sparql.errors import InputError

RUN = """\
import sys
from pathlib import Path
from kbqa.engine.files.manifest import claimed
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
