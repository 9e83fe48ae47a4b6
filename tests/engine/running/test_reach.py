from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.running.path_runner import find_break, is_reachable
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Constraint, Crp, Entity, Fork, Hop, IsEntity, Step, Way

BIEBER = Entity("Justin Bieber", "m.06w2sn5")
SIBLING_S, SIBLING = Hop("people.person.sibling_s"), Hop("people.sibling_relationship.sibling")
GENDER, NOTHING = Hop("people.person.gender"), Hop("a.b.c")


@pytest.fixture(scope="module", params=["store", "endpoint", "virtuoso"])
def graph(request: pytest.FixtureRequest, small_store: Path) -> Iterator[Graph]:
    if request.param == "store":
        graph = open_graph(small_store)
    elif request.param == "endpoint":
        graph = open_graph(endpoint=request.getfixturevalue("small_endpoint"))
    else:
        graph = open_graph(endpoint=request.getfixturevalue("virtuoso_endpoint"))
    yield graph
    graph.close()


def _fork(*ways: tuple[Step, ...]) -> Fork:
    return Fork(tuple(Way(way) for way in ways))


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ((NOTHING, SIBLING), "breaks at hop 1: a.b.c leads nowhere from Justin Bieber"),
        ((SIBLING_S, NOTHING), "breaks at hop 2: a.b.c leads nowhere from there"),
        (
            (SIBLING_S, Hop(SIBLING.relation, inverse=True)),
            "breaks at hop 2: people.sibling_relationship.sibling backwards leads nowhere "
            "from there",
        ),
        ((SIBLING_S, SIBLING, SIBLING), f"breaks at hop 3: {SIBLING.relation} leads nowhere"),
        (
            (_fork((NOTHING,), (SIBLING_S, NOTHING)), SIBLING),
            "breaks at hop 1: a fork of a.b.c, people.person.sibling_s, a.b.c leads nowhere "
            "from Justin Bieber",
        ),
        (
            (SIBLING_S, Hop(SIBLING_S.relation, inverse=True)),
            "leads to nothing but Justin Bieber and texts in other languages",
        ),
    ],
    ids=["first", "second", "backwards", "third", "fork", "back to the topic"],
)
def test_a_path_is_told_where_it_breaks(graph: Graph, path: tuple[Step, ...], where: str) -> None:
    crp = Crp(BIEBER, path)
    assert not is_reachable(graph, crp, 5)
    assert find_break(graph, crp, 5).startswith(where)


@pytest.mark.parametrize(
    "path",
    [(GENDER,), (SIBLING_S, SIBLING), (_fork((NOTHING,), (SIBLING_S,)), SIBLING)],
    ids=["one hop", "two hops", "one way of a fork"],
)
def test_constraints_do_not_matter(graph: Graph, path: tuple[Step, ...]) -> None:
    never = Constraint(len(path), (NOTHING,), IsEntity(BIEBER))
    assert is_reachable(graph, Crp(BIEBER, path, (never,)), 5)


def test_the_time_is_shared_by_the_hops(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[float] = []
    ask = graph.ask

    def asked(query: str, timeout_s: float) -> bool:
        allowed.append(timeout_s)
        return ask(query, timeout_s=5)

    monkeypatch.setattr(type(graph), "ask", lambda _, query, timeout_s: asked(query, timeout_s))
    find_break(graph, Crp(BIEBER, (SIBLING_S, NOTHING)), 60)
    assert 60 > allowed[0] > allowed[1] > 1
    find_break(graph, Crp(BIEBER, (SIBLING_S, NOTHING)), -1)
    assert allowed[2:] == [0.001] * 2


def test_a_graph_that_does_not_answer_in_time_is_told(graph: Graph) -> None:
    rounds = (Hop(GENDER.relation, inverse=True), GENDER) * 30
    where = find_break(graph, Crp(BIEBER, (GENDER, *rounds, NOTHING)), 0.5)
    assert where.startswith("where it breaks could not be found: no result from")
