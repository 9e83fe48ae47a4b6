"""Sums, averages and differences of the demo graph, from paths as the shipped model writes them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbqa.engine.answer import Answer, answer_lines, literal_forms
from kbqa.engine.engine import Engine
from kbqa.engine.running.evidence import PathTrace
from kbqa.engine.running.tried import Tried
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.terms import LiteralTerm

Ask = Callable[..., Answer]

WITHIN = "base.locations.continents.countries_within"
AREA = "location.location.area"
PEOPLE = "location.statistical_region.population -> measurement_unit.dated_integer.number"
ELEVATION = "location.location.geolocation -> location.geocode.elevation"
EUROPE = (
    f"Europe -> {WITHIN} -> {AREA}",
    f"Europe -> {WITHIN}\nlargest ?x -> {AREA}",
    f"Europe -> {WITHIN}\ncount",
)
FRANCE = (
    f"France -> {PEOPLE}\n?1 -> common.topic.notable_types = Country\ncount",
    f"France -> {PEOPLE}\n[Germany] -> {PEOPLE} ?a\n?x < ?a\nask",
)
SUDAN = (
    f"Sudan -> {AREA}\n[Kenya] -> {AREA} ?a\n?x > ?a\nask",
    f"Sudan -> {AREA}\n?x <- location.location.adjoin_s = Kenya\ncount",
)


@pytest.fixture(scope="module")
def opened(demo_store: Path, scripted: Any) -> Iterator[tuple[Engine, Any]]:
    model = scripted()
    with open_graph(demo_store) as graph, Engine(graph, model, settings={"asker": "no"}) as engine:
        yield engine, model


@pytest.fixture
def ask(opened: tuple[Engine, Any]) -> Ask:
    def ask(question: str, *texts: str) -> Answer:
        engine, model = opened
        model.replies.append([(text, -float(rank)) for rank, text in enumerate(texts)])
        return engine.ask(question)

    return ask


def tried(answer: Answer) -> Sequence[Tried]:
    assert isinstance(answer.trace, PathTrace)
    return answer.trace.tried


def said(answer: Answer, graph: Graph) -> str:
    return next(answer_lines(answer, literal_forms(answer, graph))).text


def value(answer: Answer) -> float:
    assert answer.status == "answered"
    assert answer.value is not None
    return answer.value.number


@pytest.mark.parametrize(
    ("question", "texts", "right", "of"),
    [
        ("average area of the countries in Europe", EUROPE, 443845.04, 52),
        ("what is the total area of all the countries in Europe?", EUROPE, 23079942.0, 52),
        ("how many people live in France and Germany together", FRANCE, 149915166, 2),
        ("how much bigger is Sudan than Kenya", SUDAN, 1278834, 2),
        ("how much bigger is Kenya than Sudan in square km?", SUDAN, 1278834, 2),
        (
            "what is the average elevation of airports in Norway?",
            [
                "Norway -> location.location.contains\n"
                f"?x -> common.topic.notable_types = Airport\nlargest ?x -> {ELEVATION}"
            ],
            61.26,
            5,
        ),
        (
            "What's the difference in elevation between Quito's Mariscal Sucre airport and El Alto"
            " International?",
            [
                "ns:location.us_county <- type.object.type\n?x {= [Quito's Mariscal Sucre Airport]"
                f" | = [El Alto International]}}\nlargest ?x -> {ELEVATION}"
            ],
            1266.4,
            2,
        ),
    ],
    ids=["average", "sum", "together", "difference", "turned round", "of an order", "namesakes"],
)
def test_a_question_for_a_sum_is_answered_with_a_number(
    ask: Ask, question: str, texts: Sequence[str], right: float, of: int
) -> None:
    answer = ask(question, *texts)
    assert value(answer) == pytest.approx(right, rel=1e-6)
    assert (len(answer.answers), answer.not_understood) == (of, ())
    assert answer.to_dict()["value"] == pytest.approx(right, rel=1e-6)
    assert any(isinstance(triple.object, LiteralTerm) for triple in answer.evidence)
    assert answer.sparql is not None
    assert crp_from_sparql(answer.sparql).form.split()[0] in ("sum", "average", "difference")


def test_equal_numbers_are_added_up_each(ask: Ask, demo: Graph) -> None:
    """Three pairs of countries have the same area."""
    path = f"North America -> {WITHIN} -> {AREA}"
    query = f"""SELECT ?x ?a {{ ?c ns:type.object.name "North America"@en .
        ?c ns:{WITHIN} ?x . ?x ns:{AREA} ?a }}"""
    areas = [float(str(getattr(row[1], "text", ""))) for row in demo.select(query).rows]
    assert len(set(areas)) < len(areas)
    answer = ask("what is the average area of the countries in North America?", path)
    assert value(answer) == pytest.approx(sum(areas) / len(areas))
    answer = ask("what is the total area of the countries in North America?", path)
    assert value(answer) == pytest.approx(sum(areas))


def test_counts_of_two_are_one_count_of_both(ask: Ask) -> None:
    texas = "Texas -> location.location.contains\n?x -> common.topic.notable_types = US County"
    answer = ask("how many counties do Texas and Georgia have between them", f"{texas}\ncount")
    assert (answer.count, answer.value, answer.status) == (413, None, "answered")


def test_an_average_says_how_many_have_no_number(ask: Ask, demo: Graph) -> None:
    answer = ask("average area of the countries in Europe", *EUROPE)
    assert answer.problem == f"1 of 53 has no {AREA} in the graph"
    assert said(answer, demo).startswith("443,845 on average, of 52: Russia, Ukraine, France,")


def test_a_difference_says_which_is_larger(ask: Ask, demo: Graph) -> None:
    answer = ask("how much bigger is Kenya than Sudan?", *SUDAN)
    assert said(answer, demo) == "1,278,834: Sudan has more than Kenya"


def test_a_sum_says_what_it_is_of(ask: Ask, demo: Graph) -> None:
    answer = ask("how many people live in France and Germany together", *FRANCE)
    assert said(answer, demo) == "149,915,166 in total, of 2: Germany, France"


def test_neither_a_list_nor_the_largest_nor_a_count_is_an_average(ask: Ask) -> None:
    texts = [f"Europe -> {WITHIN}", f"Europe -> {WITHIN}\nlargest ?x -> {ELEVATION}", EUROPE[2]]
    answer = ask("what is the average wealth of the countries in Europe?", *texts)
    assert all(each.table is None or each.value is not None for each in tried(answer))


def test_one_number_is_no_average_of_others(ask: Ask) -> None:
    """The demo graph has no areas of states."""
    texts = [f"Australia -> {AREA}", "Australia -> location.location.contains"]
    answer = ask("what is the mean area of the states of Australia?", *texts)
    assert "7686850.0" not in [each.name for each in answer.answers]


def test_yes_is_not_by_how_much(ask: Ask) -> None:
    answer = ask("how much older is Sudan than Kenya?", SUDAN[0].replace(AREA, "a.b"))
    assert (answer.status, answer.reason) == ("none", "unfit")


def test_a_total_that_the_graph_knows_is_taken_as_it_is(ask: Ask) -> None:
    answer = ask("what is the total population of France?", f"France -> {PEOPLE}")
    assert ([each.name for each in answer.answers], answer.value) == (["66987244"], None)
    assert answer.status == "answered"


def test_a_sum_needs_a_number_of_each(ask: Ask) -> None:
    """The demo graph has no area of France's continent."""
    answer = ask("what is the combined area of France and Europe?", f"France -> {AREA}")
    assert (answer.status, answer.reason, answer.value) == ("none", "empty", None)
    assert answer.problem is not None
    assert f"the graph has no {AREA} of Europe to compare" in answer.problem
    [written] = [each for each in tried(answer) if not each.candidate.is_searched]
    assert written.problem == f"the graph has no {AREA} of Europe to compare"


def test_a_sum_that_a_person_writes_is_run(demo: Graph) -> None:
    path = f"Europe -> {WITHIN}\n?x -> {AREA} ?a\n"
    with Engine(demo) as engine:
        found = [engine.run_path(f"{path}{form} ?a") for form in ("sum", "average", "difference")]
        assert engine.run_path(f"Europe -> {WITHIN}\nsum ?x").status == "none"
        bindings = engine.run_path(f"Europe -> {WITHIN} -> {AREA}\nsum bindings ?x")
    assert [value(each) for each in found] == pytest.approx(
        [23079942.0, 443845.038, 17099999.51], rel=1e-3
    )
    assert value(bindings) == pytest.approx(23079942.0)
