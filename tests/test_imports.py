"""Imports point one way, heavy ones wait, and every package is listed for the wheel."""

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "sparql": {"sparql"},
    "kb": {"sparql", "kb"},
    "engine": {"sparql", "kb", "engine"},
    "training": {"sparql", "kb", "engine", "training"},
}
ENGINE_ROOMS = [
    "config",
    "deadline",
    "files",
    "chat",
    "questions",
    "linking",
    "exploring",
    "writing",
    "embedding",
    "display",
    "answer",
    "answer_lines",
    "method",
    "retrieval",
    "deciding",
    "running",
    "methods",
    "methods.settings",
    "resources",
    "methods.modules",
    "engine",
    "methods.*",
    "evaluation",
    "serve",
    "commands",
    "cli",
    "facade",
]
"""The rooms of the engine, from the ground up: each may import those before it. Every method is a
room `methods.*`; the table of methods and their settings are below them."""
SERVERS = {"fastapi", "jinja2", "mcp", "prometheus_client", "starlette", "uvicorn"}
HEAVY = SERVERS | {
    "SPARQLWrapper",
    "matplotlib",
    "openai",
    "peft",
    "rdflib",
    "sentence_transformers",
    "torch",
    "transformers",
    "vllm",
}
MODULES = sorted(path for folder in ALLOWED for path in (ROOT / folder).rglob("*.py"))
IDS = [str(path.relative_to(ROOT)) for path in MODULES]


def _imported(nodes: Iterator[ast.AST] | list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_imports_point_one_way(path: Path) -> None:
    folder = path.relative_to(ROOT).parts[0]
    names = _imported(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    ours = {name.split(".")[1] for name in names if name.startswith("kbqa.")}
    if path.parent.name == "facade":
        assert ours <= set(ALLOWED)
    else:
        assert ours <= ALLOWED[folder]
        assert "kbqa" not in names, "the façade is for users"


def _room(name: str) -> int:
    """Find the place in `ENGINE_ROOMS` of a module by its dotted name."""
    parts = name.split(".")[2:]
    rooms = [".".join(parts[:2]), f"{parts[0]}.*" if parts[1:] else "", parts[0]]
    return next(ENGINE_ROOMS.index(room) for room in rooms if room in ENGINE_ROOMS)


ENGINE = [path for path in MODULES if path.relative_to(ROOT).parts[0] == "engine"]


@pytest.mark.parametrize("path", ENGINE, ids=[str(path.relative_to(ROOT)) for path in ENGINE])
def test_the_rooms_of_the_engine_import_those_below_them(path: Path) -> None:
    own = "kbqa." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    if own == "kbqa.engine.__init__":
        return
    names = _imported(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    above = {
        name
        for name in names
        if name.startswith("kbqa.engine.") and _room(name) > _room(own.removesuffix(".__init__"))
    }
    assert not above


def test_folders_hold_about_a_dozen_files() -> None:
    files = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert {str(folder): n for folder, n in files.items() if n > 13} == {}


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_heavy_imports_stand_inside_functions(path: Path) -> None:
    names = _imported(ast.parse(path.read_text(encoding="utf-8")).body)
    # FastAPI reads annotations at run time. The commands import this room inside functions.
    light = SERVERS if path.is_relative_to(ROOT / "engine/serve") else set()
    if path == ROOT / "engine/writing/backends/vllm_steering.py":
        light = {"vllm"}  # which imports this module itself, for the classes in it
    assert not {name.split(".")[0] for name in names} & (HEAVY - light)


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_only_functions_import_the_server(path: Path) -> None:
    names = _imported(ast.parse(path.read_text(encoding="utf-8")).body)
    if not path.is_relative_to(ROOT / "engine/serve"):
        assert not {name for name in names if name.startswith("kbqa.engine.serve")}


@pytest.mark.parametrize("statement", ["import kbqa", "import kbqa.engine.cli"])
def test_import_is_light(statement: str) -> None:
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    assert not loaded & (HEAVY | {"numpy", "pydantic", "pyoxigraph", "scipy", "sqlite3"})


@pytest.mark.parametrize(
    "program", ["kb/store/worker_process.py", "kb/loading/writing/store_writer_process.py"]
)
def test_the_processes_of_a_store_import_nothing_of_ours(program: str) -> None:
    names = _imported(ast.walk(ast.parse((ROOT / program).read_text("utf-8"))))
    assert not {name for name in names if name.partition(".")[0] == "kbqa"}


def test_every_package_is_listed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(settings["tool"]["setuptools"]["packages"])
    folders = {path.parent for path in MODULES if path.name == "__init__.py"}
    found = {
        "kbqa" if folder.name == "facade" else "kbqa." + ".".join(folder.relative_to(ROOT).parts)
        for folder in folders
    }
    assert found - {"kbqa"} == listed - {"kbqa"}
