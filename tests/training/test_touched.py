"""What each command touches besides its store, cache, output and temporary files: nothing.

Each runs in a process of its own, in an empty home. An audit hook (PEP 578), in it and in all
processes that it starts, writes down what they change, look up, connect to and run.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from kbqa.engine.cli import COMMANDS
from kbqa.engine.running.judge import SHIPPED_JUDGE
from kbqa.kb.open import open_graph
from kbqa.sparql.terms import iri

pytest.importorskip("torch", reason="needs the lm extra")
pytest.importorskip("openvino", reason="needs the cpu extra")

_HOOK = Path(__file__).with_name("audit")
"""Folder of the module `sitecustomize`, which adds the hook."""

_ASKED = "what is the capital of {}?"
_COUNTRIES = ("Kenya", "Peru", "Chile", "Ghana", "Nepal", "Oman", "Fiji", "Mali", "Chad", "Togo")
_RELATION = "location.country.capital"
_MINUTES = 10

_PROCESSES = (
    sys.executable,
    "git rev-parse HEAD",  # by kbqa, for manifests, if it is run from a checkout
    "fc-list ",  # by matplotlib, once, to find fonts
    "/bin/bash --norc -c echo ",  # by click, which wants to know bash's version to complete in it
    "/usr/bin/bash --norc -c echo ",
)
"""What a command may start: its workers, and these, which change nothing."""

_EVAL = ["--questions={files}/one.jsonl", "--beams={files}/beams.jsonl", "--output={out}/run.jsonl"]

_ARGUMENTS: dict[str, Sequence[Sequence[str]]] = {
    "ask": [[_ASKED.format("Kenya")], [_ASKED.format("Peru"), "--json", "--set=judge=confidence"]],
    "eval": [_EVAL],
    "report": [_EVAL, ["{out}/run.jsonl", "--plots={out}/plots"]],
    "compare": [_EVAL, ["{out}/run.jsonl", "{out}/run.jsonl"]],
    "methods": [[], ["kbqa"]],
    "link": [[_ASKED.format("Kenya")]],
    "retrieve": [["--questions={files}/set.jsonl", "--output={out}/r.jsonl", "--sample=1"]],
    "entities": [["Kenya"]],
    "relations": [["m.d38q4d_7"]],
    "sparql": [["SELECT ?x {{ ?x ns:type.object.name 'Kenya'@en }}"]],
    "crp": [
        ["from-sparql", "{files}/set.jsonl"],
        ["show", "{files}/paths.jsonl"],
        ["compile", "{files}/paths.jsonl"],
        ["run", "{files}/paths.jsonl"],
        ["generate", "--questions={files}/one.jsonl", "--output={out}/beams.jsonl", "--n=1"],
    ],
    "doctor": [[]],
    "completion": [["bash"]],
    "load-freebase": [["{dump}", "--store={out}/store", "--profile=full"]],
    "train-crp": [
        [
            "--data={files}/set.jsonl",
            "--base={base}",
            "--demo-questions=0",
            "--epochs=1",
            "--output={out}/adapter",
        ]
    ],
    "train-judge": [
        [
            "--data={files}/set.jsonl",
            "--held-out={files}/beams.jsonl",
            f"--start={SHIPPED_JUDGE}",
            "--epochs=0",
            "--asker-epochs=0",
            "--output={out}/judge",
        ]
    ],
    "train-retriever": [["--data={files}/set.jsonl", "--epochs=1", "--output={out}/retriever"]],
}
"""Small runs of all commands; `serve` and `mcp` have tests of their own below."""


class _Watched:
    """Runs commands, and says what they touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("home", "work", "out", "temporary"):
            (folder / name).mkdir()
        kept = {
            name: each
            for name, each in os.environ.items()
            if not name.startswith(("XDG_", "TORCH", "MPL"))
        }
        self._environment = {
            **kept,
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "temporary"),
            "PYTHONPATH": str(_HOOK),
            "PYTHONDONTWRITEBYTECODE": "1",
            "KBQA_TEST_AUDIT": str(folder / "audit.jsonl"),
        }
        (folder / "audit.jsonl").touch()

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return self.start_python("from kbqa.engine.cli import main; main()", *arguments)

    def start_python(self, code: str, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=self.folder / "work",
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, typed: str = "") -> str:
        process = self.start(*arguments)
        stdout, stderr = process.communicate(typed, timeout=60 * _MINUTES)
        assert process.returncode == 0, (arguments, stderr)
        return stdout

    def touched(self) -> list[str]:
        """List what was touched besides the cache, the output and temporary files."""
        ours = (self.folder / "out", self.folder / "temporary", Path(os.environ["KBQA_CACHE"]))
        lines = (self.folder / "audit.jsonl").read_text(encoding="utf-8").splitlines()
        notes = {tuple(json.loads(line)) for line in lines}
        found = [
            f"{kind} {what}"
            for kind, what in notes
            if not (kind == "write" and Path(what).is_relative_to("/dev"))
            and not (kind == "write" and any(Path(what).is_relative_to(each) for each in ours))
            and not (kind == "process" and what.startswith(_PROCESSES))
        ]
        left = [path for name in ("home", "work") for path in (self.folder / name).rglob("*")]
        return sorted([*found, *(f"left {path}" for path in left)])


@pytest.fixture
def watched(tmp_path: Path) -> _Watched:
    return _Watched(tmp_path)


@pytest.fixture(scope="module")
def files(demo_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions about the demo graph, and paths for them."""
    folder = tmp_path_factory.mktemp("files")
    with closing(open_graph(demo_store)) as graph, closing(graph.names()) as names:
        mids = {country: names.lookup(country)[0].mid for country in _COUNTRIES}
    rows, paths, beams = [], [], []
    for at, (country, mid) in enumerate(mids.items()):
        row = {
            "id": f"q{at}",
            "question": _ASKED.format(country),
            "sparql": f"SELECT DISTINCT ?x WHERE {{ {iri(mid)} {iri(_RELATION)} ?x }}",
            "topic_entities": [{"mid": mid, "name": country}],
            "crp_routerkgqa": f"Main Path:\n {country} -[location , country , capital]-> ?x",
        }
        path = f"{country} -> {_RELATION}"
        rows.append(row)
        paths.append({"id": row["id"], "crp": path})
        crps = [{"crp": path, "routerkgqa": None, "logprob": -1.0, "tokens": 9}]
        beams.append({"id": row["id"], "crps": crps})
    contents = {
        "set": rows,
        "one": [{**rows[0], "answers": ["m.0any"]}],
        "paths": paths,
        "beams": beams[:6],
    }
    for name, records in contents.items():
        text = "".join(json.dumps(each) + "\n" for each in records)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("command", _ARGUMENTS)
def test_a_command_touches_nothing_else(
    command: str, watched: _Watched, files: Path, tiny_base: Path, small_dump: Path
) -> None:
    places = {"out": watched.folder / "out", "files": files, "base": tiny_base, "dump": small_dump}
    for arguments in _ARGUMENTS[command]:
        name = "eval" if arguments is _EVAL else command
        watched.run(name, *(each.format(**places) for each in arguments))
    assert watched.touched() == []


def test_a_server_touches_nothing_else_and_talks_to_loopback_alone(watched: _Watched) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = watched.start("serve", "--port", str(port))
    try:
        ends_at = time.monotonic() + 60 * _MINUTES
        while not _is_ready(port):
            assert process.poll() is None and time.monotonic() < ends_at
            time.sleep(0.2)
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/v1/ask",
            json.dumps({"question": _ASKED.format("Kenya")}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=99) as answer:
            assert "Nairobi" in answer.read().decode()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert watched.touched() == []


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=9):
            return True
    except OSError:
        return False


def test_mcp_touches_nothing_else(watched: _Watched) -> None:
    client = {"protocolVersion": "2025-06-18", "capabilities": {}}
    client["clientInfo"] = {"name": "test", "version": "1"}
    messages: list[dict[str, object]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    typed = "".join(json.dumps(message) + "\n" for message in messages)
    assert "tools" in watched.run("mcp", typed=typed)
    assert watched.touched() == []


def test_every_command_is_watched() -> None:
    assert {*_ARGUMENTS, "serve", "mcp"} == COMMANDS.keys()


def test_the_hook_sees_children_names_and_files(watched: _Watched) -> None:
    """A program that does all that is forbidden, in a child of a child."""
    deed = (
        "import os, socket\n"
        "open(os.path.expanduser('~/left'), 'w').close()\n"
        "try: socket.getaddrinfo('kbqa.invalid', 443)\n"
        "except OSError: pass\n"
        "os.system('true')\n"
    )
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {deed!r}], check=True)"
    process = watched.start_python(child)
    assert process.communicate()[1] == ""
    home = watched.folder / "home" / "left"
    assert {f"left {home}", "network kbqa.invalid", f"write {home}"} <= set(watched.touched())
    assert any(each.startswith("process") and "true" in each for each in watched.touched())
