"""Texts from outside that reach a terminal or a log hold nothing that a terminal obeys."""

import json
import os
import re
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from made_runs import make_row, write_run
from misbehaving_server import misbehaving_server

from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile

HOSTILE = "Esc\x1b]0;pwned\x07\x1b[2J\x9b31m\x7f\u202eevil\u2066\r\u2028\x85"
"""Sets the title, clears the screen, turns it red, turns what follows around, begins the line."""
OBEYED = re.compile("[^\n\t -~\xa0-\u2027\u202f-\u2065\u206a-\U0010ffff]")
NS = "http://rdf.freebase.com/ns/"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store where all that has a name is called `HOSTILE`."""
    name = '"{}"@en'.format("".join(f"\\u{ord(letter):04X}" for letter in HOSTILE))
    lines = [("m.0evil", "location.country.capital", f"<{NS}m.0city>")]
    lines += [
        (each, "type.object.name", name)
        for each in ("m.0evil", "m.0city", "location.country.capital")
    ]
    lines += [("m.0evil", "common.topic.alias", '"Esc"@en')]
    folder = tmp_path_factory.mktemp("hostile")
    dump = folder / "hostile.nt"
    dump.write_text("".join(f"<{NS}{s}>\t<{NS}{p}>\t{o}\t.\n" for s, p, o in lines), "utf-8")
    load_freebase([dump], folder / "store", rules=profile("full"))
    return folder / "store"


@contextmanager
def endpoint(status: int, headers: dict[str, str], body: str) -> Iterator[str]:
    """A SPARQL endpoint that gives one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}/sparql"
        http.shutdown()


def on_terminal(
    *command: str, stdin: str = "", typed: str = "", code: str = "", folder: Path | None = None
) -> str:
    """Run kbqa, or Python code, on a terminal; return what that shows."""
    ours, theirs = os.openpty()
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST  # a line break stays one
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    program = ["-c", code] if code else ["-m", "kbqa.engine.cli"]
    with subprocess.Popen(
        [sys.executable, *program, *map(str, command)],
        stdin=theirs if typed else subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", "XDG_STATE_HOME": str(folder)},
    ) as run:
        os.close(theirs)
        if run.stdin is None:
            os.write(ours, typed.encode())
        else:
            run.stdin.write(stdin.encode())
            run.stdin.close()
        shown = b""
        try:
            while read := os.read(ours, 65536):
                shown += read
        except OSError:  # Linux ends a terminal so
            pass
    os.close(ours)
    text = re.sub("Opening the graph …|Loading the model …|Answering …|\r *\r", "", shown.decode())
    assert "Traceback" not in text or "--debug" in command
    return text


def in_pipe(*command: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "kbqa.engine.cli", *command], capture_output=True, check=False
    )


NAMES = "SELECT ?x ?n { ?x ns:type.object.name ?n }"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        pytest.param(("sparql", NAMES), "Esc�]0;pwned�", id="table"),
        pytest.param(("sparql", NAMES, "--format", "csv"), "Esc�]0;pwned�", id="csv"),
        pytest.param(("sparql", NAMES, "--format", "tsv"), "Esc", id="tsv"),
        pytest.param(("sparql", NAMES, "--json"), r"\u009b31m\u007f\u202e", id="sparql --json"),
        pytest.param(("entities", "esc"), "Esc�]0;pwned�", id="entities"),
        pytest.param(("entities", "esc", "--json"), r"\u009b31m\u007f\u202e", id="entities --json"),
        pytest.param(("entities", HOSTILE * 9), "no entity", id="no entity"),
        pytest.param(("relations", "m.0evil"), "Esc�]0;pwned�", id="relations"),
        pytest.param(("relations", "m.0evil", "--json"), r"\u009b31m", id="relations --json"),
        pytest.param(("relations", HOSTILE), "is not an id", id="no id"),
        pytest.param(("link", f"where is Esc {HOSTILE}?"), "m.0evil", id="link"),
        pytest.param(
            ("link", f"where is Esc {HOSTILE}?", "--json"), r"\u009b31m", id="link --json"
        ),
        pytest.param(("sparql", f"SELECT {HOSTILE}"), "Error: ", id="query"),
        pytest.param(("methods", HOSTILE), "Error: ", id="method"),
        pytest.param(("ask", "x", "--method", HOSTILE), "Error: ", id="--method"),
        pytest.param(("ask", "x", "--topic", HOSTILE), "Error: ", id="--topic"),
        pytest.param(("ask", "x", "--set", HOSTILE), "Error: ", id="--set"),
        pytest.param(("eval", "--questions", HOSTILE), "does not exist", id="file"),
        pytest.param(("doctor", "--adapter", HOSTILE), "problem", id="doctor"),
        pytest.param(("entities", "x", f"--{HOSTILE}"), "No such option", id="option"),
        pytest.param(("entities", "x", "--limit", HOSTILE), "Invalid value", id="value"),
    ],
)
def test_no_text_of_a_graph_or_of_arguments_steers_the_terminal(
    store: Path, command: tuple[str, ...], shown: str
) -> None:
    text = on_terminal(*command, *(() if command[0] == "methods" else ("--store", str(store))))
    assert shown in text
    assert OBEYED.findall(text) == []


@pytest.mark.parametrize(
    "command",
    [
        (HOSTILE,),
        (f"--{HOSTILE}",),
        ("--debug", "sparql", "ASK {}", "--store", HOSTILE),
        ("sparql", "ASK {}", "--store", HOSTILE),
        ("sparql", "ASK {}", "--endpoint", HOSTILE),
        ("ask", "x", "--via", f"http://127.0.0.1:9/{HOSTILE}"),
        ("load-freebase", HOSTILE, "--store", "new"),
        ("report", HOSTILE),
    ],
    ids=lambda command: command[0] if command[0].isascii() else None,
)
def test_no_argument_steers_the_terminal(command: tuple[str, ...], tmp_path: Path) -> None:
    text = on_terminal(*command, folder=tmp_path)
    assert re.search(r"Esc(�|\\x1b)]0;pwned", text)
    assert OBEYED.findall(text) == []


def test_nothing_typed_at_the_prompt_shows_what_the_terminal_obeys(
    store: Path, tmp_path: Path
) -> None:
    code = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT)!r}]
from conftest import ScriptedGenerator
from kbqa.engine.cli import main
from kbqa.engine.writing.generate import ModelChoice

written = [("Main Path:\\n Esc -[location , country , capital]-> ?x", -0.5)]
ModelChoice.load = lambda *_: ScriptedGenerator(written, written)
main(["ask", "--set", "judge=confidence", "--store", {str(store)!r}], prog_name="kbqa")
"""
    lines = ["what is the capital of Esc?", ":topic", ":topic m.0evil", ":topic esc", ":topic"]
    lines += [":path", ":sparql", ":json", ":path Esc -> x.y", "", f":{HOSTILE[:3]}", ":quit"]
    text = on_terminal(code=code, typed="".join(f"{line}\n" for line in lines), folder=tmp_path)
    assert "kbqa (Esc�]0;pwned�" in text
    assert "1  Esc�]0;pwned�" in text
    assert r"\u009b31m\u007f\u202e" in text
    assert OBEYED.findall(text) == []


TERMS = [
    {"type": "uri", "value": f"http://e/{HOSTILE}"},
    {"type": "bnode", "value": HOSTILE},
    {"type": "literal", "value": HOSTILE, "xml:lang": HOSTILE},
    {"type": "literal", "value": HOSTILE, "datatype": f"http://e/{HOSTILE}"},
]
ROWS = {
    "head": {"vars": [f"x{HOSTILE}"]},
    "results": {"bindings": [{f"x{HOSTILE}": term} for term in TERMS]},
}
JSON = {"Content-Type": "application/sparql-results+json"}
FAULTS = {
    "refusal": (500, {}, HOSTILE),
    "syntax": (400, {}, HOSTILE),
    "Virtuoso": (500, {}, f"Virtuoso S1T00 Error {HOSTILE}"),
    "moved": (301, {"Location": "http://e/\x1b[2J\x9b31m"}, ""),
    "type": (200, {"Content-Type": "text/\x1b[2J\x9b31m"}, "x"),
    "broken": (200, JSON, f'{{"head": {HOSTILE}'),
    "other": (200, JSON, json.dumps({HOSTILE: 1})),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_answer_of_an_endpoint_steers_the_terminal(fault: str) -> None:
    with endpoint(*FAULTS[fault]) as url:
        for command in (("-vv", "sparql", NAMES), ("relations", "m.0evil"), ("doctor",)):
            text = on_terminal(*command, "--endpoint", url)
            assert text
            assert OBEYED.findall(text) == []


@pytest.mark.parametrize("style", ["table", "csv", "tsv", "json"])
def test_no_term_or_column_of_an_endpoint_steers_the_terminal(style: str) -> None:
    with endpoint(200, JSON, json.dumps(ROWS)) as url:
        text = on_terminal("sparql", NAMES, "--format", style, "--endpoint", url)
    assert text.count("evil") >= 1 + len(TERMS)
    assert OBEYED.findall(text) == []


SAID = {
    "problem": (422, {"detail": HOSTILE, "code": HOSTILE}),
    "busy": (503, {"detail": HOSTILE, "code": "queue-full", "retry_after_s": 1}),
    "kind": (500, {HOSTILE: HOSTILE}),
}


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_no_problem_of_a_server_that_is_asked_steers_the_terminal(
    said: str, options: tuple[str, ...]
) -> None:
    status, problem = SAID[said]
    with misbehaving_server() as server:
        server.answers(problem, status=status)
        question = f"where is {HOSTILE}?"
        url = server.url.removesuffix("/v1")
        text = on_terminal("ask", "-", "--via", url, *options, stdin=f"{question}\n{question}\n")
    assert "Error: " in text
    assert OBEYED.findall(text) == []


def test_no_reply_of_a_language_model_s_server_steers_the_terminal(store: Path) -> None:
    with misbehaving_server() as server:
        server.offers(HOSTILE)
        for body, status in ((HOSTILE, 400), ({"error": {"message": HOSTILE}}, 401)):
            server.queue.clear()
            server.answers(body, status=status)
            command = ["-vv", "ask", "where is Esc?", "--method", "io", "--store", str(store)]
            text = on_terminal(*command, "--llm", server.url, "--llm-model", "m")
            assert OBEYED.findall(text) == []


def test_no_row_steers_the_terminal(store: Path, tmp_path: Path) -> None:
    names = {"answers": [{"mid": "m.1", "name": HOSTILE}], "error": HOSTILE, "type": HOSTILE}
    rows = [make_row(HOSTILE, ["m.1"], question=HOSTILE, **names)]
    runs = [write_run(tmp_path, rows, name) for name in ("a", "b")]
    questions = tmp_path / f"{HOSTILE}.jsonl"
    row = {"id": HOSTILE, "question": f"where is Esc {HOSTILE}?", "answers": [[HOSTILE]]}
    questions.write_text(json.dumps(row), "utf-8")
    paths = json.dumps({"id": HOSTILE, "crp": f"Esc -> {HOSTILE}"})
    shown = [
        on_terminal("report", str(runs[0])),
        on_terminal("report", str(runs[0]), "--json"),
        on_terminal("report", str(runs[0]), "--predictions", "cwq"),
        on_terminal("compare", *map(str, runs)),
        on_terminal("compare", *map(str, runs), "--json"),
        on_terminal("link", "--questions", str(questions), "--store", str(store)),
        on_terminal("link", "--questions", str(questions), "--store", str(store), "--json"),
        on_terminal("doctor", "--questions", str(questions), "--store", str(store)),
        on_terminal("retrieve", "--questions", str(questions), "--output", "none/x.jsonl"),
        on_terminal("crp", "show", "-", stdin=paths),
        on_terminal("crp", "run", "-", "--store", str(store), stdin=paths),
    ]
    assert all(shown)
    assert [OBEYED.findall(text) for text in shown] == [[]] * len(shown)


def test_no_answer_of_an_endpoint_gets_into_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with endpoint(*FAULTS["refusal"]) as url, log.open("w") as stderr:
        subprocess.run(
            [sys.executable, "-m", "kbqa.engine.cli", "-vv", "serve", "--endpoint", url],
            stderr=stderr,
            check=False,
            timeout=60,
        )
    text = log.read_text("utf-8")
    assert "Esc�]0;pwned�" in text
    assert OBEYED.findall(text) == []


def test_a_pipe_gets_texts_as_they_are(store: Path) -> None:
    query = "SELECT ?n { ns:m.0evil ns:type.object.name ?n }"
    ran = in_pipe("sparql", query, "--format", "csv", "--store", str(store))
    assert HOSTILE.encode() in ran.stdout
    ran = in_pipe("sparql", query, "--json", "--store", str(store))
    assert json.loads(ran.stdout)["results"]["bindings"][0]["n"]["value"] == HOSTILE
    assert OBEYED.findall(ran.stdout.decode()) == []


def test_all_printing_is_by_the_functions_that_filter() -> None:
    folders = [ROOT / name for name in ("sparql", "kb", "engine", "training")]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    printing = {file.name for file in files if "click.echo(" in file.read_text("utf-8")}
    assert printing == {"options.py", "screen.py"}
