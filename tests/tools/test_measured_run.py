import sys
from pathlib import Path

import pytest

from tools.bench.measured_run import disk_bytes, machine, run_measured

CHILD = "x = b'x' * 200_000_000; import time; time.sleep(1)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}]); print('done')"


def test_memory_and_time_of_children_count() -> None:
    measured = run_measured([sys.executable, "-c", PARENT])
    assert measured.output == "done\n"
    assert measured.wall_s > 1 > measured.cpu_s > 0
    assert 200 < measured.peak_mb < 300


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="code 3: oh no"):
        run_measured([sys.executable, "-c", "print('oh no'); raise SystemExit(3)"])


def test_disk_counts_all_files_below_a_folder(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/file").write_bytes(b"12345")
    (tmp_path / "file").write_bytes(b"123")
    assert disk_bytes(tmp_path) == 8


def test_the_machine_is_told_in_a_line() -> None:
    assert "GB memory" in machine()
    assert "\n" not in machine()
