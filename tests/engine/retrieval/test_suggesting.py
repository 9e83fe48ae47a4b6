"""Relations that are suggested to the writer."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from kbqa.engine.linking.linker import Linker
from kbqa.engine.retrieval.subgraph import Subgraph
from kbqa.engine.retrieval.suggesting import RelationSuggester, best_relations
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import open_names
from kbqa.kb.open import open_graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Entity

CAPITAL, USED = "location.country.capital", "location.country.currency_used"
COUNTRIES_USED, GENDER = "finance.currency.countries_used", "people.person.gender"


def test_a_relation_is_as_good_as_its_best_triple_and_comes_under_its_better_name(
    small_store: Path,
) -> None:
    relations = (COUNTRIES_USED, CAPITAL, USED, GENDER)
    links = np.array([0, 1, 1, 2, 3], dtype=np.int32)
    ends = np.zeros(5, dtype=np.int32)
    subgraph = Subgraph(("m.03_r3",), relations, ends, links, ends, topics=1)
    scores = np.array([0.2, 0.1, 0.9, 0.3, 0.3])
    with open_graph(small_store) as graph:
        found = best_relations(subgraph, scores, GraphSchema(graph))
    assert found == (CAPITAL, USED, GENDER)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [("what is the capital of jamaica?", CAPITAL), ("what money is used in jamaica?", USED)],
)
def test_what_the_question_asks_for_comes_first(demo: Graph, question: str, wanted: str) -> None:
    with closing(open_names(demo)) as names:
        best = Linker(demo, names).link(question)[0]
    topics = [Entity(best.name, best.mid)]
    first, *others = RelationSuggester(demo, 4).suggest(question, topics)
    assert first == wanted
    assert len(others) == 3


def test_without_a_topic_nothing_is_suggested(demo: Graph) -> None:
    suggester = RelationSuggester(demo, 4)
    assert suggester.suggest("what is the capital?", []) == ()
    assert suggester.suggest("what is the capital?", [Entity("Nowhere", "m.0nowhere")]) == ()
