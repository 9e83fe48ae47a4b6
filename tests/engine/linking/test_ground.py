import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.engine.linking.ground import (
    MAX_READINGS,
    MAX_WORDS,
    MIN_SIMILARITY,
    EntityMatcher,
    Grounder,
    name_similarity,
    name_topics,
    ungrounded_entities,
)
from kbqa.engine.linking.linker import LinkedEntity
from kbqa.kb.graph import Graph
from kbqa.kb.names import Names
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import (
    AnyOf,
    Compare,
    Constraint,
    Crp,
    Entity,
    Fork,
    Hop,
    IsEntity,
    IsNotEntity,
    NodeRef,
    Order,
    Step,
    Way,
)

CONTAINS = Hop("location.location.contains")
WITHIN = Hop("location.location.containedby")


class Demo:
    """The demo graph with its names."""

    def __init__(self, store: Path) -> None:
        self.graph = open_graph(store)
        self.names = self.graph.names()

    def grounder(self, *mentions: str, gold: tuple[Entity, ...] = ()) -> Grounder:
        best = [self.names.lookup(mention, 1)[0] for mention in mentions]
        linked = [LinkedEntity(match.mid, match.name, match.matched, 0.5) for match in best]
        return Grounder(self.graph, self.names, linked, gold)

    def types(self, entity: Entity) -> list[str]:
        assert entity.mid is not None
        return list(self.graph.types(entity.mid))


@pytest.fixture(scope="module")
def demo(demo_store: Path) -> Iterator[Demo]:
    demo = Demo(demo_store)
    yield demo
    demo.names.close()
    demo.graph.close()


STATE, COUNTRY = "location.us_state", "location.country"
OF_COUNTRY = Hop("location.administrative_division.country")


@pytest.mark.parametrize(
    ("hop", "type_"),
    [
        (Hop("location.country.capital"), COUNTRY),
        (OF_COUNTRY, STATE),
        (Hop("location.country.first_level_divisions", inverse=True), STATE),
        (Hop("finance.currency.countries_used", inverse=True), COUNTRY),
    ],
    ids=["a country has a capital", "a state has a country", "and is its part", "a country pays"],
)
def test_the_first_hop_tells_entities_of_one_name_apart(demo: Demo, hop: Hop, type_: str) -> None:
    [grounding] = demo.grounder().ground(Crp(Entity("Georgia"), (hop,)))
    assert type_ in demo.types(grounding.crp.topic)


def test_a_mentioned_match_comes_before_better_known_ones(demo: Demo) -> None:
    *_, last = demo.names.lookup("Springfield")
    linked = [LinkedEntity(last.mid, last.name, "Springfield", 1.0)]
    grounder = Grounder(demo.graph, demo.names, linked)
    topics = [g.crp.topic.mid for g in grounder.ground(Crp(Entity("Springfield"), (WITHIN,)))]
    assert topics[0] == last.mid
    assert len(topics) == len(set(topics)) > 1


def test_better_known_matches_come_first_if_the_question_mentions_none(demo: Demo) -> None:
    topics = [g.crp.topic.mid for g in demo.grounder().ground(Crp(Entity("Paris"), (WITHIN,)))]
    assert topics == [match.mid for match in demo.names.lookup("Paris")]


def test_a_mention_stands_in_for_a_topic_that_the_model_made_up(demo: Demo) -> None:
    grounder = demo.grounder("euro", "kenya")
    [grounding] = grounder.ground(Crp(Entity("Zorblax"), (CONTAINS,)))
    assert (str(grounding.crp.topic), grounding.stands_in) == ("Kenya", True)


def test_mentions_come_after_the_matches_of_the_name(demo: Demo) -> None:
    groundings = list(demo.grounder("kenya").ground(Crp(Entity("Paris"), (WITHIN,))))
    assert [str(g.crp.topic) for g in groundings] == ["Paris", "Paris", "Kenya"]
    assert [g.stands_in for g in groundings] == [False, False, True]


@pytest.mark.parametrize(
    ("score", "mentions", "topics"),
    [
        (0.9, ["Kenya"], ["Kenya", "Uganda"]),
        (0.5, ["Kenya"], ["Uganda", "Kenya"]),
        (0.9, ["Kenya", "Uganda"], ["Uganda", "Kenya"]),
    ],
    ids=["sure", "unsure", "both are mentioned"],
)
def test_what_the_question_is_about_goes_before_a_topic_that_it_does_not_mention(
    demo: Demo, score: float, mentions: list[str], topics: list[str]
) -> None:
    linked = [
        LinkedEntity(match.mid, match.name, match.name, score)
        for name in mentions
        for match in demo.names.lookup(name, 1)
    ]
    crp = Crp(Entity("Uganda"), (Hop("location.country.capital"),))
    groundings = list(Grounder(demo.graph, demo.names, linked).ground(crp))
    names = [str(grounding.crp.topic) for grounding in groundings]
    assert names == topics


CAPITAL = Hop("location.country.capital")


def test_entities_of_constraints_that_the_question_mentions_are_counted(demo: Demo) -> None:
    linked = [LinkedEntity(demo.names.lookup("Kenya")[0].mid, "Kenya", "kenya", 0.9)]
    grounder = Grounder(demo.graph, demo.names, linked)
    borders = (Constraint(0, (Hop("a.b"),), IsEntity(Entity("Kenya", linked[0].mid))),)
    assert grounder.count_mentioned(Crp(Entity("Uganda"), (CAPITAL,), borders)) == 1
    assert grounder.count_mentioned(Crp(Entity("Kenya", linked[0].mid), (CAPITAL,))) == 0


@pytest.mark.parametrize(
    ("mention", "name", "is_first"),
    [
        ("Kenya", "Kenya", True),
        ("east african kenya", "Kenya", True),
        ("my", "My", False),
        ("died", "Death", False),
    ],
    ids=["own name", "two words", "function word", "one word of another name"],
)
def test_a_mention_that_looks_like_no_name_is_not_surely_the_subject(
    demo: Demo, mention: str, name: str, is_first: bool
) -> None:
    kenya = demo.names.lookup("Kenya")[0].mid
    linked = [LinkedEntity(kenya, name, mention, 0.95)]
    grounding = next(
        Grounder(demo.graph, demo.names, linked).ground(Crp(Entity("Uganda"), (CAPITAL,)))
    )
    assert (grounding.crp.topic.mid == kenya) == is_first


NO_ZORBLAX = "no entity is called 'Zorblax'"


@pytest.mark.parametrize(
    ("topic", "score", "told"),
    [
        ("Kenya", 0.9, []),
        (
            "Zorblax",
            0.5,
            [f"{NO_ZORBLAX}; took Kenya, which the question mentions"],
        ),
        (
            "Zorblax",
            0.9,
            [f"{NO_ZORBLAX}; took Kenya, which the question is about"],
        ),
        ("Uganda", 0.9, ["took Kenya, which the question is about, for 'Uganda'"]),
        ("Uganda", 0.5, []),
        ("Nairobi", 0.5, ["took Kenya, which the question mentions, for 'Nairobi'"]),
        ("Ugandaa", 0.5, ["no entity is called 'Ugandaa'; took Uganda, which is spelled like it"]),
    ],
    ids=[
        "as written",
        "mentioned for nobody",
        "subject for nobody",
        "subject for another",
        "another",
        "mentioned for who leads nowhere",
        "misspelt",
    ],
)
def test_a_topic_that_is_taken_for_another_is_reported(
    demo: Demo, topic: str, score: float, told: list[str]
) -> None:
    linked = [LinkedEntity(m.mid, m.name, "kenya", score) for m in demo.names.lookup("Kenya", 1)]
    grounder = Grounder(demo.graph, demo.names, linked)
    assert list(next(grounder.ground(Crp(Entity(topic), (CAPITAL,)))).replaced) == told


def test_a_given_topic_that_is_called_otherwise_is_reported(demo: Demo) -> None:
    kenya = Entity("Kenya", demo.names.lookup("Kenya")[0].mid)
    grounder = demo.grounder(gold=(kenya,))
    for name, told in (
        ("kenya", ()),
        ("Uganda", ("took Kenya, which was given with the question, for 'Uganda'",)),
    ):
        assert next(grounder.ground(Crp(Entity(name), (CAPITAL,)))).replaced == told


def test_a_constraints_name_that_is_taken_for_another_is_reported_once(demo: Demo) -> None:
    near = Constraint(1, (WITHIN,), IsEntity(Entity("Ugandaa")))
    crp = Crp(Entity("Kenya"), (CONTAINS,), (near, replace(near, at=0)))
    assert next(demo.grounder().ground(crp)).replaced == (
        "no entity is called 'Ugandaa'; took Uganda, which is spelled like it",
    )


def test_a_misspelt_topic_is_found_by_similarity(demo: Demo) -> None:
    names = [str(g.crp.topic) for g in demo.grounder().ground(Crp(Entity("Kenyaa"), (CONTAINS,)))]
    assert "Kenya" in names


@pytest.mark.parametrize("name", ["Paris", "Zorblax"])
def test_the_mids_that_a_path_was_walked_from_are_its_topics(demo: Demo, name: str) -> None:
    kenya = demo.names.lookup("Kenya")[0].mid
    for grounder in (demo.grounder("kenya"), demo.grounder(gold=(Entity("Kenya", kenya),))):
        groundings = list(grounder.ground(Crp(Entity(name), (WITHIN,)), ("m.0b", "m.0a")))
        assert [g.crp.topic for g in groundings] == [Entity(name, "m.0b"), Entity(name, "m.0a")]
        assert not any(g.stands_in or g.replaced for g in groundings)


def test_a_grounded_topic_ignores_the_mids_that_a_path_was_walked_from(demo: Demo) -> None:
    crp = Crp(Entity("Kenya", "m.0ke"), (WITHIN,))
    assert [g.crp for g in demo.grounder().ground(crp, ("m.0a",))] == [crp]


def test_no_reading_where_no_topic_can_be_found(demo: Demo) -> None:
    assert list(demo.grounder().ground(Crp(Entity("Zorblax"), (CONTAINS,)))) == []


def test_a_mid_is_never_looked_up(demo: Demo) -> None:
    crp = Crp(Entity(mid="m.0nobody"), (CONTAINS,))
    [grounding] = demo.grounder("kenya").ground(crp)
    assert grounding.crp == crp


def test_given_topics_are_tried_in_order_of_similarity_and_nothing_else_is(demo: Demo) -> None:
    gold = (Entity("Uganda", "m.0ug"), Entity("Kenya", "m.0ke"))
    groundings = demo.grounder("kenya", gold=gold).ground(Crp(Entity("kenya"), (CONTAINS,)))
    assert [g.crp.topic.mid for g in groundings] == ["m.0ke", "m.0ug"]


@pytest.mark.parametrize(
    ("hop", "type_"),
    [
        (Hop("location.country.capital", inverse=True), COUNTRY),
        (Hop(OF_COUNTRY.relation, inverse=True), STATE),
    ],
    ids=["country", "state"],
)
def test_a_constraint_means_the_match_that_its_relation_leads_to(
    demo: Demo, hop: Hop, type_: str
) -> None:
    constraint = Constraint(1, (hop,), IsEntity(Entity("Georgia")))
    [grounding] = demo.grounder().ground(Crp(Entity("Kenya"), (CONTAINS,), (constraint,)))
    [georgia] = [entity for entity in grounding.crp.entities() if str(entity) == "Georgia"]
    assert type_ in demo.types(georgia)


def test_every_match_that_the_relation_leads_to_makes_a_reading(demo: Demo) -> None:
    constraint = Constraint(1, (Hop(WITHIN.relation, inverse=True),), IsEntity(Entity("Paris")))
    groundings = demo.grounder().ground(Crp(Entity("Portland"), (WITHIN,), (constraint,)))
    readings = [tuple(entity.mid for entity in g.crp.entities()) for g in groundings]
    portland = [match.mid for match in demo.names.lookup("Portland")]
    paris = [match.mid for match in demo.names.lookup("Paris")]
    assert set(readings) == {(topic, mid) for topic in portland for mid in paris}
    assert readings[:3] == [
        (portland[0], paris[0]),
        (portland[0], paris[1]),
        (portland[1], paris[0]),
    ]


def test_readings_are_bounded_however_many_names_there_are(demo: Demo) -> None:
    back = Hop(WITHIN.relation, inverse=True)
    names = ["Paris", "Portland", "Springfield", "San José"] * 5
    constraints = tuple(
        Constraint(1, (back,) * (n + 1), IsEntity(Entity(name))) for n, name in enumerate(names)
    )
    groundings = list(demo.grounder().ground(Crp(Entity("Springfield"), (WITHIN,), constraints)))
    assert len(groundings) == MAX_READINGS
    assert len({tuple(g.crp.entities()) for g in groundings}) == MAX_READINGS


def test_a_name_that_stands_twice_means_the_same_in_the_same_place(demo: Demo) -> None:
    constraint = Constraint(1, (Hop(WITHIN.relation, inverse=True),), IsEntity(Entity("Paris")))
    twice = (constraint, replace(constraint, at=0))
    for grounding in demo.grounder().ground(Crp(Entity("Kenya"), (CONTAINS,), twice)):
        _, one, other = grounding.crp.entities()
        assert one == other


@pytest.mark.parametrize("test", [IsEntity, IsNotEntity])
def test_names_without_a_match_are_reported_and_left(
    demo: Demo, test: type[IsEntity | IsNotEntity]
) -> None:
    inner = Constraint(1, (WITHIN,), test(Entity("Zorblax")))
    outer = Constraint(1, (WITHIN,), None, (inner,))
    other = Constraint(1, (WITHIN,), test(Entity("Kenya")))
    [grounding] = demo.grounder().ground(Crp(Entity("Kenya"), (CONTAINS,), (outer, other)))
    assert grounding.unlinked == ("Zorblax",)
    assert ungrounded_entities(grounding.crp) == [Entity("Zorblax")]
    assert all(e.is_grounded for e in grounding.crp.entities() if str(e) == "Kenya")


def test_a_given_entity_also_binds_a_constraint_of_its_name(demo: Demo) -> None:
    gold = (Entity("Kenya", "m.0ke"), Entity("Euro", "m.0eur"))
    constraint = Constraint(1, (), IsEntity(Entity("euro")))
    crp = Crp(Entity("Kenya"), (CONTAINS,), (constraint,))
    best = next(demo.grounder(gold=gold).ground(crp))
    assert [entity.mid for entity in best.crp.entities()] == ["m.0ke", "m.0eur"]


KENYA = IsEntity(Entity("Kenya"))
IN_KENYA = Constraint(1, (WITHIN,), KENYA)
AREA = Constraint(0, (Hop("location.location.area"),), None)


@pytest.mark.parametrize(
    "crp",
    [
        Crp(
            Entity("Nairobi"),
            (Fork((Way((WITHIN,), (IN_KENYA,)), Way((CONTAINS,)))),),
        ),
        Crp(
            Entity("Nairobi"),
            (WITHIN,),
            (Constraint(1, (), AnyOf(((replace(IN_KENYA, at=0),), (AREA,)))),),
        ),
        Crp(
            Entity("Nairobi"),
            (WITHIN,),
            (
                Constraint(Entity("Kenya"), (Hop("location.location.area"),), None, label="a"),
                Constraint(1, (Hop("location.location.area"),), Compare("<", NodeRef("a"))),
            ),
        ),
        Crp(
            Entity("Nairobi"),
            (WITHIN,),
            (Constraint(1, (WITHIN,), None, (Constraint(1, (), KENYA),), negated=True),),
        ),
    ],
    ids=["in a way", "in an alternative", "anchor", "in a branch"],
)
def test_names_are_bound_wherever_they_stand(demo: Demo, crp: Crp) -> None:
    grounding = next(demo.grounder().ground(crp))
    kenya = demo.names.lookup("Kenya")[0].mid
    assert {e.mid for e in grounding.crp.entities() if str(e) == "Kenya"} == {kenya}
    assert (ungrounded_entities(grounding.crp), grounding.unlinked) == ([], ())


def test_any_way_of_a_fork_may_start_the_path(demo: Demo) -> None:
    fork = Fork((Way((Hop("a.b.c"),)), Way((Fork((Way((OF_COUNTRY,)), Way((Hop("a.b"),)))),))))
    [grounding] = demo.grounder().ground(Crp(Entity("Georgia"), (fork,)))
    assert STATE in demo.types(grounding.crp.topic)


def test_constraints_are_trusted_as_far_as_their_names_are_alike(demo: Demo) -> None:
    exact = IN_KENYA
    near = Constraint(1, (WITHIN,), IsEntity(Entity("Ugandaa")))
    unknown = Constraint(1, (WITHIN,), IsEntity(Entity("Zorblax")))
    mid = Constraint(1, (WITHIN,), IsEntity(Entity(mid="m.0nobody")))
    both = Constraint(1, (WITHIN,), None, (exact, near))
    crp = Crp(Entity("Kenya"), (CONTAINS,), (exact, near, unknown, mid, both))
    [grounding] = demo.grounder().ground(crp)
    trust = [grounding.trust(constraint) for constraint in grounding.crp.constraints]
    assert trust == [1.0, trust[1], 0.0, 1.0, trust[1]]
    assert 0.8 <= trust[1] < 1.0
    assert grounding.trust(Order(1, (), descending=True)) == 1.0


def test_topics_without_names_are_named(demo: Demo) -> None:
    kenya = demo.names.lookup("Kenya")[0].mid
    named = [Entity("Nobody", "m.0nobody"), Entity("only a name")]
    assert name_topics(demo.graph, [Entity(mid=kenya), *named]) == [Entity("Kenya", kenya), *named]


@pytest.fixture(scope="module")
def graph(demo_store: Path) -> Iterator[Graph]:
    graph = open_graph(demo_store)
    yield graph
    graph.close()


@pytest.fixture(scope="module")
def names(graph: Graph) -> Iterator[Names]:
    names = graph.names()
    yield names
    names.close()


def rank(graph: Graph, names: Names, name: str, step: Step | None = WITHIN) -> list[str]:
    """Rank a name of which the question mentions nothing."""
    return [str(match.entity) for match in EntityMatcher(graph, names, ()).rank(name, step)]


@pytest.mark.parametrize(
    ("name", "first"),
    [("San Jose", "San Jose"), ("San José", "San José"), ("san josé", "San José")],
)
def test_an_own_name_goes_by_its_accents(graph: Graph, names: Names, name: str, first: str) -> None:
    count = sum(match.name == first for match in names.lookup(name))
    assert rank(graph, names, name)[:count] == [first] * count


def test_entities_with_the_relation_come_first(graph: Graph, names: Names) -> None:
    fork = Fork((Way((Hop("a.b.c"),)), Way((CAPITAL,))))
    for step in (CAPITAL, fork):
        first, *others = EntityMatcher(graph, names, ()).rank("Georgia", step)
        assert first.has_step
        assert [match.has_step for match in others] == [False]
    assert first.entity.mid == names.lookup("Georgia")[1].mid


def test_mentioned_entities_come_before_better_known_ones(graph: Graph, names: Names) -> None:
    *_, last = names.lookup("Springfield")
    linked = [LinkedEntity(last.mid, last.name, "springfield", 0.1)]
    first, *others = EntityMatcher(graph, names, linked).rank("Springfield", WITHIN)
    assert first.entity.mid == last.mid
    assert [b.entity.mid for b in others] == [m.mid for m in names.lookup("Springfield")[:-1]]


def test_a_mention_of_that_name_counts_that_no_lookup_reaches(graph: Graph, names: Names) -> None:
    linked = [LinkedEntity("m.0far", "Springfield", "springfield", 0.1)]
    matches = EntityMatcher(graph, names, linked).rank("Springfield", None)
    assert matches[0].entity == Entity("Springfield", "m.0far")


@pytest.mark.parametrize("name", ["Kenyaa", "the republic Kenya", "Kneya"])
def test_similar_names_are_used_if_no_entity_has_the_name(
    graph: Graph, names: Names, name: str
) -> None:
    [best, *_] = EntityMatcher(graph, names, ()).rank(name, CAPITAL)
    assert str(best.entity) == "Kenya"
    assert best.similarity < 1


def test_a_name_similar_to_nothing_matches_no_entity(graph: Graph, names: Names) -> None:
    matches = EntityMatcher(graph, names, ()).rank("Zorblax Qwxyz of Portland", WITHIN)
    assert {str(match.entity) for match in matches} == {"Portland"}
    assert all(match.similarity < MIN_SIMILARITY for match in matches)


@pytest.mark.parametrize("words", [400, 20_000])
def test_a_name_of_many_words_is_grounded_in_no_time(
    graph: Graph, names: Names, words: int
) -> None:
    linked = [LinkedEntity(m.mid, m.name, "kenya", 0.5) for m in names.lookup("Kenya", 1)]
    name = " ".join(["the Republic of Kenya Springfield"] * (words // 5))
    matcher = EntityMatcher(graph, names, linked)
    start = time.monotonic()
    assert matcher.rank(name, WITHIN) == []
    assert [str(match.entity) for match in matcher.mentioned(name, WITHIN)] == ["Kenya"]
    assert time.monotonic() - start < 2


def test_every_near_name_is_compared_once(
    graph: Graph, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def counted(one: str, other: str) -> float:
        compared.append(other)
        return name_similarity(one, other)

    monkeypatch.setattr("kbqa.engine.linking.ground.name_similarity", counted)
    name = " ".join(["Springfield", "Kenya"] * (MAX_WORDS // 2))
    found = {str(match.entity) for match in EntityMatcher(graph, names, ()).rank(name, WITHIN)}
    assert found == {"Springfield", "Kenya"}
    assert len(compared) == len(set(compared)) >= len(found)


@pytest.mark.parametrize(
    ("name", "has_exact"), [("Kenya", True), ("kenya's", True), ("Kenyaa", False), ("Zork", False)]
)
def test_a_similar_name_is_not_an_exact_match(
    graph: Graph, names: Names, name: str, has_exact: bool
) -> None:
    linked = [LinkedEntity("m.0x", "Zorq", "zork", 0.5)]
    assert EntityMatcher(graph, names, linked).has_exact(name, None) == has_exact


def test_mentions_are_sorted_by_likeness_to_the_name(graph: Graph, names: Names) -> None:
    linked = [
        LinkedEntity(match.mid, match.name, text, 0.5)
        for text in ("euro", "kenya")
        for match in names.lookup(text, 1)
    ]
    matches = EntityMatcher(graph, names, linked).mentioned("Kenia", CAPITAL)
    assert [str(match.entity) for match in matches] == ["Kenya", "Euro"]
    assert [match.has_step for match in matches] == [True, False]


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [
        ("Kenya", "KENYA", 1, 1),
        ("Alice Stokes Paul", "Alice Paul", 0.8, 0.9),
        ("Kenya", "Zorblax", 0, 0.2),
        ("", "Kenya", 0, 0),
    ],
    ids=["but for case", "a word more", "nothing alike", "empty"],
)
def test_likeness_lies_between_0_and_1(one: str, other: str, low: float, high: float) -> None:
    assert low <= name_similarity(one, other) <= high
    assert name_similarity(one, other) == name_similarity(other, one)


def test_a_relation_that_no_graph_can_have_is_an_edge_of_nothing(
    graph: Graph, names: Names
) -> None:
    # A model has written RouterKGQA's words for a relation into kbqa's own form.
    step = Hop("people , person , gender")
    assert rank(graph, names, "Jammaica", step) == rank(graph, names, "Jammaica", None)
