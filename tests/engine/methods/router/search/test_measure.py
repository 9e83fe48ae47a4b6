"""Orders and comparisons that a path lacks, found on the demo graph."""

from collections.abc import Sequence

import pytest

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.engine import Engine
from kbqa.engine.linking.model import LinkingModel
from kbqa.engine.methods.router.method import RouterKgqa
from kbqa.engine.methods.router.search.pool import PathPool
from kbqa.engine.resources import Resources
from kbqa.engine.running.execute import Policy
from kbqa.engine.running.tried import Tried
from kbqa.engine.writing.generate import Candidate, NoPaths
from kbqa.kb.graph import Graph

NEIGHBOURS = "Kenya -> location.location.adjoin_s -> location.adjoining_relationship.adjoins"
PLACES = "Kenya -> location.location.contains"
PEOPLE = "-> location.statistical_region.population -> measurement_unit.dated_integer.number"


def _tried(graph: Graph, question: str, path: str) -> Sequence[Tried]:
    """Run a written path and what is added to it."""
    resources = Resources(graph)
    pool = PathPool(graph, Embedder.load(), LinkingModel.load())
    method = RouterKgqa(resources, NoPaths(), Policy(), pool=pool)
    asked = Engine.over(resources, method).prepare(question)
    return method.try_all(asked, [Candidate(path, -1.0, 10)])


@pytest.mark.parametrize(
    ("question", "path", "line"),
    [
        ("what is the largest city in Kenya?", PLACES, f"largest ?x {PEOPLE}"),
        ("which neighbour of Kenya has the fewest people?", NEIGHBOURS, f"smallest ?x {PEOPLE}"),
        (
            "which neighbours of Kenya have more than 50 million people?",
            NEIGHBOURS,
            f"?x {PEOPLE} > 50000000",
        ),
        (
            "which neighbour of Kenya has the largest ISO numeric?",
            NEIGHBOURS,
            "largest ?x -> location.country.iso_numeric",
        ),
        (
            "how many neighbours of Kenya have more than 50 million people?",
            f"{NEIGHBOURS}\ncount",
            f"?x {PEOPLE} > 50000000\ncount",
        ),
        (
            "which neighbour of Kenya has the most people?",
            f"{NEIGHBOURS}\nsmallest ?x -> location.location.area",
            f"largest ?x {PEOPLE}",
        ),
    ],
    ids=["order", "other end", "comparison", "a code that is named", "count", "another order"],
)
def test_what_a_question_measures_is_added_to_a_path(
    demo: Graph, question: str, path: str, line: str
) -> None:
    added = [each.candidate.text for each in _tried(demo, question, path) if each.candidate.narrows]
    assert line in [text.partition("\n")[2] for text in added]


def test_neither_codes_nor_coordinates_are_sizes(demo: Graph) -> None:
    tried = _tried(demo, "what is the largest city in Kenya?", PLACES)
    added = " ".join(each.candidate.text for each in tried if each.candidate.narrows)
    assert added
    assert not any(name in added for name in ("iata", "latitude", "longitude"))


def test_a_comparison_that_nothing_satisfies_adds_nothing(demo: Graph) -> None:
    tried = _tried(demo, "which neighbours of Kenya have over 999 billion people?", NEIGHBOURS)
    assert not any(each.candidate.narrows for each in tried)


def test_constraints_that_share_a_label_are_not_carried_over(demo: Graph) -> None:
    path = f"{NEIGHBOURS}\n?x -> location.location.area ?a\nsmallest ?a"
    tried = _tried(demo, "which neighbour of Kenya has the most people?", path)
    assert any(each.candidate.text.endswith(f"largest ?x {PEOPLE}") for each in tried)


@pytest.mark.parametrize(
    ("question", "end"),
    [
        ("who was the first governor of Avonia?", "smallest"),
        ("who was the latest governor of Avonia?", "largest"),
    ],
)
def test_the_mediator_before_the_answer_is_measured_as_well(
    officials: Graph, question: str, end: str
) -> None:
    path = "Avonia -> government.jurisdiction.officials -> government.position_held.holder"
    added = [each for each in _tried(officials, question, path) if each.candidate.narrows]
    lines = [each.candidate.text.partition("\n")[2] for each in added]
    assert f"{end} ?1 -> government.position_held.from" in lines


def test_of_two_answers_one_may_be_asked_for(demo: Graph) -> None:
    """Switzerland and Liechtenstein."""
    question = "which country that uses the Swiss Franc has the largest area?"
    written, *others = _tried(demo, question, "Swiss Franc -> finance.currency.countries_used")
    assert len(written.terms) == 2
    assert written.crp is not None
    [largest] = [
        each
        for each in others
        if each.crp is not None
        and each.crp.path == written.crp.path
        and each.candidate.text.endswith("largest ?x -> location.location.area")
    ]
    assert len(largest.terms) == 1
