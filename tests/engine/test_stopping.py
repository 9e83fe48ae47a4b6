"""Commands that are stopped by a signal: they end at once, and leave nothing behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kbqa.kb.layout import StoreLayout
from kbqa.kb.loading.load import load_freebase
from kbqa.sparql.terms import FREEBASE_NS
from tools.store_content import store_content

SIGNALS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)


def _stop(
    command: Sequence[str], number: int, is_time: Callable[[int], bool], **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Send a signal to a command when it is time."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kbqa.engine.cli", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    while not is_time(process.pid):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _handles_sigterm(pid: int) -> bool:
    """Whether a process has got so far that it handles SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.split("SigCgt:")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1)


@SIGNALS
def test_a_demo_graph_that_is_being_built_leaves_nothing(
    number: int, code: int, tmp_path: Path
) -> None:
    def is_building(_: int) -> bool:
        return bool(list(tmp_path.glob("demo-*/building")))

    run = _stop(["sparql", "ASK {}"], number, is_building, KBQA_CACHE=str(tmp_path))
    assert (run.returncode, run.stdout) == (code, "")
    assert "Traceback" not in run.stderr
    assert list(tmp_path.iterdir()) == []


@SIGNALS
def test_a_load_is_resumed(number: int, code: int, tmp_path: Path) -> None:
    dump, store = tmp_path / "dump.nt", tmp_path / "store"
    dump.write_text(
        "".join(
            f'<{FREEBASE_NS}m.0{n}>\t<{FREEBASE_NS}type.object.name>\t"Entity {n}"@en\t.\n'
            for n in range(20_000)
        ),
        encoding="utf-8",
    )
    command = ["load-freebase", str(dump), "--store", str(store), "--shard-triples", "1000"]
    checkpoint = StoreLayout(StoreLayout(store).building).checkpoint
    run = _stop(command, number, lambda _: checkpoint.exists())
    assert run.returncode == code
    assert "Traceback" not in run.stderr
    assert not StoreLayout(store).is_finished
    subprocess.run(
        [sys.executable, "-m", "kbqa.engine.cli", *command], check=True, capture_output=True
    )
    load_freebase([dump], tmp_path / "alone")
    assert store_content(store) == store_content(tmp_path / "alone")


@SIGNALS
def test_a_command_that_reads_questions_ends(number: int, code: int, small_store: Path) -> None:
    run = _stop(
        ["ask", "-", "--store", str(small_store), "--set", "write=no"],
        number,
        _handles_sigterm,
    )
    assert run.returncode == code
    assert "Traceback" not in run.stderr


@SIGNALS
def test_an_mcp_server_ends(number: int, code: int, small_store: Path) -> None:
    pytest.importorskip("mcp", reason="needs the serve extra")
    run = _stop(
        ["mcp", "--store", str(small_store), "--set", "write=no"],
        number,
        _handles_sigterm,
    )
    assert run.returncode in (code, 0)
    assert not re.search("Traceback", run.stderr)
