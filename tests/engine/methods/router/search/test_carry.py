from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.exploring.frontiers import Frontiers, RelationPath
from kbqa.engine.methods.router.search.carry import carry_constraints
from kbqa.kb.open import open_graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.forms import parse_crp, render_crp

BIEBER = Entity("Justin Bieber", "m.06w2sn5")
JAMAICA = Entity("Jamaica", "m.03_r3")
SIBLINGS = (Hop("people.person.sibling_s"), Hop("people.sibling_relationship.sibling"))
POPULATION = Hop("location.statistical_region.population")


@pytest.fixture(scope="module")
def frontiers(small_store: Path) -> Iterator[Frontiers]:
    graph = open_graph(small_store)
    yield Frontiers(graph, GraphSchema(graph))
    graph.close()


def carried(failed: str, path: RelationPath, frontiers: Frontiers) -> tuple[str, int]:
    """Carry the constraints of a CRP over; return the new one's lines, and how many were lost."""
    result = carry_constraints(parse_crp(failed).crp, path, frontiers)
    return render_crp(result.crp).split("\n", 1)[-1], len(result.lost)


@pytest.mark.parametrize(
    ("failed", "constraints"),
    [
        pytest.param(
            "Bieber -> people.person.siblings\n?x -> people.person.gender = Male",
            "?x -> people.person.gender = Male",
            id="the answer stays the answer",
        ),
        pytest.param(
            "Bieber -> a.b -> a.c\n?1 -> type.object.type = ns:people.sibling_relationship",
            "?1 -> type.object.type = ns:people.sibling_relationship",
            id="the node before the answer stays that",
        ),
        pytest.param(
            "Bieber -> a.b\n?0 -> people.person.gender = Male",
            "?0 -> people.person.gender = Male",
            id="the topic stays the topic",
        ),
        pytest.param(
            "Bieber -> a.b\n?x -> people.person.date_of_birth > 1990",
            "?0 -> people.person.date_of_birth > 1990",
            id="to the node that has the relation",
        ),
        pytest.param(
            "Bieber -> a.b\nlargest ?x -> people.person.gender",
            "largest ?x -> people.person.gender",
            id="the ordering",
        ),
        pytest.param(
            'Bieber -> a.b\n?x reads "Jaxon"', '?x reads "Jaxon"', id="a test of the answer itself"
        ),
        pytest.param(
            "Bieber -> a.b\n?x -> people.person.gender != Male\nany language\ndistinct from none",
            "?x -> people.person.gender != Male\ndistinct from none\nany language",
            id="what the answer may be",
        ),
    ],
)
def test_constraints_go_where_their_relation_is(
    failed: str, constraints: str, frontiers: Frontiers
) -> None:
    assert carried(failed, RelationPath(BIEBER, SIBLINGS), frontiers) == (constraints, 0)


@pytest.mark.parametrize(
    "lost",
    [
        "?x -> location.country.capital = Kingston",
        "largest ?x -> location.location.area",
        "?x -> location.location.area ?size\nlargest ?size",
        "?x -> location.location.area ?size\n?x -> people.person.gender < ?size",
    ],
)
def test_what_no_node_has_is_lost_with_all_that_refers_to_it(
    lost: str, frontiers: Frontiers
) -> None:
    result = carry_constraints(
        parse_crp(f"Bieber -> a.b\n{lost}").crp, RelationPath(BIEBER, SIBLINGS), frontiers
    )
    assert result.crp == Crp(BIEBER, SIBLINGS)
    assert len(result.lost) == len(lost.splitlines())


def test_a_label_goes_with_those_that_refer_to_it(frontiers: Frontiers) -> None:
    failed = (
        "Jamaica -> a.b\n?x -> measurement_unit.dated_integer.number ?n\n"
        "?x -> measurement_unit.dated_integer.year = 2009\nlargest ?n"
    )
    constraints, lost = carried(failed, RelationPath(JAMAICA, (POPULATION,)), frontiers)
    assert (constraints, lost) == (failed.split("\n", 1)[1], 0)


def test_a_chain_of_labels_is_lost_with_its_last_use(frontiers: Frontiers) -> None:
    failed = (
        "Bieber -> a.b\n?x -> people.person.gender ?n\n"
        "?x -> people.person.gender ?m {-> type.object.name < ?n}\n"
        "?x -> location.location.area < ?m"
    )
    result = carry_constraints(parse_crp(failed).crp, RelationPath(BIEBER, SIBLINGS), frontiers)
    assert result.crp == Crp(BIEBER, SIBLINGS)
    assert len(result.lost) == 3


def test_comparisons_with_a_node_point_to_its_new_position(frontiers: Frontiers) -> None:
    failed = (
        "Bieber -> a.b -> a.c -> a.d\n?x -> people.person.gender != ?2\n"
        "?x {-> people.person.gender is ?2 | -> people.person.gender = [Male]}"
    )
    constraints, lost = carried(failed, RelationPath(BIEBER, SIBLINGS), frontiers)
    assert (constraints, lost) == (failed.split("\n", 1)[1].replace("?2", "?1"), 0)


@pytest.mark.parametrize(
    ("failed", "lines"),
    [
        ("Bieber -> a.b\ncount", "count"),
        ("Bieber -> a.b\n?x = Jamaica\nask", "?x = Jamaica\nask"),
        (
            "Bieber -> a.b\n[Jamaica] -> c.d ?d\n?x -> e.f > ?d\n?x = Jamaica\nask",
            "?x = Jamaica\nask",
        ),
    ],
)
def test_a_repaired_path_counts_or_asks_as_the_failed_one_did(
    frontiers: Frontiers, failed: str, lines: str
) -> None:
    assert carried(failed, RelationPath(BIEBER, SIBLINGS), frontiers)[0] == lines


def test_a_yes_no_question_whose_test_is_lost_is_not_answered_with_yes(
    frontiers: Frontiers,
) -> None:
    failed = "Bieber -> a.b\n?1 -> c.d ?d\n?x > ?d\nask"
    lines, lost = carried(failed, RelationPath(BIEBER, SIBLINGS), frontiers)
    assert (lost, "ask" in lines.split("\n")) == (2, False)
