from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.retrieval.retriever import PAGE_RANK_ROUNDS as ROUNDS
from kbqa.engine.retrieval.retriever import (
    RESTART,
    Caps,
    Cut,
    Subgraph,
    encode_distances,
    extract,
    page_rank,
)
from kbqa.kb.graph import Graph
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.terms import LiteralTerm, Term
from tools.graph_servers import MissingServer, oxigraph_server

NS = "http://rdf.freebase.com/ns/"
BORN = LiteralTerm("1950")

# An actor played in two films, each by a mediator; one film has a country, where five people live.
GRAPH = """
m.actor film.actor.film m.part1
m.actor film.actor.film m.part2
m.actor people.person.date_of_birth "1950"
m.actor type.object.type film.actor
m.part1 film.performance.actor m.actor
m.part1 film.performance.film m.film1
m.part2 film.performance.actor m.actor
m.part2 film.performance.film m.film2
m.film1 film.film.starring m.part1
m.film1 film.film.country m.land
m.film2 film.film.starring m.part2
m.film2 film.film.sequel m.film3
m.film2 film.film.genre m.drama
m.film3 film.film.genre m.drama
m.land location.country.people m.p1
m.land location.country.people m.p2
m.land location.country.people m.p3
m.land location.country.people m.p4
m.land location.country.people m.p5
m.land location.country.capital m.town
film.performance freebase.type_hints.mediator "true"
film.actor.film type.property.schema film.actor
film.actor.film type.property.expected_type film.performance
film.actor.film type.property.reverse_property film.performance.actor
film.performance.actor type.property.schema film.performance
film.performance.actor type.property.expected_type film.actor
film.performance.film type.property.schema film.performance
film.performance.film type.property.expected_type film.film
film.performance.film type.property.reverse_property film.film.starring
film.film.starring type.property.schema film.film
film.film.starring type.property.expected_type film.performance
"""


@pytest.fixture(scope="module")
def film_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("films")
    lines = []
    for line in GRAPH.strip().splitlines():
        subject, relation, value = line.split(" ")
        end = value if value.startswith('"') else f"<{NS}{value}>"
        lines.append(f"<{NS}{subject}>\t<{NS}{relation}>\t{end}\t.\n")
    (directory / "films.nt").write_text("".join(lines))
    load_freebase([directory / "films.nt"], directory / "store", rules=profile("full"))
    return directory / "store"


@pytest.fixture(scope="module", params=["store", "endpoint"])
def films(request: pytest.FixtureRequest, film_store: Path) -> Iterator[Graph]:
    with ExitStack() as stack:
        if request.param == "store":
            yield stack.enter_context(open_graph(film_store))
            return
        try:
            url = stack.enter_context(oxigraph_server(film_store / "graph", timeout_s=5))
        except MissingServer as error:
            pytest.skip(str(error))
        yield stack.enter_context(open_graph(endpoint=url))


def around(graph: Graph, *topics: str, **caps: int) -> Subgraph:
    chosen = replace(Caps(), **caps)
    return extract(graph, GraphSchema(graph), topics, chosen)


def triples(subgraph: Subgraph) -> set[tuple[Term, str, Term]]:
    return {
        (subgraph.nodes[head], subgraph.relations[link], subgraph.nodes[tail])
        for head, link, tail in zip(subgraph.heads, subgraph.links, subgraph.tails, strict=True)
    }


FIRST_HOP = {
    ("m.actor", "film.actor.film", "m.part1"),
    ("m.actor", "film.actor.film", "m.part2"),
    ("m.actor", "people.person.date_of_birth", BORN),
    ("m.part1", "film.performance.actor", "m.actor"),
    ("m.part1", "film.performance.film", "m.film1"),
    ("m.part2", "film.performance.actor", "m.actor"),
    ("m.part2", "film.performance.film", "m.film2"),
    ("m.film1", "film.film.starring", "m.part1"),
    ("m.film2", "film.film.starring", "m.part2"),
}


def test_a_mediator_is_no_hop(films: Graph) -> None:
    found = around(films, "m.actor", hops=1)
    assert triples(found) == FIRST_HOP
    assert found.nodes == ("m.actor", BORN, "m.film1", "m.film2", "m.part1", "m.part2")
    assert found.relations == tuple(sorted({relation for _, relation, _ in FIRST_HOP}))
    assert (found.topics, found.cut) == (1, Cut())


def test_two_hops(films: Graph) -> None:
    assert triples(around(films, "m.actor")) == FIRST_HOP | {
        ("m.film1", "film.film.country", "m.land"),
        ("m.film2", "film.film.sequel", "m.film3"),
        ("m.film2", "film.film.genre", "m.drama"),
    }


def test_topics_are_entered_too_and_come_first(films: Graph) -> None:
    found = around(films, "m.film3", "m.drama", "m.film3", "m.nowhere", "en.not|an^iri", hops=1)
    assert found.nodes[:5] == ("m.film3", "m.drama", "m.nowhere", "en.not|an^iri", "m.film2")
    assert found.topics == 4
    assert triples(found) == {
        ("m.film2", "film.film.sequel", "m.film3"),
        ("m.film2", "film.film.genre", "m.drama"),
        ("m.film3", "film.film.genre", "m.drama"),
    }


def test_nothing_around_a_topic_that_the_graph_lacks(films: Graph) -> None:
    found = around(films, "m.nowhere")
    assert (found.nodes, found.relations, len(found.heads)) == (("m.nowhere",), (), 0)
    assert len(around(films).nodes) == 0


def test_of_a_relation_with_many_edges_the_first_are_kept(films: Graph) -> None:
    found = around(films, "m.land", hops=1, per_relation=2)
    people = sorted(tail for _, relation, tail in triples(found) if relation.endswith("people"))
    assert people == ["m.p1", "m.p2"]
    assert found.cut == Cut(relations=1)


def test_a_hub_is_an_end(films: Graph) -> None:
    found = around(films, "m.film1", hops=2, per_node=5)
    assert "m.land" in found.nodes
    assert "m.town" not in found.nodes
    assert found.cut == Cut(hubs=1)


def test_of_a_topic_that_is_a_hub_relations_with_many_edges_are_left_out(films: Graph) -> None:
    found = around(films, "m.land", hops=1, per_node=5, per_relation=4)
    assert triples(found) == {
        ("m.land", "location.country.capital", "m.town"),
        ("m.film1", "film.film.country", "m.land"),
    }
    assert found.cut == Cut(relations=1)


def test_entities_that_stand_alone_are_expanded_first(films: Graph) -> None:
    # The country is one of one, each film one of two.
    found = around(films, "m.actor", "m.film1", frontier=3)
    assert {"m.town", "m.film2"} <= set(found.nodes)
    assert "m.film3" not in found.nodes
    assert found.cut == Cut(entities=1)


def test_too_many_triples_are_cut_by_their_distance(films: Graph) -> None:
    whole = around(films, "m.actor")
    found = around(films, "m.actor", triples=5)
    assert triples(found) < triples(whole)
    assert len(found.heads) == 5
    assert found.cut == Cut(triples=len(whole.heads) - 5)
    assert set(found.nodes) == {end for head, _, tail in triples(found) for end in (head, tail)}
    assert set(found.relations) == {relation for _, relation, _ in triples(found)}


Edges = Sequence[tuple[int, int]]


@st.composite
def multigraphs(draw: st.DrawFn) -> tuple[Edges, int, int]:
    nodes = draw(st.integers(1, 8))
    end = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(end, end), max_size=20))
    return edges, nodes, draw(st.integers(1, nodes))


def by_dictionary(edges: Edges, nodes: int, topics: int, rounds: int) -> list[list[float]]:
    rows: dict[int, list[float]] = {}
    for node in range(nodes):
        rows[node] = [0.0, 1.0] if node < topics else [1.0, 0.0]
    start = {node: list(row) for node, row in rows.items()}
    for directed in (edges, [(tail, head) for head, tail in edges]):
        marks = start
        for _ in range(rounds):
            following: dict[int, list[float]] = {}
            for node in range(nodes):
                sources = [marks[head] for head, tail in directed if tail == node]
                following[node] = [sum(c) / len(sources) for c in zip(*sources, strict=True)] or [
                    0.0,
                    0.0,
                ]
            marks = following
            for node in range(nodes):
                rows[node] = rows[node] + marks[node]
    return [rows[node] for node in range(nodes)]


def encoded(edges: Edges, nodes: int, topics: int, rounds: int) -> np.ndarray:
    heads = np.array([head for head, _ in edges], dtype=np.int32)
    tails = np.array([tail for _, tail in edges], dtype=np.int32)
    return encode_distances(heads, tails, nodes, topics, rounds)


@given(multigraphs(), st.integers(1, 3))
def test_distances_are_those_of_the_definition(graph: tuple[Edges, int, int], rounds: int) -> None:
    found = encoded(*graph, rounds)
    assert found.shape == (graph[1], 2 + 4 * rounds)
    assert found == pytest.approx(np.array(by_dictionary(*graph, rounds)), abs=1e-6)


def test_parallel_edges_count_each() -> None:
    # Node 2 has three edges from others, two of them from the topic.
    found = encoded([(0, 2), (0, 2), (1, 2)], nodes=3, topics=1, rounds=1)
    assert found[2].tolist() == pytest.approx([1, 0, 1 / 3, 2 / 3, 0, 0])


def test_without_rounds_nothing_is_known() -> None:
    assert encoded([(0, 1)], nodes=2, topics=1, rounds=0).shape == (2, 0)


EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


def by_walking(edges: list[tuple[int, int]], topics: int) -> list[float]:
    """Compute the same, edge by edge."""
    start = [1 / topics if node < topics else 0.0 for node in range(6)]
    ways = edges + [(tail, head) for head, tail in edges]
    reached = start
    for _ in range(ROUNDS):
        after = [RESTART * share for share in start]
        for head, tail in ways:
            leaving = sum(one == head for one, _ in ways)
            after[tail] += (1 - RESTART) * reached[head] / leaving
        reached = after
    return reached


@given(EDGES, st.integers(1, 3))
def test_page_rank_is_the_share_of_walks(edges: list[tuple[int, int]], topics: int) -> None:
    heads, tails = np.array(edges, np.int32).reshape(-1, 2).T
    assert page_rank(heads, tails, 6, topics) == pytest.approx(by_walking(edges, topics))


def test_nodes_that_are_alike_have_the_same_score() -> None:
    heads, tails = np.array([[0, 0, 0], [1, 2, 3]], np.int32)
    scores = page_rank(heads, tails, 4, 1)
    assert scores[1] == scores[2] == scores[3]
    assert scores.sum() == pytest.approx(1)
