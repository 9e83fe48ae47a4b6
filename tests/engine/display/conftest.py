from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph


@pytest.fixture
def small_graph(small_store: Path) -> Iterator[Graph]:
    with open_graph(small_store) as graph:
        yield graph
