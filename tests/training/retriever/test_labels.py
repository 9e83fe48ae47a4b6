from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.retrieval.retriever import Subgraph
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity
from kbqa.training.data.training_set import Example
from kbqa.training.retriever.examples import (
    Gold,
    NoGold,
    find_gold,
    label,
    labelled_path,
    load_labelled,
    load_names,
    on_shortest_paths,
    save_labelled,
)

JAMAICA, DOLLAR, KINGSTON = "m.03_r3", "m.04xc2m", "m.03yl7"
USED, USERS = "location.country.currency_used", "finance.currency.countries_used"
CAPITAL = "location.country.capital"
SUBGRAPH = Subgraph(
    nodes=(JAMAICA, DOLLAR, KINGSTON),
    relations=(USERS, CAPITAL, USED),
    heads=np.array([0, 1, 0], dtype=np.int32),
    links=np.array([2, 0, 1], dtype=np.int32),
    tails=np.array([1, 0, 2], dtype=np.int32),
    topics=1,
)


def test_a_gold_query_tells_its_answers_and_what_it_matches(graph: Graph) -> None:
    siblings = (Hop("people.person.sibling_s"), Hop("people.sibling_relationship.sibling"))
    male = Constraint(2, (Hop("people.person.gender"),), IsEntity(Entity(mid="m.05zppz")))
    gold = find_gold(graph, Crp(Entity(mid="m.06w2sn5"), siblings, (male,)))
    assert gold.answers == ("m.0gxnnwq",)
    assert [set(match) for match in gold.matches] == [
        {
            ("m.06w2sn5", "people.person.sibling_s", "m.0gxnnwp"),
            ("m.0gxnnwp", "people.sibling_relationship.sibling", "m.0gxnnwq"),
            ("m.0gxnnwq", "people.person.gender", "m.05zppz"),
        }
    ]


def test_a_gold_query_without_answers_is_left_out_with_its_reason(graph: Graph) -> None:
    with pytest.raises(NoGold, match="finds nothing"):
        find_gold(graph, Crp(Entity(mid=JAMAICA), (Hop("people.person.sibling_s"),)))
    with pytest.raises(NoGold, match="its query fails: InputError"):
        find_gold(graph, Crp(Entity(mid=JAMAICA), (Hop("no relation>"),)))


def test_a_relation_and_its_reverse_state_one_fact(graph: Graph, tmp_path: Path) -> None:
    gold = Gold((DOLLAR,), (((DOLLAR, USERS, JAMAICA),), ((JAMAICA, USED, "m.0unseen"),)))
    labelled = label("?", SUBGRAPH, gold, GraphSchema(graph))
    assert labelled.facts == 2
    assert labelled.stated.tolist() == [0, 0, -1]
    assert labelled.matches.tolist() == [[0], [1]]
    assert labelled.answers.tolist() == [1]
    assert labelled.shortest.tolist() == [True, True, False]
    example = Example("1", "?", "Jamaica", "small")
    path = labelled_path(tmp_path, example)
    save_labelled(path, labelled)
    found = load_labelled(path)
    for name in type(labelled).__slots__:
        assert np.array_equal(getattr(found, name), getattr(labelled, name)), name
    assert labelled_path(tmp_path, replace(example, target="Kenya")) != path


def test_the_names_of_nodes_are_kept_where_they_were_looked_up(
    graph: Graph, tmp_path: Path
) -> None:
    gold = Gold((DOLLAR,), (((DOLLAR, USERS, JAMAICA),),))
    labelled = label("?", SUBGRAPH, gold, GraphSchema(graph))
    path = tmp_path / "some.npz"
    save_labelled(path, labelled)
    assert load_names(path) is None
    names = ("Jamaica", None, "Kingston é")
    save_labelled(path, replace(labelled, names=names))
    assert load_names(path) == names
    assert load_labelled(path).names is None


@st.composite
def subgraphs(draw: st.DrawFn) -> tuple[Subgraph, list[str]]:
    nodes = tuple(f"m.{number}" for number in range(draw(st.integers(1, 6))))
    place = st.integers(0, len(nodes) - 1)
    edges = draw(st.lists(st.tuples(place, place), max_size=12))
    heads, tails = np.array(edges, dtype=np.int32).reshape(-1, 2).T
    links = np.arange(len(edges), dtype=np.int32) % 2
    topics = draw(st.integers(1, min(2, len(nodes))))
    answers = draw(st.lists(st.sampled_from(nodes), unique=True, max_size=3))
    return Subgraph(nodes, ("a", "b"), heads, links, tails, topics), answers


def walks(edges: list[tuple[int, int]], start: int, end: int) -> list[list[int]]:
    """List the shortest ways from a node to another, as places of edges."""
    found: list[tuple[int, list[int]]] = [(start, [])]
    for _ in range(6):
        ends = [way for node, way in found if node == end and way]
        if ends:
            return ends
        found = [
            (edges[at][1], [*way, at])
            for node, way in found
            for at in range(len(edges))
            if edges[at][0] == node
        ]
        found = found[:5000]
    return []


@given(subgraphs())
def test_shortest_paths_are_those_of_an_enumeration(case: tuple[Subgraph, list[str]]) -> None:
    subgraph, answers = case
    edges = list(zip(subgraph.heads.tolist(), subgraph.tails.tolist(), strict=True))
    expected = set()
    for topic in range(subgraph.topics):
        for end in (subgraph.nodes.index(answer) for answer in answers):
            if topic == end:
                continue
            ways = walks(edges, topic, end) + walks(edges, end, topic)
            least = min(map(len, ways), default=0)
            expected |= {at for way in ways if len(way) == least for at in way}
    assert set(np.flatnonzero(on_shortest_paths(subgraph, answers)).tolist()) == expected
