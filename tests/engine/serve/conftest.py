"""A server over the small graph, for tests that need what the extra `serve` brings."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from scripted_server import Running


@pytest.fixture(scope="session")
def running() -> "Callable[..., AbstractContextManager[Running]]":
    """Runs a server over a store, with settings of the test's own."""
    for package in ("fastapi", "uvicorn", "jinja2", "prometheus_client", "mcp", "httpx"):
        pytest.importorskip(package, reason="needs the serve extra")
    from scripted_server import running_server

    return running_server


@pytest.fixture(scope="module")
def server(
    small_store: Path, running: "Callable[..., AbstractContextManager[Running]]"
) -> "Iterator[Running]":
    """A server that the tests of a module share."""
    with running(small_store, openai=True) as started:
        yield started
