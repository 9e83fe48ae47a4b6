from pathlib import Path

import pytest

from kbqa.kb.entity_search import find_entities
from kbqa.kb.select_graph import open_graph
from kbqa.sparql.errors import EndpointError


@pytest.mark.parametrize(
    ("text", "name", "matched", "is_alias"),
    [
        pytest.param("Jamaica", "Jamaica", "Jamaica", False, id="own name"),
        pytest.param("jamaica", "Jamaica", "Jamaica", False, id="lower case"),
        pytest.param("jaxon bieber", "Jaxon Bieber", "Jaxon Bieber", False, id="untagged"),
        pytest.param('J. "Biebs" Bieber', "Justin Bieber", 'J. "Biebs" Bieber', True, id="alias"),
    ],
)
def test_a_store_and_an_endpoint_find_the_same(
    small_store: Path,
    small_endpoint: str,
    text: str,
    name: str,
    matched: str,
    is_alias: bool,
) -> None:
    for graph in (open_graph(store=small_store), open_graph(endpoint=small_endpoint)):
        first = find_entities(graph, text)[0]
        assert (first.name, first.matched, first.is_alias) == (name, matched, is_alias)
        assert first.score == 1
        # Of a node's own triples and those that lead to it.
        assert first.popularity == {"Jamaica": 10, "Jaxon Bieber": 3, "Justin Bieber": 7}[name]
        graph.close()


def test_nobody_of_that_name(small_store: Path, small_endpoint: str) -> None:
    for graph in (open_graph(store=small_store), open_graph(endpoint=small_endpoint)):
        assert find_entities(graph, "Zanzibar") == []
        assert find_entities(graph, '"} UNION { ?mid ?relation ?matched } #') == []
        graph.close()


def test_an_endpoint_that_is_down_is_not_an_empty_result() -> None:
    graph = open_graph(endpoint="http://127.0.0.1:9/sparql")
    with pytest.raises(EndpointError):
        find_entities(graph, "Kenya")
