"""A real HTTP server on loopback that speaks OpenAI's chat protocol, and breaks it as told."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Answer:
    """What the server does with one request."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    sent_bytes: int | None = None  # then the connection is closed; 0 sends no status either
    drip_s: float | None = None  # an empty line as often, without an end
    do: Callable[[], object] = lambda: None


class MisbehavingServer:
    """Gives its answers in order; the last one again and again."""

    def __init__(self) -> None:
        self.url = ""
        self.models: Answer | None = None
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.most_at_once = 0
        self._answers: list[Answer] = []
        self._at_once = 0
        self._lock = threading.Lock()

    def answers(self, body: object, **how: Any) -> None:
        """Answer the next request so; `body` is bytes, or what is sent as JSON."""
        self._answers.append(Answer(_bytes(body), **how))

    def says(self, text: str | None, *, usage: object = (12, 3), reason: str = "stop", **how: Any):
        """Answer the next request with a chat completion."""
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": reason}
        body: dict[str, object] = {"choices": [choice]}
        if isinstance(usage, tuple):
            body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
        elif usage is not None:
            body["usage"] = usage
        self.answers(body, **how)

    def offers(self, *models: str) -> None:
        """List these models."""
        self.models = Answer(_bytes({"object": "list", "data": [{"id": name} for name in models]}))

    @property
    def prompts(self) -> list[str]:
        """The last message of each request, in order."""
        return [asked["messages"][-1]["content"] for asked in self.asked]

    def take(self, asked: dict[str, Any], key: str | None) -> Answer:
        with self._lock:
            self.asked.append(asked)
            self.keys.add(key)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def end(self) -> None:
        with self._lock:
            self._at_once -= 1


def _bytes(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    pytest.importorskip("openai", reason="needs the llm extra")
    script = MisbehavingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            script.keys.add(self.headers["Authorization"])
            self._send(script.models or Answer(b"no such page", 404))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = script.take(asked, self.headers["Authorization"])
            try:
                time.sleep(answer.after_s)
                answer.do()
            finally:
                script.end()  # before the client can know, and ask again
            self._send(answer)

        def _send(self, answer: Answer) -> None:
            self.close_connection = answer.sent_bytes is not None
            if answer.sent_bytes == 0:
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            length = 10**6 if answer.drip_s is not None else len(answer.body)
            self.send_header("Content-Length", str(length))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            while answer.drip_s is not None:
                self.wfile.write(b"\n")
                time.sleep(answer.drip_s)
            self.wfile.write(answer.body[: answer.sent_bytes])

        def log_message(self, *_: object) -> None:
            pass

    class Http(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # The client hung up, as it does where it is made to wait.

    with Http(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        script.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield script
        http.shutdown()
        thread.join()
