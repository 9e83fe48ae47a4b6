from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph


@pytest.fixture(scope="module")
def graph(small_store: Path) -> Iterator[Graph]:
    """The small graph in one way of asking it: runs do not depend on the way."""
    graph = open_graph(small_store)
    yield graph
    graph.close()
