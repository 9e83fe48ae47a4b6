import pytest

from kbqa.engine.embedder import Embedder
from kbqa.engine.reach import is_reachable
from kbqa.engine.repair.frontiers import Frontiers, RelationPath
from kbqa.engine.repair.path_search import Guide, PathSearch, ScoredPath, SearchWidths
from kbqa.kb.graph import Graph
from kbqa.kb.graph_schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity, Hop

CURRENCY = (Hop("location.country.currency_used"),)
BORDERS = (
    Hop("location.location.adjoin_s"),
    Hop("location.adjoining_relationship.adjoins"),
)


@pytest.fixture
def search(demo: Graph, embedder: Embedder):
    """Make the search for a question."""

    def make(question: str, *steps: str, widths: SearchWidths = SearchWidths()) -> PathSearch:  # noqa: B008
        schema = GraphSchema(demo)
        guide = Guide(question, steps or (question,))
        return PathSearch(Frontiers(demo, schema), schema, embedder, guide, widths)

    return make


def is_border(hop: Hop) -> bool:
    """Tell whether a hop leads from a country to its borders, by either name."""
    return hop in (BORDERS[0], Hop(BORDERS[1].relation, inverse=True))


def is_neighbour(path: tuple[Hop, ...]) -> bool:
    return len(path) == 2 and is_border(path[0]) and path[1] == BORDERS[1]


def hops(found: list[ScoredPath]) -> list[tuple[Hop, ...]]:
    return [each.path.hops for each in found]


def test_the_path_that_is_most_like_the_question_comes_first(search, kenya: Entity) -> None:
    found = search("which currency is used?").extend([RelationPath(kenya)], depth=1)
    assert found[0].path == RelationPath(kenya, CURRENCY)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_mediators_are_passed_through(search, kenya: Entity) -> None:
    for depth in (1, 2):
        found = search("adjoining?").extend([RelationPath(kenya)], depth)
        assert any(is_neighbour(path) for path in hops(found))
        assert all(len(path) == 2 for path in hops(found) if is_border(path[0]))


def test_the_blueprint_brings_in_what_the_question_does_not_say(search, kenya: Entity) -> None:
    narrow = SearchWidths(relations=1)
    question = "how large is it?"
    without = search(question, widths=narrow).extend([RelationPath(kenya)], depth=1)
    steps = (question, "currency used in the country")
    with_steps = search(question, *steps, widths=narrow).extend([RelationPath(kenya)], depth=1)
    assert CURRENCY not in hops(without)
    assert CURRENCY in hops(with_steps)


def test_of_two_names_of_an_edge_one_is_kept(search, kenya: Entity) -> None:
    found = search("currency", widths=SearchWidths(relations=50, candidates=50)).extend(
        [RelationPath(kenya)], depth=1
    )
    same = {CURRENCY, (Hop("finance.currency.countries_used", inverse=True),)}
    assert len(same & set(hops(found))) == 1


def test_every_candidate_exists_and_there_are_not_too_many(
    search, demo: Graph, kenya: Entity
) -> None:
    widths = SearchWidths(relations=3, candidates=7)
    steps = search("which airports does the capital have?", widths=widths)
    first = steps.extend([RelationPath(kenya)], depth=2)
    second = steps.extend([each.path for each in first[:3]], depth=2)
    assert 0 < len(second) <= 7
    for each in second:
        assert len(each.path.hops) in (2, 3)
        assert is_reachable(demo, Crp(kenya, each.path.hops, answer_language=None), 10)


def test_complete_paths_stay_as_they_are(search, kenya: Entity) -> None:
    paths = [RelationPath(kenya, BORDERS), RelationPath(kenya, CURRENCY)]
    found = search("adjoining?").extend(paths, depth=2)
    assert BORDERS in hops(found)
    assert CURRENCY not in hops(found)  # It is gone on from.


def test_shorter_paths_may_stay(search, kenya: Entity) -> None:
    steps = search("which currency is used?")
    beam = [RelationPath(kenya, CURRENCY)]
    assert CURRENCY not in hops(steps.extend(beam, depth=2))
    assert hops(steps.extend(beam, depth=2, or_less=True))[0] == CURRENCY


def test_what_words_asked_for_before_counts(demo: Graph, embedder: Embedder, kenya: Entity) -> None:
    schema = GraphSchema(demo)
    guide = Guide("dough?", ("dough?",), asked={CURRENCY[0].relation: 0.5})
    steps = PathSearch(Frontiers(demo, schema), schema, embedder, guide, SearchWidths())
    assert hops(steps.extend([RelationPath(kenya)], depth=1))[0] == CURRENCY


def test_nothing_leads_from_nowhere(search) -> None:
    nowhere = RelationPath(Entity("Nowhere", "m.0nowhere"))
    assert search("which currency?").extend([nowhere], depth=1) == []


def test_known_paths_take_the_place_of_the_least_like(search, kenya: Entity) -> None:
    steps = search("which currency is used?", widths=SearchWidths(candidates=3))
    found = steps.extend([RelationPath(kenya)], depth=1)
    known = [RelationPath(kenya, CURRENCY), RelationPath(kenya, BORDERS)]
    joined = steps.join(found, known)
    assert len(joined) == 3
    assert hops(joined)[0] == CURRENCY
    assert BORDERS in hops(joined)
    assert steps.join(found, []) == found
