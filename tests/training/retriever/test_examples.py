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
    Labelled,
    NoGold,
    find_gold,
    label,
    labelled_path,
    load_labelled,
    load_names,
    measure_recall,
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


# Topic 0; facts 0 and 1 lead over node 1 to answer 2, fact 2 to answer 3; fact 3 is out of sight.
# The last triple states fact 0 as well, by the reverse of its relation.
LABELLED = Labelled(
    question="?",
    relations=("a.b.c",),
    nodes=5,
    topics=1,
    heads=np.array([0, 1, 0, 0, 1], dtype=np.int32),
    links=np.zeros(5, dtype=np.int32),
    tails=np.array([1, 2, 3, 4, 0], dtype=np.int32),
    stated=np.array([0, 1, 2, -1, 0], dtype=np.int32),
    facts=4,
    matches=np.array([[0, 1], [2, 3]], dtype=np.int32),
    answers=np.array([2, 3, -1], dtype=np.int32),
    shortest=np.zeros(5, dtype=bool),
)


@pytest.mark.parametrize(
    ("order", "triples", "path", "answers"),
    [
        ([0, 1, 2, 3, 4], (1 / 4, 1 / 2, 3 / 4, 3 / 4), (0, 1, 1, 1), (0, 1 / 3, 2 / 3, 2 / 3)),
        ([4, 0, 3, 1, 2], (1 / 4, 1 / 4, 1 / 4, 1 / 2), (0, 0, 0, 1), (0, 0, 0, 1 / 3)),
        ([2, 3, 1, 0, 4], (1 / 4, 1 / 4, 1 / 2, 3 / 4), (0, 0, 0, 1), (1 / 3, 1 / 3, 2 / 3, 2 / 3)),
    ],
)
def test_what_is_right_counts_from_where_it_stands(
    order: list[int],
    triples: tuple[float, ...],
    path: tuple[float, ...],
    answers: tuple[float, ...],
) -> None:
    scores = np.zeros(5)
    scores[order] = [0.9, 0.8, 0.7, 0.6, 0.5]
    found = measure_recall(scores, LABELLED, (1, 2, 3, 4))
    assert found.triples == pytest.approx(triples)
    assert found.path == pytest.approx(path)
    assert found.answers == pytest.approx(answers)


def test_a_way_of_fewer_facts_is_padded() -> None:
    one = replace(LABELLED, matches=np.array([[0, 1], [2, -1]], dtype=np.int32))
    assert measure_recall(np.array([0, 0, 1.0, 0, 0]), one, (1,)).path == (1.0,)


def test_of_equal_scores_the_first_triple_comes_first() -> None:
    assert measure_recall(np.ones(5), LABELLED, (1, 3)).triples == (1 / 4, 3 / 4)


def test_a_subgraph_without_triples_recalls_nothing() -> None:
    nothing = np.array([], dtype=np.int32)
    empty = replace(LABELLED, heads=nothing, links=nothing, tails=nothing, stated=nothing)
    assert measure_recall(np.array([]), empty, (10,)) == ((0.0,), (0.0,), (0.0,))
