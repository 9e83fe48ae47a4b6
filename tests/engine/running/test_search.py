from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import Frontiers, RelationPath
from kbqa.engine.running.path_runner import is_reachable
from kbqa.engine.running.search import (
    Guide,
    GuidedSearch,
    PathSearch,
    ScoredPath,
    SearchWidths,
    carry_constraints,
)
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.forms import parse_crp, render_crp

CURRENCY = (Hop("location.country.currency_used"),)
BORDERS = (
    Hop("location.location.adjoin_s"),
    Hop("location.adjoining_relationship.adjoins"),
)


@pytest.fixture
def search(demo: Graph, embedder: Embedder):
    """Make the search for a question."""

    def make(
        question: str,
        *steps: str,
        widths: SearchWidths = SearchWidths(),  # noqa: B008 – it is frozen
        asked: Mapping[str, float] | None = None,
        hop_cost: float = 0.0,
    ) -> GuidedSearch:
        schema = GraphSchema(demo)
        guide = Guide(question, steps or (question,), asked or {}, hop_cost)
        return GuidedSearch(Frontiers(demo, schema), schema, embedder, guide, widths)

    return make


def is_border(hop: Hop) -> bool:
    """Tell whether a hop leads from a country to its borders, by either name."""
    return hop in (BORDERS[0], Hop(BORDERS[1].relation, inverse=True))


def is_neighbour(path: tuple[Hop, ...]) -> bool:
    return len(path) == 2 and is_border(path[0]) and path[1] == BORDERS[1]


def hops(found: list[ScoredPath]) -> list[tuple[Hop, ...]]:
    return [each.path.hops for each in found]


def test_the_path_that_is_most_like_the_question_comes_first(search, kenya: Entity) -> None:
    found = search("which currency is used?").extend([RelationPath(kenya)])
    assert found[0].path == RelationPath(kenya, CURRENCY)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_mediators_are_passed_through(search, kenya: Entity) -> None:
    found = hops(search("adjoining?").extend([RelationPath(kenya)]))
    assert any(is_neighbour(path) for path in found)
    assert all(len(path) == 2 for path in found if is_border(path[0]))
    assert {len(path) for path in found} == {1, 2}


def test_the_blueprint_brings_in_what_the_question_does_not_say(search, kenya: Entity) -> None:
    narrow = SearchWidths(relations=1)
    question = "how large is it?"
    without = search(question, widths=narrow).extend([RelationPath(kenya)])
    steps = (question, "currency used in the country")
    with_steps = search(question, *steps, widths=narrow).extend([RelationPath(kenya)])
    assert CURRENCY not in hops(without)
    assert CURRENCY in hops(with_steps)


def test_of_two_names_of_an_edge_one_is_a_candidate(search, kenya: Entity) -> None:
    steps = search("currency")
    names = [CURRENCY, (Hop("finance.currency.countries_used", inverse=True),)]
    scored = steps.score([RelationPath(kenya, path) for path in names])
    assert len(scored) == 2
    assert steps.best(scored) == scored[:1]


def test_every_path_exists_and_there_are_not_too_many(search, demo: Graph, kenya: Entity) -> None:
    widths = SearchWidths(relations=3, candidates=7)
    steps = search("which airports does the capital have?", widths=widths)
    first = steps.best(steps.extend([RelationPath(kenya)]))
    second = steps.best(steps.extend([each.path for each in first[:3]]))
    assert 0 < len(first) <= 7
    assert 0 < len(second) <= 7
    for each in (*first, *second):
        assert is_reachable(demo, Crp(kenya, each.path.hops, answer_language=None), 10)


def test_nothing_leads_from_nowhere(search) -> None:
    nowhere = RelationPath(Entity("Nowhere", "m.0nowhere"))
    assert search("which currency?").extend([nowhere]) == []
    assert search("which currency?").best([]) == []


def test_known_paths_are_candidates_whatever_they_are_like(search, kenya: Entity) -> None:
    steps = search("which currency is used?", widths=SearchWidths(candidates=3))
    found = steps.extend([RelationPath(kenya)])
    known = [RelationPath(kenya, CURRENCY), RelationPath(kenya, BORDERS)]
    candidates = steps.best(found, known)
    assert len(candidates) == 3
    assert hops(candidates)[0] == CURRENCY
    assert BORDERS in hops(candidates)


def test_where_any_length_will_do_a_hop_has_its_price(search, kenya: Entity) -> None:
    paths = [RelationPath(kenya, CURRENCY), RelationPath(kenya, BORDERS)]
    free = {each.path: each.score for each in search("which currency?").score(paths)}
    priced = search("which currency?", hop_cost=0.1).score(paths)
    for each in priced:
        assert each.score == pytest.approx(free[each.path] - 0.1 * len(each.path.hops))


def test_what_words_asked_for_in_training_counts(search, kenya: Entity) -> None:
    steps = search("dough?", asked={CURRENCY[0].relation: 0.5})
    assert hops(steps.extend([RelationPath(kenya)]))[0] == CURRENCY


def test_the_default_widths_are_the_papers() -> None:
    assert SearchWidths() == SearchWidths(relations=4, candidates=10, beam=3)


def test_the_papers_search_takes_a_hop_a_step_and_goes_by_similarity_alone(
    demo: Graph, embedder: Embedder, kenya: Entity
) -> None:
    schema, question = GraphSchema(demo), "which currency is used in Kenya?"
    steps = PathSearch(
        Frontiers(demo, schema), schema, embedder, question, [question], SearchWidths()
    )
    first = steps.extend([RelationPath(kenya)])
    assert {len(each.path.hops) for each in first} == {1}
    borders = [each.path for each in first if is_border(each.path.hops[0])]
    second = steps.extend([*borders, first[0].path])
    for each in (*first, *second):
        text = " ".join(relation_words(hop.relation) for hop in each.path.hops)
        [cosine] = embedder.similarity(question, [text])
        assert each.score == pytest.approx(cosine)


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
            "Bieber -> a.b\n?x -> people.person.gender ?g\nsum ?g",
            "?x -> people.person.gender ?g\nsum ?g",
        ),
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


@pytest.mark.parametrize("relation", ["location.location.area", "people.person.date_of_birth"])
def test_a_sum_of_what_the_answers_lack_becomes_a_list(frontiers: Frontiers, relation: str) -> None:
    """Only the topic has a date of birth."""
    failed = f"Bieber -> a.b\n?x -> {relation} ?a\nsum ?a"
    lines, lost = carried(failed, RelationPath(BIEBER, SIBLINGS), frontiers)
    assert (lost, "sum" in lines.split()) == (1, False)


def test_a_yes_no_question_whose_test_is_lost_is_not_answered_with_yes(
    frontiers: Frontiers,
) -> None:
    failed = "Bieber -> a.b\n?1 -> c.d ?d\n?x > ?d\nask"
    lines, lost = carried(failed, RelationPath(BIEBER, SIBLINGS), frontiers)
    assert (lost, "ask" in lines.split("\n")) == (2, False)
