"""The commands `kbqa serve` and `kbqa mcp`, and what `kbqa ask --via URL` asks instead of a model.

That server renders the answer as lines without knowing the terminal, which colours and wraps them
here. It keeps to itself where its graph lies.
"""

import http.client
import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast, get_args
from urllib.parse import urlsplit

import click

from kbqa.engine.answer import MAX_ANSWERS, Line, Status, Style, last_lines
from kbqa.engine.cli import CONFIG_FILE, held_signals, is_from_file
from kbqa.engine.commands.options import (
    INPUT_FILE,
    ChatChoice,
    MethodChoice,
    chat_options,
    deadline_option,
    method_options,
    model_options,
    open_engine,
)
from kbqa.engine.writing.generate import ModelChoice
from kbqa.kb.commands.options import SECONDS, GraphChoice, graph_options
from kbqa.kb.connections import Address, Connections, Response, read_address
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import (
    AnsweringError,
    BusyReason,
    DeadlineExceeded,
    GraphError,
    InputError,
    KbqaError,
    QueryTooLarge,
    ServerBusy,
    ServerError,
)

_DEADLINE_S = 60.0


@click.command()
@graph_options
@deadline_option(_DEADLINE_S)
@method_options
@chat_options
@model_options
def mcp(
    graph: GraphChoice,
    deadline_s: float,
    method: MethodChoice,
    chat: ChatChoice,
    model: ModelChoice,
) -> None:
    """Let a language model ask, by the Model Context Protocol on standard input and output.

    Assistants start this command themselves: add it to their settings. `kbqa serve` offers the
    same over HTTP, at /mcp.
    """
    if importlib.util.find_spec("mcp") is None:
        raise InputError("kbqa mcp needs the extra `mcp`: pip install 'kbqa[mcp]'")
    chat.check()
    # Standard output belongs to the protocol; later the server keeps everything else from it.
    with redirect_stdout(sys.stderr):
        with held_signals():
            from kbqa.engine.serve.mcp import make_mcp_server
            from kbqa.engine.serve.served import Observer, Settings
            from kbqa.engine.serve.service import Service

        settings = Settings(deadline_s=deadline_s)
        aside = graph.open(workers=settings.query_workers + 1, low_priority=True)
    with closing(aside):
        opened = partial(open_engine, graph, model, chat, method)
        service = Service(opened, aside, settings, Observer())
        make_mcp_server(service, is_local=True).run("stdio")


_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, help="0: any free one.")
@click.option(
    "--allowed-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name that clients call the server by, such as kbqa.example.org; repeatable.",
)
@click.option(
    "--api-keys",
    "keys_file",
    type=INPUT_FILE,
    metavar="FILE",
    help="Let only those ask who have a key of this TOML file.",
)
@click.option("--public", is_flag=True, help="Let anybody ask who reaches --host.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Requests a minute of one client.  [default: 120 with --public, else any number]",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Proxy whose X-Forwarded-For names the client; repeatable.",
)
@graph_options
@deadline_option(_DEADLINE_S)
@click.option(
    "--query-timeout",
    "query_timeout_s",
    type=SECONDS,
    default=10.0,
    metavar="SECONDS",
    help="Stop a query or path of a client after this time.",
)
@click.option(
    "--queue", type=click.IntRange(1), default=12, help="Questions that may wait; more are refused."
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=8,
    help="Questions that the small model writes for at once.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=2,
    help="Queries of questions that run at once; each is a process.",
)
@click.option("--openai", is_flag=True, help="Offer OpenAI's chat protocol below /v1.")
@click.option("--dataset", metavar="URI", help="What TEXT2SPARQL is to call the graph.")
@method_options
@chat_options
@model_options
def serve(
    host: str,
    port: int,
    hosts: tuple[str, ...],
    keys_file: Path | None,
    public: bool,
    rate: float | None,
    proxies: tuple[str, ...],
    graph: GraphChoice,
    deadline_s: float,
    query_timeout_s: float,
    queue: int,
    batch_size: int,
    workers: int,
    openai: bool,
    dataset: str | None,
    method: MethodChoice,
    chat: ChatChoice,
    model: ModelChoice,
) -> None:
    """Answer questions over HTTP: a page, a JSON interface, SPARQL and MCP.

    The server listens at once, and answers when the model is loaded. It listens on this machine
    only, unless --host says otherwise; then it needs --api-keys or --public.
    """
    is_local = host in _LOOPBACK
    _refuse_opening_by_file(is_local)
    if not is_local and keys_file is None and not public:
        raise InputError(
            f"--host {host} lets other machines in: add --api-keys FILE, or --public to let "
            "anybody ask"
        )
    for package in ("fastapi", "uvicorn", "jinja2", "prometheus_client", "mcp"):
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"kbqa serve needs the extra `serve`, as {package} is missing: "
                "pip install 'kbqa[serve]'"
            )
    from kbqa.engine.serve.app import DEFAULT_DATASET, make_app, run_server
    from kbqa.engine.serve.guard import Access, ApiKeys, Metrics
    from kbqa.engine.serve.served import Settings
    from kbqa.engine.serve.service import Service

    settings = Settings(
        queue=queue,
        batch_size=batch_size,
        deadline_s=deadline_s,
        query_timeout_s=query_timeout_s,
        unsure_below=method.unsure_below,
    )
    access = Access(
        hosts=frozenset(name.lower() for name in hosts),
        allows_addresses=not is_local,
        keys=None if keys_file is None else ApiKeys.read(keys_file),
        rate=rate if rate is not None else (120.0 if public else None),
    )
    chat.check()
    with closing(graph.open(workers=settings.query_workers + 1, low_priority=True)) as aside:
        metrics = Metrics()
        opened = partial(open_engine, graph, model, chat, method, workers=workers)
        service = Service(opened, aside, settings, metrics)
        app = make_app(service, metrics, access, openai=openai, dataset=dataset or DEFAULT_DATASET)
        run_server(app, service, host, port, proxies)


def _refuse_opening_by_file(is_local: bool) -> None:
    """Let only the command line and the environment open the server to others."""
    opening = ("public", "hosts", *(() if is_local else ("host",)))
    for parameter in click.get_current_context().command.params:
        if parameter.name in opening and is_from_file(parameter.name):
            raise InputError(
                f"{CONFIG_FILE} in the working folder would open the server to others. "
                f"Use {parameter.opts[0]} or {parameter.envvar} to do so."
            )


KEY_VARIABLE = "KBQA_VIA_KEY"

_LONGEST_S = 3600.0
"""The longest time limit that the server takes."""

_GRACE_S = 5.0
"""How much longer than its time limit a server is waited for."""

_EXAMPLE = "http://127.0.0.1:8080"


class ServedEngine:
    """The engine of a running `kbqa serve`; its key, if any, is read from `KEY_VARIABLE`."""

    def __init__(self, url: str) -> None:
        self._address = _read_url(url)
        self.url = self._address.shown  # for messages
        self._connections = Connections(self._address)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "kbqa",
        }
        self._key = _read_key()
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"

    def ask(
        self,
        question: str,
        topics: Sequence[Entity] = (),
        *,
        history: Sequence[str] = (),
        deadline_s: float | None = None,
        with_lines: bool,
    ) -> Mapping[str, Any]:
        """Answer a question, and return the record of the answer, also its ``lines`` if wanted.

        Each of the topics has a mid. `_error` says what the server's refusals raise, and
        `ServerError` is that it cannot be reached, wants a key, or is no `kbqa serve`.
        """
        limit_s = min(deadline_s or _LONGEST_S, _LONGEST_S)
        body = {
            "question": question,
            "topics": [topic.mid for topic in topics],
            "history": list(history),
            "max_answers": MAX_ANSWERS,
            "lines": with_lines,
        }
        if deadline_s is not None:
            body["timeout_s"] = limit_s
        response = self._send("/api/v1/ask", body, limit_s)
        record = _object(response.body)
        if response.status != http.HTTPStatus.OK:
            self._refuse(response, record)
        try:
            lines = [_line(each) for each in record.pop("lines", [])]
            if with_lines:
                lines += last_lines(f"the one of {self.url}", record["seconds"])
                record["lines"] = lines
            # What the server adds to the record of `kbqa ask`.
            del record["id"], record["trace"]["batch_size"], record["trace"]["cached"]
            if record["status"] in get_args(Status):
                return record
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # it is another kind of record
        raise self._no_kbqa()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _send(self, path: str, body: Mapping[str, object], limit_s: float) -> Response:
        url = self._address.url.rstrip("/") + path
        data, deadline = json.dumps(body).encode(), time.monotonic() + limit_s + _GRACE_S
        try:
            return self._connections.send(url, self._headers, data, deadline)
        except TimeoutError:
            raise DeadlineExceeded(f"no answer from {self.url} within {limit_s:g} s") from None
        except http.client.HTTPException:
            raise self._no_kbqa() from None
        except QueryTooLarge as error:
            raise ServerError(str(error)) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise ServerError(
                f"no server can be reached at {self.url}: {reason}. "
                "Start one with `kbqa serve`, or correct --via or KBQA_VIA."
            ) from error

    def _refuse(self, response: Response, problem: Mapping[str, Any]) -> NoReturn:
        """Raise what a response that is no answer means, as `kbqa.engine.serve.problems` has it."""
        detail, code = problem.get("detail"), problem.get("code")
        if not isinstance(detail, str) or not isinstance(code, str):
            raise self._no_kbqa(response)
        if response.status == http.HTTPStatus.UNAUTHORIZED:
            known, wanted = "does not know the key in", "wants a key. Set"
            raise ServerError(f"{self.url} {known if self._key else wanted} {KEY_VARIABLE}")
        raise _error(response.status, code, f"{self.url}: {detail}", problem.get("retry_after_s"))

    def _no_kbqa(self, response: Response | None = None) -> ServerError:
        status = "" if response is None else f" (HTTP status {response.status})"
        return ServerError(
            f"{self.url} does not answer as a `kbqa serve` of this version does{status}. "
            "Is it another server, or another version of kbqa?"
        )


def _error(status: int, code: str, message: str, retry_after_s: object) -> KbqaError:
    match status:
        case 429 | 503 if code in ("queue-full", "starting", "stopping", "too-fast"):
            seconds = retry_after_s if isinstance(retry_after_s, int) else 1
            text = f"{message.removesuffix(' Try again later.')} Try again in {seconds} s."
            return ServerBusy(cast(BusyReason, code), text, seconds)
        case 400 | 413 | 415 | 422:
            return InputError(message)
        case 504 if code == "deadline":
            return DeadlineExceeded(message)
        case 502 | 503 | 504:
            return GraphError(message)
        case 500:
            return AnsweringError(message)
        case _:
            return ServerError(message)


def _line(sent: Mapping[str, Any]) -> Line:
    line = Line(sent["text"], sent["style"], bool(sent["wraps"]))
    if not isinstance(line.text, str) or line.style not in (None, *get_args(Style)):
        raise ValueError(line)
    return line


def _object(body: bytes) -> dict[str, Any]:
    """Read a JSON object; anything else is an empty one."""
    try:
        found = json.loads(body)
        json.dumps(found, allow_nan=False)  # it is printed, and NaN is no JSON
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_url(url: str) -> Address:
    try:
        parts = urlsplit(url)
        is_plain = parts.username is None and not parts.query and not parts.fragment
        is_served = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_plain = is_served = False
    if not is_served:
        raise InputError(f"--via is the address of a `kbqa serve`, such as {_EXAMPLE}, not {url!r}")
    if not is_plain:
        raise InputError(
            f"--via is only an address, such as {_EXAMPLE}. A key is read from {KEY_VARIABLE}."
        )
    return read_address(url)


def _read_key() -> str:
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(f"{KEY_VARIABLE} holds blanks or characters that no key has")
    return key
