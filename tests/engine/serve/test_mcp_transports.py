"""MCP over HTTP and over standard input and output, by the SDK's own client and without it."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("mcp", reason="needs the mcp extra")

from mcp import Client, MCPError, StdioServerParameters

from kbqa.engine.engine import Engine
from kbqa.engine.serve.mcp import BUSY
from kbqa.sparql.errors import ModelError

QUESTION = "what is jamaican money called?"
TESTS = Path(__file__).parents[2]
# What a careless library might print while the model is loaded and used.
CHILD = f"""
import os, sys
sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent)!r}]
from conftest import ScriptedGenerator
from kbqa.engine.cli import main
from kbqa.engine.writing.generate import ModelChoice

class Noisy(ScriptedGenerator):
    def generate(self, requests, *rest, **settings):
        print("noise")
        os.write(1, b"more noise\\n")
        return super().generate(requests, *rest, **settings)

def load(*_):
    print("loading noise")
    os.write(1, b"more loading noise\\n")
    path = "Main Path:\\n Jamaica -[location , country , currency used]-> ?x"
    return Noisy([(path, -0.5)])

ModelChoice.load = load
main(["mcp", "--store", sys.argv[1], "--set", "judge=confidence"], prog_name="kbqa")
"""


async def _ask(target: Any, mode: str = "auto") -> Any:
    async with Client(target, mode=mode, read_timeout_seconds=120) as client:
        result = await client.call_tool("ask", {"question": QUESTION})
        return result.structured_content["answers"][0]["name"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_server_answers_over_http(server, mode: str) -> None:
    assert asyncio.run(_ask(f"{server.url}/mcp", mode)) == "Jamaican dollar"


def test_errors_over_http_hide_where_the_graph_is(server) -> None:
    async def fail() -> str:
        async with Client(f"{server.url}/mcp") as client:
            result = await client.call_tool("run_sparql", {"query": "SELECT * { ?s ?p }"})
            return result.content[0].text

    text = asyncio.run(fail())
    assert "Not" in text or "query" in text
    assert server.service.graph.description not in text


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
    ids=str,
)
def test_the_guard_stands_before_mcp(server, headers: dict[str, str], status: int) -> None:
    response = httpx.post(
        f"{server.url}/mcp", json=INITIALIZE, headers={**ACCEPT, **headers}, timeout=30
    )
    assert response.status_code == status


def test_a_server_that_still_loads_is_an_error_of_the_protocol(small_store: Path, running) -> None:
    may_open = threading.Event()

    @contextmanager
    def slow() -> Iterator[Engine]:
        may_open.wait(60)
        raise ModelError("never")
        yield

    async def ask(url: str) -> MCPError:
        async with Client(url) as client:
            with pytest.raises(MCPError) as raised:
                await client.call_tool("ask", {"question": QUESTION})
            return raised.value

    with running(small_store, open_engine=slow) as server:
        error = asyncio.run(ask(f"{server.url}/mcp"))
        may_open.set()
    assert (error.code, error.data["retry_after_s"]) == (BUSY, 10)
    assert "still loading its model" in error.message


def test_a_program_is_asked_over_its_standard_input(small_store: Path) -> None:
    program = StdioServerParameters(
        command=sys.executable, args=["-c", CHILD, str(small_store)], env=dict(os.environ)
    )
    assert asyncio.run(_ask(program)) == "Jamaican dollar"


def test_standard_output_holds_nothing_but_messages(small_store: Path) -> None:
    call = {"name": "ask", "arguments": {"question": QUESTION}}
    lines = [
        INITIALIZE,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(small_store)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for line in lines:
            program.stdin.write(f"{json.dumps(line)}\n")
        program.stdin.flush()
        messages = []
        while not messages or messages[-1].get("id") != 2:
            messages.append(json.loads(program.stdout.readline()))
        left, noise = program.communicate(timeout=120)
    assert all(message["jsonrpc"] == "2.0" for message in messages)
    assert messages[-1]["result"]["structuredContent"]["answers"][0]["name"] == "Jamaican dollar"
    assert (left, program.returncode) == ("", 0)
    for each in ("loading noise", "more loading noise", "noise", "more noise"):
        assert each in noise.splitlines()
