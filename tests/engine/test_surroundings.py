"""Commands where the surroundings lack something: a home, descriptors, a cache of their own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

NAMES = ["entities", "Jamaica", "--json"]


def _start(
    *command: str, environment: Mapping[str, str] | None = None, descriptors: int | None = None
) -> "subprocess.Popen[str]":
    limit = f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({descriptors}, {descriptors}))"
    code = f"{limit if descriptors else ''}\nfrom kbqa.engine.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=None if environment is None else dict(environment),
    )


def _run(*command: str, **how: object) -> "subprocess.CompletedProcess[str]":
    process = _start(*command, **how)
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


@pytest.mark.parametrize("home", [{}, {"HOME": "/nonexistent"}], ids=["no HOME", "no such folder"])
def test_no_home_is_needed_for_a_store(home: Mapping[str, str], small_store: Path) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    run = _run(*NAMES, "--store", str(small_store), environment=kept | home)
    assert (run.returncode, run.stderr) == (0, "")
    assert "m.03_r3" in run.stdout


def test_few_descriptors_are_enough_to_read(small_store: Path) -> None:
    query = "SELECT ?x { ?x ns:type.object.name 'Jamaica'@en }"
    run = _run("sparql", query, "--store", str(small_store), descriptors=110)
    assert (run.returncode, run.stderr) == (0, "")
    assert "m.03_r3" in run.stdout


@pytest.mark.parametrize("descriptors", [14, 40])
def test_too_few_descriptors_are_an_error_in_one_line(
    descriptors: int, small_dump: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    run = _run("load-freebase", str(small_dump), "--store", str(store), descriptors=descriptors)
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert "descriptors" in run.stderr or "Too many open files" in run.stderr
    assert not (store / "manifest.json").exists()


def test_processes_that_build_the_demo_graph_at_once_share_it(tmp_path: Path) -> None:
    environment = {**os.environ, "KBQA_CACHE": str(tmp_path)}
    runs = [_start("entities", "Kenya", "--json", environment=environment) for _ in range(2)]
    found = {(*run.communicate(), run.returncode) for run in runs}
    assert len(found) == 1
    ((stdout, stderr, code),) = found
    assert (code, stderr) == (0, "")
    assert "Kenya" in stdout
    assert len(list(tmp_path.iterdir())) == 1
