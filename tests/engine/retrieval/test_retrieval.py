"""From a question to its best triples, over a real store."""

from pathlib import Path

import numpy as np
import pytest

from kbqa.engine.asked import Clock
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.retrieval.retrieval import (
    PoolingSettings,
    RetrievedTriple,
    TripleScorer,
    make_scorer,
    number_facts,
    retrieve,
)
from kbqa.engine.retrieval.retriever import Subgraph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.terms import LiteralTerm

pytest.importorskip("sentence_transformers", reason="needs the lm extra")

NO_POOLING = PoolingSettings(mechanism="none")
MONEY, USERS = "location.country.currency_used", "finance.currency.countries_used"


@pytest.fixture(scope="module")
def scorer() -> TripleScorer:
    return make_scorer("trained", Embedder.load())


def test_triples_of_a_store_come_best_first(small_store: Path, scorer: TripleScorer) -> None:
    clock = Clock()
    with open_graph(small_store) as graph:
        schema = GraphSchema(graph)
        found = retrieve(
            graph, schema, scorer, "what money is used?", ["m.03_r3"], 3, NO_POOLING, clock=clock
        )
        triples = list(found.triples())
        assert len(triples) == 3
        assert {triples[0].subject, triples[0].object} == {"m.03_r3", "m.04xc2m"}
        assert [each.score for each in triples] == sorted((t.score for t in triples), reverse=True)
        assert {each.pooled for each in triples} == {None}
        assert found.seen == len(found.subgraph.heads) > 3
        assert not found.truncated
        assert set(clock.seconds) == {"extract", "score", "pool"}
        pooled = retrieve(graph, schema, scorer, "what?", ["m.03_r3"], 99, PoolingSettings())
        assert all(each.pooled is not None for each in pooled.triples())


def test_a_fact_is_selected_by_one_of_its_names(small_store: Path, scorer: TripleScorer) -> None:
    with open_graph(small_store) as graph:
        given = (graph, GraphSchema(graph), scorer, "what money is used?", ["m.03_r3"], 99)
        twice = list(retrieve(*given, NO_POOLING, shown="twice").triples())
        once = list(retrieve(*given, NO_POOLING).triples())
    assert {MONEY, USERS} <= {each.relation for each in twice}
    assert len({MONEY, USERS} & {each.relation for each in once}) == 1
    assert len(once) < len(twice)


def test_a_triple_and_its_reverse_have_one_number(small_store: Path) -> None:
    subgraph = Subgraph(
        ("m.03_r3", "m.04xc2m", "m.06w2sn5"),
        (USERS, MONEY, "people.person.gender"),
        heads=np.array([0, 1, 2, 0], np.int32),
        links=np.array([1, 0, 2, 0], np.int32),
        tails=np.array([1, 0, 1, 1], np.int32),
        topics=1,
    )
    with open_graph(small_store) as graph:
        numbers = number_facts(subgraph, GraphSchema(graph)).tolist()
    assert numbers[0] == numbers[1]
    assert len(set(numbers)) == 3


def test_nothing_is_retrieved_around_nothing(small_store: Path, scorer: TripleScorer) -> None:
    with open_graph(small_store) as graph:
        schema = GraphSchema(graph)
        for topics in ([], ["m.0zzzzz"]):
            found = retrieve(graph, schema, scorer, "what?", topics, 5, PoolingSettings())
            assert list(found.triples()) == []
            assert found.seen == 0


def test_records_say_what_is_a_literal() -> None:
    triple = RetrievedTriple("m.1", "a.b.c", LiteralTerm("1963", "gYear"), 0.12345678, None)
    assert triple.to_dict() == {
        "subject": "m.1",
        "relation": "a.b.c",
        "object": "1963",
        "score": 0.1235,
        "pooled": None,
        "is_literal": True,
    }
    assert "is_literal" not in RetrievedTriple("m.1", "a.b.c", "m.2", 0.5, 0.5).to_dict()
