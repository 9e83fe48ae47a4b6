"""What tests of TRACE stand on."""

from typing import Any

import pytest
from trace_script import AskTrace

from kbqa.engine.embedding.embedder import Embedder
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity


@pytest.fixture(scope="session")
def ask_trace(embedder: Embedder, scripted_chat: Any) -> AskTrace:
    """Ask a question of TRACE."""
    return AskTrace(embedder, scripted_chat)


@pytest.fixture(scope="module")
def uganda(demo: Graph) -> Entity:
    """Its mid is minted, so it is looked up."""
    query = 'SELECT ?x { ?x ns:type.object.name "Uganda"@en . ?x ns:location.country.capital ?y }'
    [[mid]] = demo.select(query).rows
    assert isinstance(mid, str)
    return Entity("Uganda", mid)
