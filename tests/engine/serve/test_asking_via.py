"""`kbqa ask --via URL`: a server is asked, and the terminal shows what it shows without one."""

import hashlib
import json
import math
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner, Result
from misbehaving_server import misbehaving_server

from kbqa.engine.answer import answer_lines, literal_forms
from kbqa.engine.cli import main
from kbqa.engine.commands.screen import PAPER

MONEY = "what is jamaican money called?"
CAPITAL = "capital of jamaica?"
NOTHING = "what is the area of jamaica?"
AREA = "how large is kingston?"
KEY = "5d41402abc4b2a76"
MODULES = "import sys; from kbqa.engine.cli import main; main(standalone_mode=False); "


@pytest.fixture
def other_server():
    with misbehaving_server() as started:
        yield started


@pytest.fixture
def unused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


def ask(*arguments: str, stdin: str | None = None, **environment: str) -> Result:
    return CliRunner().invoke(main, ["ask", *arguments], input=stdin, env=environment)


def of_engine(small_store, question: str):
    """Return the record and the lines of the same engine without a server."""
    from scripted_server import PacedGenerator, scripted_engine

    with scripted_engine(small_store, PacedGenerator()) as engine:
        answer = engine.ask(question)
        forms = literal_forms(answer, engine.resources.graph)
        return answer.to_dict(), PAPER.write_all(answer_lines(answer, forms))


@pytest.mark.parametrize(
    ("question", "first", "code"),
    [
        (MONEY, "Jamaican dollar  (m.04xc2m)", 0),
        (AREA, "480", 0),
        (NOTHING, "No answer: ", 1),
    ],
)
def test_the_text_is_that_of_a_model_here(server, small_store, question, first, code) -> None:
    result = ask(question, "--via", server.url)
    text, _, below = result.stdout.partition("\n\nGraph: ")
    assert text == of_engine(small_store, question)[1]
    assert text.startswith(first)
    assert re.fullmatch(rf"the one of {server.url}\nTime: (\w+ \d+\.\d\d s(, )?)+\n", below)
    assert result.exit_code == code


def test_the_record_is_that_of_a_model_here(server, small_store) -> None:
    result = ask(MONEY, "--json", "--via", f"{server.url}/")
    record, local = json.loads(result.stdout), of_engine(small_store, MONEY)[0]
    assert list(record) == list(local)
    assert {**record, "seconds": None} == {**local, "seconds": None}
    assert result.stdout.startswith('{\n  "question"')


def test_several_questions_come_from_standard_input(server) -> None:
    questions = f"{MONEY}\n\n{'x' * 1001}\n{CAPITAL}\n"
    result = ask("-", "--via", server.url, stdin=questions)
    assert result.stdout.startswith(f"# {MONEY}\nJamaican dollar  (m.04xc2m)\n")
    assert f"\n\n# {CAPITAL}\nKingston  (m.03yl7)\n" in result.stdout
    assert "1000 characters" in result.stderr
    assert result.exit_code == 1

    result = ask("-", "--json", "--via", server.url, stdin=questions)
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [len(record["answers"]) for record in records] == [1, 0, 1]
    assert "error" in records[1]


def test_a_server_knows_the_questions_before(server) -> None:
    result = ask("how large is it?", "--after", CAPITAL, "--via", server.url)
    assert result.stdout.startswith("Understood as: how large is Kingston?\n480\n")
    assert result.exit_code == 0


def test_a_server_answers_each_of_two_questions_in_one(server) -> None:
    both = "what is the capital of jamaica and how large is it?"
    result = ask(both, "--via", server.url)
    assert result.stdout.startswith("1. what is the capital of jamaica?\nKingston  (m.03yl7)\n")
    assert "\n\n\n2. how large is Jamaica?\nNo answer: " in result.stdout
    assert result.exit_code == 0
    record = json.loads(ask(both, "--json", "--via", server.url).stdout)
    assert [part["status"] for part in record["parts"]] == ["answered", "none"]
    assert record["partial"] is True


def test_topics_and_the_deadline_are_sent(server) -> None:
    result = ask(
        "money?", "--via", server.url, "--topic", "m.03_r3", "--deadline", "9000", "--json"
    )
    assert json.loads(result.stdout)["trace"]["crp"].startswith("Jamaica (m.03_r3)")
    assert ask("money?", "--via", server.url, "--topic", "Jamaica").exit_code == 2


def test_the_variable_does_what_the_option_does(server, tmp_path, monkeypatch) -> None:
    # A store for the other commands is no reason to refuse.
    result = ask(MONEY, KBQA_VIA=server.url, KBQA_STORE="elsewhere")
    assert result.stdout.startswith("Jamaican dollar")
    assert result.stderr == ""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kbqa.toml").write_text(f'via = "{server.url}"\nstore = "elsewhere"\n')
    assert ask(MONEY).stdout.startswith("Jamaican dollar")


@pytest.mark.parametrize(
    "option",
    [
        ["--store", "fb"],
        ["--endpoint", "http://127.0.0.1:8890/sparql"],
        ["--timeout", "3"],
        ["--adapter", "mine"],
        ["--model", "mine"],
        ["--n", "5"],
        ["--threads", "1"],
        ["--set", "judge=confidence"],
        ["--method", "kbqa"],
        ["--unsure-below", "0.1"],
        ["--llm", "http://127.0.0.1:8000/v1"],
    ],
    ids=lambda option: option[0],
)
def test_what_the_server_decides_is_refused(option) -> None:
    result = ask(MONEY, "--via", "http://127.0.0.1:9", *option)
    assert result.exit_code == 2
    assert f"{option[0]} does not go with --via" in result.stderr


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("127.0.0.1:8080", "such as http://127.0.0.1:8080"),
        ("ftp://127.0.0.1", "such as http://127.0.0.1:8080"),
        ("http://[::1", "such as http://127.0.0.1:8080"),
        ("", "such as http://127.0.0.1:8080"),
        (f"http://me:{KEY}@127.0.0.1", "A key is read from KBQA_VIA_KEY"),
        (f"http://127.0.0.1?key={KEY}", "A key is read from KBQA_VIA_KEY"),
    ],
)
def test_what_is_no_address_is_refused(url, advice) -> None:
    result = ask(MONEY, "--via", url)
    assert result.exit_code == 2
    assert advice in result.stderr
    assert KEY not in result.output


def test_a_server_that_is_not_there_is_named_once(unused_url) -> None:
    result = ask("-", "--via", unused_url, stdin="a?\nb?\n")
    assert result.exit_code == 1
    assert result.stderr.count("no server can be reached at") == 1
    assert "kbqa serve" in result.stderr


def test_what_is_no_json_is_not_printed(other_server) -> None:
    trace = {"batch_size": 1, "cached": False}
    record = {"id": "1", "status": "answered", "seconds": {}, "trace": trace, "confidence": 0.5}
    other_server.answers(record)
    other_server.answers({**record, "confidence": math.nan})
    assert json.loads(ask(MONEY, "--json", "--via", other_server.url).stdout)["confidence"] == 0.5
    result = ask(MONEY, "--json", "--via", other_server.url)
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize(
    ("body", "how"),
    [
        (b"<html>", {}),
        ([1], {}),
        ({"answers": []}, {}),
        (b"<html>", {"status": 404}),
        ({"error": "no"}, {"status": 500}),
        ({"id": "1", "status": "answered", "seconds": {}, "trace": []}, {}),
        ({"lines": [{"text": 1, "style": None, "wraps": True}]}, {}),
        (b"", {"sent_bytes": 0}),
    ],
)
def test_another_kind_of_server_is_recognised(other_server, body, how) -> None:
    other_server.answers(body, **how)
    result = ask(MONEY, "--via", other_server.url)
    assert result.exit_code == 1
    assert "does not answer as a `kbqa serve` of this version does" in result.stderr


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "internal"), (502, "graph-error"), (504, "deadline"), (403, "cross-site")],
)
def test_an_error_of_the_server_is_passed_on(other_server, status, code) -> None:
    other_server.answers({"code": code, "detail": "Something went wrong."}, status=status)
    result = ask(MONEY, "--via", other_server.url)
    assert result.exit_code == 1
    assert f"{other_server.url}: Something went wrong." in result.stderr


@pytest.mark.parametrize(
    ("options", "shown"),
    [((), "half �, Esc�[2J�31m"), (("--json",), r"half \ud83d, Esc\u001b[2J\u009b31m")],
    ids=["text", "json"],
)
def test_odd_letters_of_a_server_are_no_traceback(other_server, options, shown) -> None:
    text = "half \ud83d, Esc\x1b[2J\x9b31m"
    record = {"id": "1", "status": "answered", "seconds": {}, "answers": [{"name": text}]}
    lines = [{"text": text, "style": "answer", "wraps": True}]
    trace = {"batch_size": 1, "cached": False}
    other_server.answers({**record, "lines": lines, "trace": trace})
    result = ask(MONEY, "--via", other_server.url, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert shown in result.stdout


def test_a_server_that_says_nothing_is_left(other_server, monkeypatch) -> None:
    monkeypatch.setattr("kbqa.engine.commands.serve._GRACE_S", 0.0)
    other_server.answers(b"", after_s=1.5)
    result = ask(MONEY, "--via", other_server.url, "--deadline", "0.5")
    assert result.exit_code == 1
    assert "within 0.5 s" in result.stderr


def test_a_busy_server_says_when_to_come_back(running, small_store) -> None:
    from kbqa.engine.serve.served import Settings

    settings = Settings(queue=0, batch_size=1)
    with running(small_store, settings) as server, ThreadPoolExecutor() as pool:
        server.model.may_write.clear()
        first = pool.submit(ask, MONEY, "--via", server.url)
        assert server.model.begun.acquire(timeout=60)
        result = ask(CAPITAL, "--via", server.url)
        server.model.may_write.set()
        assert first.result().exit_code == 0
    assert result.exit_code == 1
    assert "1 questions are under way already" in result.stderr
    assert re.search(r"Try again in \d+ s\.", result.stderr)


def test_a_server_that_wants_a_key_gets_it_from_the_environment(
    running, small_store, tmp_path
) -> None:
    from kbqa.engine.serve.guard import Access, ApiKeys

    file = tmp_path / "keys.toml"
    file.write_text(f'[me]\nsha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"\n')
    with running(small_store, access=Access(keys=ApiKeys.read(file))) as server:
        # Without a key, `running` cannot know when it is ready.
        while (result := ask(MONEY, "--via", server.url, KBQA_VIA_KEY=f"{KEY}\n")).exit_code:
            assert "still loading its model. Try again in" in result.stderr
            time.sleep(0.1)
        assert result.stdout.startswith("Jamaican dollar")
        missing = ask("-", "--via", server.url, stdin="a?\nb?\n")
        wrong = ask(MONEY, "--via", server.url, KBQA_VIA_KEY="wrong-key")
    assert missing.stderr.count("wants a key. Set KBQA_VIA_KEY") == 1
    assert "does not know the key in KBQA_VIA_KEY" in wrong.stderr
    assert (missing.exit_code, wrong.exit_code) == (1, 1)
    assert "wrong-key" not in wrong.output
    assert ask(MONEY, "--via", server.url, KBQA_VIA_KEY="a\nb").exit_code == 2


def test_the_prompt_needs_a_model(monkeypatch) -> None:
    monkeypatch.setattr("kbqa.engine.commands.ask.is_terminal", lambda _: True)
    result = ask("--via", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "the prompt cannot ask --via a server" in result.stderr


def test_neither_the_model_nor_the_graph_is_imported(server) -> None:
    code = f"{MODULES}print(*sorted(sys.modules), file=sys.stderr)"
    command = [sys.executable, "-c", code, "ask", MONEY, "--via", server.url]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("Jamaican dollar")
    loaded = {name.partition(".")[0] for name in run.stderr.split()}
    assert not loaded & {
        *("torch", "transformers", "openvino", "polars", "pyoxigraph", "fastapi", "pydantic"),
        *("numpy", "rdflib", "SPARQLWrapper", "openai"),
    }
