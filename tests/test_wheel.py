"""The wheel holds all of kbqa and nothing else, and works where nothing but it is installed."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("engine", "kb", "sparql", "training")
NOT_SHIPPED = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build")


class Built(NamedTuple):
    tree: Path
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A source distribution of a copy of the checkout, and the wheel that is built from it."""
    directory = tmp_path_factory.mktemp("dist")
    tree = directory / "tree"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*NOT_SHIPPED))
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, tree)
    [sdist], [wheel] = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return Built(tree, sdist, wheel)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `kbqa` of an environment with the wheel and its core dependencies only."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    _run(sys.executable, "-m", "venv", "--without-pip", environment)
    # Python compiles what is imported; pip would compile all of every dependency.
    pip = [sys.executable, "-m", "pip", "--python", environment / "bin" / "python"]
    _run(*pip, "install", "--quiet", "--no-compile", built.wheel)
    return environment / "bin" / "kbqa"


def _run(*command: str | Path) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def _kbqa(program: Path, directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [program, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_wheel_holds_every_file_of_the_folders(built: Built) -> None:
    expected = {
        f"kbqa/{path.relative_to(built.tree).as_posix()}".replace("kbqa/engine/facade/", "kbqa/")
        for folder in FOLDERS
        for path in (built.tree / folder).rglob("*")
        if path.is_file()
    }
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.split("/")[0].endswith("dist-info")}
    assert names == expected
    assert {"kbqa/py.typed", "kbqa/kb/demo/demo.nt.xz", "kbqa/kb/demo/LGPL-2.1.txt"} <= names


def test_wheel_holds_the_licences(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        licences = {
            name.split("/licenses/")[1] for name in wheel.namelist() if "/licenses/" in name
        }
    assert licences == {"LICENSE", "kb/demo/SOURCES.md", "kb/demo/LGPL-2.1.txt"}


def test_sdist_holds_what_testing_needs(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    expected = {
        path.relative_to(built.tree).as_posix()
        for folder in (*FOLDERS, "deploy", "docs", "tests")
        for path in (built.tree / folder).rglob("*")
        if path.is_file()
    }
    assert expected <= names
    pages = {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "README.md", "SECURITY.md"}
    assert pages | {".ci/run", ".ci/versions", "LICENSE", "Makefile"} <= names


def test_version(installed: Path, tmp_path: Path) -> None:
    run = _kbqa(installed, tmp_path, "--version")
    assert (run.returncode, run.stdout.split()[0], run.stderr) == (0, "kbqa", "")


def test_entities_of_the_demo_graph(installed: Path, tmp_path: Path) -> None:
    run = _kbqa(installed, tmp_path, "entities", "Kenya", "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)[0]["name"] == "Kenya"


def test_sparql_on_the_demo_graph(installed: Path, tmp_path: Path) -> None:
    run = _kbqa(installed, tmp_path, "sparql", 'ASK { ?x ns:type.object.name "Kenya"@en }')
    assert (run.returncode, run.stdout) == (0, "true\n"), run.stderr


def test_asking_says_what_to_install(installed: Path, tmp_path: Path) -> None:
    run = _kbqa(installed, tmp_path, "ask", "what is the largest city in Kenya?")
    assert (run.returncode, run.stdout) == (1, "")
    [line] = run.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "pip install" in line
    assert "kbqa[cpu]" in line


def test_nothing_was_written_beside_the_cache(installed: Path, tmp_path: Path) -> None:
    _kbqa(installed, tmp_path, "entities", "Kenya")
    assert not list(tmp_path.iterdir())
