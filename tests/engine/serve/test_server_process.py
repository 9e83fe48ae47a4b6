"""The server as a process: it listens at once, and ends when it is told to."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.engine.cli import main

PROGRAM = Path(__file__).with_name("scripted_server.py")


@pytest.fixture
def httpx():
    for package in ("fastapi", "uvicorn", "jinja2", "prometheus_client"):
        pytest.importorskip(package, reason="needs the serve extra")
    return pytest.importorskip("httpx", reason="needs the serve extra")


@contextmanager
def process(store: Path, seconds: float) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """Run the program; it says where it listens."""
    command = [sys.executable, str(PROGRAM), str(store), str(seconds)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        try:
            assert started.stderr is not None
            found = re.search(r"Listening on (http://\S+)/;", started.stderr.readline())
            assert found is not None
            yield started, found[1]
        finally:
            started.kill()


def test_sigterm_lets_questions_end_and_then_the_process(httpx, small_store) -> None:
    with process(small_store, 1.5) as (server, url), httpx.Client(base_url=url) as client:
        while client.get("/readyz").status_code != 200:
            pass
        answers = []

        def ask() -> None:
            body = {"question": "what is jamaican money called?"}
            answers.append(httpx.post(f"{url}/api/v1/ask", json=body, timeout=30).json())

        asking = threading.Thread(target=ask)
        asking.start()
        while "kbqa_cache_total" not in (metrics := client.get("/metrics").text) or (
            'result="miss"' not in metrics
        ):
            pass
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
        asking.join()
        assert answers[0]["answers"][0]["name"] == "Jamaican dollar"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::"])
def test_other_machines_are_let_in_only_outspokenly(host) -> None:
    result = CliRunner().invoke(main, ["serve", "--host", host])
    assert result.exit_code == 2
    assert "add --api-keys FILE, or --public" in result.stderr


def test_a_host_that_can_be_none_is_told(httpx) -> None:
    result = CliRunner().invoke(main, ["serve", "--host", "a\u202e", "--public", "--port", "0"])
    assert result.exit_code == 1
    assert "cannot listen on 'a\\u202e': it is not the name of a machine." in result.stderr


def test_without_the_extra_the_command_says_what_to_install(monkeypatch) -> None:
    import importlib.util

    def find(name: str, package: str | None = None) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find)
    result = CliRunner().invoke(main, ["serve"])
    assert result.exit_code == 2
    assert "pip install 'kbqa[serve]'" in result.stderr


def test_a_port_that_is_taken_is_named(httpx, server, small_store) -> None:
    port = server.url.rpartition(":")[2]
    from kbqa.engine.serve.app import listen
    from kbqa.sparql.errors import KbqaError

    with pytest.raises(KbqaError, match=f"cannot listen on 127.0.0.1 port {port}"):
        listen("127.0.0.1", int(port))


def test_a_log_on_a_full_disk_does_not_stop_the_server(httpx, small_store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(PROGRAM), str(small_store), "0", str(port)]
    with (
        Path("/dev/full").open("w") as full,
        subprocess.Popen(command, stderr=full) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        try:
            ends_at = time.monotonic() + 60
            while time.monotonic() < ends_at and server.poll() is None:
                with suppress(httpx.TransportError):
                    if client.get("/readyz").status_code == 200:
                        break
                time.sleep(0.05)
            assert client.get("/readyz").status_code == 200
            server.send_signal(signal.SIGTERM)
            assert server.wait(20) == 0
        finally:
            server.kill()


@pytest.mark.parametrize("command", ["ask", "serve", "mcp", "eval"])
def test_each_command_that_asks_a_general_model_can_leave_its_replies_uncached(command) -> None:
    assert "--no-llm-cache" in CliRunner().invoke(main, [command, "--help"]).output
