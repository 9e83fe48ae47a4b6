"""Where a query starts: at the constraint that leaves the least to join."""

from collections.abc import Iterator

import pytest

from kbqa.engine.running.path_runner import choose_start
from kbqa.kb.graph import Graph
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.open import open_graph
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import Constraint, Crp, Entity, Fork, Hop, IsEntity, Step, Way
from kbqa.sparql.terms import iri

HUB, RARE, COMMON = Entity(mid="m.hub"), Entity(mid="m.rare"), Entity(mid="m.common")
HOLDS, OF = Hop("a.holds"), Hop("a.of", inverse=True)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A hub of 300 nodes, of which every other one is common and three are rare."""
    triples = []
    for number in range(300):
        node = f"m.n{number}"
        triples += [("m.hub", "a.holds", node), (node, "a.of", "m.hub")]
        triples += [(node, "a.is", "m.common")] if number % 2 else []
        triples += [(node, "a.is", "m.rare")] if number in (7, 8, 9) else []
        triples += [(node, "a.near", f"m.n{number + 2}")]
    folder = tmp_path_factory.mktemp("hub")
    dump = folder / "hub.nt"
    lines = (" ".join(map(iri, triple)) + " .\n" for triple in triples)
    dump.write_text("".join(lines), encoding="utf-8")
    load_freebase([dump], folder / "store")
    graph = open_graph(folder / "store")
    yield graph
    graph.close()


def far(entity: Entity, *relations: str) -> Constraint:
    return Constraint(1, tuple(map(Hop, relations)), IsEntity(entity))


def keep(entity: Entity, **marks: bool) -> Constraint:
    return Constraint(1, (Hop("a.is"),), IsEntity(entity), **marks)


@pytest.mark.parametrize(
    ("topic", "first", "constraints", "chosen"),
    [
        pytest.param(HUB, HOLDS, (keep(RARE),), 0, id="hub that holds"),
        pytest.param(HUB, OF, (keep(COMMON), keep(RARE)), 1, id="hub that nodes are of"),
        pytest.param(HUB, OF, (keep(COMMON),), None, id="not rarer than the hub"),
        pytest.param(HUB, OF, (), None, id="no constraint"),
        pytest.param(HUB, OF, (keep(RARE, optional=True),), None, id="optional"),
        pytest.param(HUB, OF, (keep(RARE, negated=True),), None, id="negated"),
        pytest.param(RARE, Hop("a.is", inverse=True), (keep(COMMON),), None, id="no hub"),
        pytest.param(
            Entity(mid="m.n7"),
            Hop("a.near", inverse=True),
            (keep(COMMON), far(RARE, "a.near", "a.is")),
            1,
            id="far away, for few",
        ),
        pytest.param(
            RARE, Hop("a.is", inverse=True), (far(HUB, "a.near", "a.of"),), None, id="for many"
        ),
        pytest.param(HUB, Fork((Way((HOLDS,)), Way((OF,)))), (keep(RARE),), None, id="fork"),
    ],
)
def test_queries_start_at_the_rarest(
    graph: Graph,
    topic: Entity,
    first: Step,
    constraints: tuple[Constraint, ...],
    chosen: int | None,
) -> None:
    crp = Crp(topic, (first,), constraints)
    start = choose_start(graph, crp)
    assert start == (None if chosen is None else constraints[chosen])
    # Where a query starts changes nothing about its answers.
    rows = graph.select(compile_crp(crp)).rows
    assert sorted(graph.select(compile_crp(crp, start)).rows) == sorted(rows)
    assert rows or any(constraint.negated for constraint in constraints)
