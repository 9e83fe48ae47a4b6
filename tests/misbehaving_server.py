"""A real HTTP server on loopback that speaks OpenAI's protocol, and breaks it as told."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """What the server does with one request."""

    body: object  # bytes, or what is sent as JSON
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    sent_bytes: int | None = None  # then the connection is closed; 0 sends no status either
    drip_s: float | None = None  # an empty line as often, without an end
    drip_header_s: float | None = None  # a byte of a header as often, without an end
    do: Callable[[], object] = lambda: None

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class MisbehavingServer:
    """Gives its answers in order, the last one again and again; or by a function of the request."""

    def __init__(self) -> None:
        self.url = ""
        self.models = Answer(b"no such page", 404)
        self.headers: dict[str, str] = {}
        self.queue: list[Answer] = []
        self.answer: Callable[[Mapping[str, Any]], Answer] = self._next
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.paths: set[str] = set()
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def answers(self, body: object, **how: Any) -> None:
        """Answer the next request so."""
        self.queue.append(Answer(body, **how))

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
        self.models = Answer({"object": "list", "data": [{"id": name} for name in models]})

    @property
    def prompts(self) -> list[str]:
        """The last message of each request, in order."""
        return [asked["messages"][-1]["content"] for asked in self.asked]

    def take(self, asked: dict[str, Any]) -> Answer:
        with self._lock:
            self.asked.append(asked)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            return self.answer(asked)

    def end(self) -> None:
        with self._lock:
            self._at_once -= 1

    def _next(self, _: Mapping[str, Any]) -> Answer:
        return self.queue.pop(0) if len(self.queue) > 1 else self.queue[0]


@contextmanager
def misbehaving_server() -> Iterator[MisbehavingServer]:
    script = MisbehavingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._note()
            self._send(script.models)

        def do_POST(self) -> None:
            self._note()
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = script.take(asked)
            try:
                time.sleep(answer.after_s)
                answer.do()
            finally:
                script.end()  # before the client can know, and ask again
            self._send(answer)

        def _note(self) -> None:
            script.keys.add(self.headers["Authorization"])
            script.paths.add(self.path)

        def _send(self, answer: Answer) -> None:
            self.close_connection = answer.sent_bytes is not None
            if answer.sent_bytes == 0:
                return
            self.send_response(answer.status)
            if answer.drip_header_s is not None:
                self.flush_headers()
                self.wfile.write(b"X-Slow: ")
            while answer.drip_header_s is not None:
                self.wfile.write(b"x")
                time.sleep(answer.drip_header_s)
            self.send_header("Content-Type", "application/json")
            length = 10**6 if answer.drip_s is not None else len(answer.content)
            self.send_header("Content-Length", str(length))
            for name, value in (script.headers | answer.headers).items():
                self.send_header(name, value)
            self.end_headers()
            while answer.drip_s is not None:
                self.wfile.write(b"\n")
                time.sleep(answer.drip_s)
            self.wfile.write(answer.content[: answer.sent_bytes])

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
