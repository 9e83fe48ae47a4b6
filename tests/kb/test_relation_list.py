"""The relations of a graph, embedded and served, with a schema and without."""

from contextlib import closing

import pytest

from kbqa.kb.open import open_graph
from kbqa.kb.schema import list_relations
from kbqa.sparql.errors import GraphError


def test_a_store_lists_what_it_uses(small_store):
    with closing(open_graph(small_store)) as graph:
        relations = list_relations(graph)
    assert "people.person.sibling_s" in relations
    assert relations == sorted(set(relations))


def test_a_store_also_lists_what_the_schema_states_of_the_types_it_has(demo_store):
    with closing(open_graph(demo_store)) as graph:
        assert "location.country.capital" in list_relations(graph)


def test_an_endpoint_lists_what_its_schema_states(small_endpoint):
    with closing(open_graph(endpoint=small_endpoint)) as graph:
        assert list_relations(graph) == ["location.country.currency_used"]


def test_a_graph_without_relations_is_told(empty_endpoint):
    with (
        closing(open_graph(endpoint=empty_endpoint)) as graph,
        pytest.raises(GraphError, match="holds no relation"),
    ):
        list_relations(graph)
