"""Imports point one way, heavy ones wait, and the house stays as small as it is."""

import ast
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import networkx
import pytest

from kbqa.sparql.crp import Order, Test

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "sparql": {"sparql"},
    "kb": {"sparql", "kb"},
    "engine": {"sparql", "kb", "engine"},
    "training": {"sparql", "kb", "engine", "training"},
}
ENGINE_ROOMS = [
    "cli",
    "files",
    "chat",
    "questions",
    "linking",
    "graph_walk",
    "writing",
    "embedding",
    "display",
    "answer",
    "asked",
    "retrieval",
    "deciding",
    "running",
    "conversation",
    "methods",
    "engine",
    "methods.*",
    "evaluation",
    "serve",
    "commands",
    "facade",
]
"""The rooms of the engine, from the ground up: each may import those before it. Every method is a
room `methods.*`; the table of methods and their settings are below them."""
SERVERS = {"fastapi", "jinja2", "mcp", "prometheus_client", "starlette", "uvicorn"}
HEAVY = SERVERS | {
    "SPARQLWrapper",
    "matplotlib",
    "numpy",
    "openai",
    "peft",
    "rdflib",
    "safetensors",
    "scipy",
    "sentence_transformers",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
}
TYPE_CIRCLES: list[set[str]] = []
"""Modules that name each other's types, but import each other for the type checker alone."""

TWICE = {
    "Candidate": 2,
}
"""Classes that share a name, and how many do. No name is added."""

LIMITS = {
    "product files": 172,
    "product lines": 57_800,
    "lines of docstrings, per cent": 13.22,
    "product files with one importer": 21,
    "most files that name a kind of constraint": 8,
    "tools lines": 9_000,
}
"""How large the house may be: lower a limit when its figure falls."""

MODULES = sorted(path for folder in ALLOWED for path in (ROOT / folder).rglob("*.py"))
ENGINE = [path for path in MODULES if path.is_relative_to(ROOT / "engine")]


class Import(NamedTuple):
    """An import: the module that stands in it, and the one meant if it imports a submodule."""

    module: str
    target: str
    when: Literal["at once", "in a function", "for types"]


def _path_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _name(path: Path) -> str:
    """Return the dotted name of a module."""
    name = "kbqa." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__").replace("kbqa.engine.facade", "kbqa")


NAMES = {_name(path): path for path in MODULES}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imports(path: Path) -> list[Import]:
    return list(_imports_of(_tree(path), "at once"))


def _imports_of(
    node: ast.AST, when: Literal["at once", "in a function", "for types"]
) -> Iterator[Import]:
    match node:
        case ast.Import(names):
            yield from (Import(alias.name, alias.name, when) for alias in names)
        case ast.ImportFrom(module, names, level):
            base = "." * level + (module or "")
            for alias in names:
                target = f"{base}.{alias.name}"
                yield Import(base, target if target in NAMES else base, when)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            when = "in a function" if when == "at once" else when
        case ast.If(ast.Name("TYPE_CHECKING")):
            when = "for types"
    for child in ast.iter_child_nodes(node):
        yield from _imports_of(child, when)


def _modules(path: Path, *, at_once: bool = False) -> set[str]:
    """Return the modules that a file imports, or those whose import no function delays."""
    imports = [one for one in _imports(path) if not at_once or one.when == "at once"]
    return {name for one in imports for name in (one.module, one.target)}


def test_imports_are_absolute() -> None:
    relative = {_path_name(path) for path in MODULES for name in _modules(path) if name[0] == "."}
    assert relative == set()


def test_imports_point_one_way() -> None:
    wrong = {}
    for path in MODULES:
        ours = {name for name in _modules(path) if name.partition(".")[0] == "kbqa"}
        allowed = ALLOWED[path.relative_to(ROOT).parts[0]]
        if path.parent.name == "facade":
            allowed = set(ALLOWED)
        # `kbqa` itself, the façade, is for users.
        if bad := {name for name in ours if name.partition(".")[2].split(".")[0] not in allowed}:
            wrong[_path_name(path)] = bad
    assert wrong == {}


def _room(name: str) -> int:
    """Find the place in `ENGINE_ROOMS` of a module by its dotted name."""
    parts = name.split(".")[2:]
    rooms = [".".join(parts[:2]), f"{parts[0]}.*" if parts[1:] else "", parts[0]]
    return next(ENGINE_ROOMS.index(room) for room in rooms if room in ENGINE_ROOMS)


def test_the_rooms_of_the_engine_import_those_below_them() -> None:
    above = {}
    for path in ENGINE:
        own = "kbqa.engine.facade" if path.parent.name == "facade" else _name(path)
        if own == "kbqa.engine":
            continue
        inner = {name for name in _modules(path) if name.startswith("kbqa.engine.")}
        if bad := {name for name in inner if _room(name) > _room(own)}:
            above[_path_name(path)] = bad
    assert above == {}


def test_no_modules_import_each_other() -> None:
    assert _circles("at once") == []
    assert _circles("at once", "for types") == TYPE_CIRCLES, "TYPE_CIRCLES may only shrink"


def _circles(*when: str) -> list[set[str]]:
    """Return the sets of modules each of which is reached from each other by imports."""
    graph = networkx.DiGraph(
        (name, one.target)
        for name, path in NAMES.items()
        for one in _imports(path)
        if one.target in NAMES and one.when in when
    )
    return [ring for ring in networkx.strongly_connected_components(graph) if len(ring) > 1]


def test_no_two_classes_have_one_name() -> None:
    classes = Counter(
        node.name
        for path in MODULES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef)
    )
    twice = {name: count for name, count in classes.items() if count > 1}
    assert twice == TWICE, "TWICE may only shrink"


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest reads each as a module of that name."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    assert [name for name in names if names[name] > 1] == ["conftest.py"]


def test_the_house_does_not_grow() -> None:
    tools = [path for path in (ROOT / "tools").rglob("*.py") if "importroot" not in path.parts]
    lines = _lines(MODULES)
    figures = {
        "product files": len(MODULES),
        "product lines": lines,
        "lines of docstrings, per cent": 100 * sum(map(_docstring_lines, MODULES)) / lines,
        "product files with one importer": _files_with_one_importer(),
        "most files that name a kind of constraint": max(_files_of_constraints().values()),
        "tools lines": _lines(tools),
    }
    assert figures.keys() == LIMITS.keys()
    assert {name: n for name, n in figures.items() if n > LIMITS[name]} == {}


def _lines(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _docstring_lines(path: Path) -> int:
    """Count the lines of strings that stand alone, those below attributes included."""
    lines = 0
    for node in ast.walk(_tree(path)):
        match node:
            case ast.Expr(ast.Constant(str())):
                lines += (node.end_lineno or node.lineno) - node.lineno + 1
    return lines


def _files_with_one_importer() -> int:
    importers = Counter(
        target for path in MODULES for target in {one.target for one in _imports(path)}
    )
    files = {name for name, path in NAMES.items() if path.name != "__init__.py"}
    return sum(importers[name] == 1 for name in files)


def _files_of_constraints() -> dict[str, int]:
    """Count the files whose code names each kind of constraint."""
    files = defaultdict(set)
    for path in MODULES:
        for node in ast.walk(_tree(path)):
            match node:
                case ast.Name(name) | ast.alias(name) | ast.Attribute(attr=name):
                    files[name].add(path)
                case ast.ClassDef(name):
                    files[name].add(path)
    return {kind.__name__: len(files[kind.__name__]) for kind in (*get_args(Test), Order)}


def test_heavy_imports_stand_inside_functions() -> None:
    heavy = {}
    for path in MODULES:
        # FastAPI reads annotations at run time. The commands import this room inside functions.
        light = SERVERS if path.is_relative_to(ROOT / "engine/serve") else set()
        if path == ROOT / "engine/writing/vllm_steering.py":
            light = {"vllm"}  # which imports this module itself, for the classes in it
        if path == ROOT / "kb/protocol.py":
            light = {"SPARQLWrapper"}  # 5 ms, and only an endpoint that is opened imports this
        names = {name.partition(".")[0] for name in _modules(path, at_once=True)}
        if bad := names & (HEAVY - light):
            heavy[_path_name(path)] = bad
    assert heavy == {}


def test_only_functions_import_the_server() -> None:
    importers = {
        _path_name(path)
        for path in MODULES
        for name in _modules(path, at_once=True)
        if name.startswith("kbqa.engine.serve") and not path.is_relative_to(ROOT / "engine/serve")
    }
    assert importers == set()


@pytest.mark.parametrize("statement", ["import kbqa", "import kbqa.engine.cli"])
def test_import_is_light(statement: str) -> None:
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    assert not loaded & (HEAVY | {"numpy", "pydantic", "pyoxigraph", "scipy", "sqlite3"})


@pytest.mark.parametrize("program", ["kb/worker_process.py", "kb/loading/store_writer_process.py"])
def test_the_processes_of_a_store_import_nothing_of_ours(program: str) -> None:
    assert not {one for one in _modules(ROOT / program) if one.partition(".")[0] == "kbqa"}


def test_every_package_is_listed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(settings["tool"]["setuptools"]["packages"])
    folders = {path.parent for path in MODULES if path.name == "__init__.py"}
    found = {
        "kbqa" if folder.name == "facade" else "kbqa." + ".".join(folder.relative_to(ROOT).parts)
        for folder in folders
    }
    assert found - {"kbqa"} == listed - {"kbqa"}
