"""Run the application in uvicorn until a signal ends it, and let questions under way end first."""

import asyncio
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import uvicorn

from kbqa.engine.serve.access.guard import App
from kbqa.engine.serve.asking.lane import THREAD_PREFIX
from kbqa.engine.serve.service import CLOSING_S, Service
from kbqa.kb.commands.text import print_note
from kbqa.sparql.errors import KbqaError

logger = logging.getLogger(__name__)

GRACE_S = 12.0
"""Seconds that questions under way may take after a signal; then whoever waits is told."""

_OPEN_FILES = 65_536


class _Server(uvicorn.Server):
    """A server that refuses new questions from the first signal on."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._is_announced = False

    async def on_tick(self, counter: int) -> bool:
        if self._service.state == "ready" and not self._is_announced:
            self._is_announced = True
            print_note("Ready.")
        return await super().on_tick(counter) or self._service.state == "failed"

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        giving_up = asyncio.get_running_loop().call_later(GRACE_S, self._service.give_up)
        await super().shutdown(sockets)
        giving_up.cancel()


def run_server(app: App, service: Service, host: str, port: int, proxies: Sequence[str]) -> None:
    """Listen and answer until SIGTERM or Ctrl-C.

    Args:
        app: The application.
        service: What it answers with.
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        proxies: Addresses of proxies whose X-Forwarded-For is believed.

    Raises:
        KbqaError: The address is taken, or the engine cannot be opened.
    """
    _raise_open_files()
    listening = listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # addresses hold questions
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=int(GRACE_S + CLOSING_S),
        lifespan="on",
    )
    name = f"[{host}]" if ":" in host else host
    print_note(f"Listening on http://{name}:{listening.getsockname()[1]}/; loading the model.")
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises a signal again once it has stopped: that is no failure.
        signal.signal(number, lambda *_: None)
    _Server(config, service).run(sockets=[listening])
    if service.failure is not None:
        raise service.failure
    _end_threads()


def listen(host: str, port: int) -> socket.socket:
    """Open the port; connections wait until the server runs.

    Raises:
        KbqaError: The address cannot be listened on.
    """
    try:
        host.encode("idna")
    except UnicodeError:
        raise KbqaError(f"cannot listen on {host!r}: it is not the name of a machine.") from None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise KbqaError(
            f"cannot listen on {host} port {port}: {error.strerror}. Choose another --port."
        ) from None


def _end_threads() -> None:
    """Wait a little for threads that are still busy; Python itself would wait until they end."""
    ends_at = time.monotonic() + CLOSING_S
    busy = [each for each in threading.enumerate() if each.name.startswith(THREAD_PREFIX)]
    for each in busy:
        each.join(max(ends_at - time.monotonic(), 0.0))
    if any(each.is_alive() for each in busy):
        logger.info("leaving threads that are still busy")
        logging.shutdown()
        os._exit(0)


def _raise_open_files() -> None:
    """Allow as many connections as the system lets a process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
