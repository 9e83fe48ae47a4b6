from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.ground import Grounder, ungrounded_entities
from kbqa.engine.linker import LinkedEntity, link_entities
from kbqa.kb.entity_search import open_names
from kbqa.kb.select_graph import open_graph
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity, IsNotEntity

CONTAINS = Hop("location.location.contains")
WITHIN = Hop("location.location.containedby")


class Demo:
    """The demo graph with its names."""

    def __init__(self, store: Path) -> None:
        self.graph = open_graph(store)
        self.names = open_names(self.graph)

    def grounder(self, question: str = "", gold: tuple[Entity, ...] = ()) -> Grounder:
        linked = link_entities(question, self.names)
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
def test_the_first_hop_tells_bearers_of_a_name_apart(demo: Demo, hop: Hop, type_: str) -> None:
    [grounding] = demo.grounder().ground(Crp(Entity("Georgia"), (hop,)))
    assert type_ in demo.types(grounding.crp.topic)


def test_a_bearer_that_the_question_mentions_goes_before_better_known_ones(demo: Demo) -> None:
    *_, last = demo.names.lookup("Springfield")
    linked = [LinkedEntity(last.mid, last.name, "Springfield", 1.0)]
    grounder = Grounder(demo.graph, demo.names, linked)
    topics = [g.crp.topic.mid for g in grounder.ground(Crp(Entity("Springfield"), (WITHIN,)))]
    assert topics[0] == last.mid
    assert len(topics) == len(set(topics)) > 1


def test_better_known_bearers_go_first_where_the_question_mentions_none(demo: Demo) -> None:
    topics = [g.crp.topic.mid for g in demo.grounder().ground(Crp(Entity("Paris"), (WITHIN,)))]
    assert topics == [match.mid for match in demo.names.lookup("Paris")]


def test_a_mention_stands_in_for_a_topic_that_the_model_made_up(demo: Demo) -> None:
    grounder = demo.grounder("what is in kenya?")
    [grounding] = grounder.ground(Crp(Entity("Zorblax"), (CONTAINS,)))
    assert str(grounding.crp.topic) == "Kenya"


def test_a_misspelt_topic_is_found_by_likeness(demo: Demo) -> None:
    names = [str(g.crp.topic) for g in demo.grounder().ground(Crp(Entity("Kenyaa"), (CONTAINS,)))]
    assert "Kenya" in names


def test_no_reading_where_no_topic_can_be_found(demo: Demo) -> None:
    assert demo.grounder().ground(Crp(Entity("Zorblax"), (CONTAINS,))) == []


def test_a_mid_is_never_looked_up(demo: Demo) -> None:
    crp = Crp(Entity(mid="m.0nobody"), (CONTAINS,))
    [grounding] = demo.grounder("kenya").ground(crp)
    assert grounding.crp == crp


def test_given_topics_are_tried_in_order_of_likeness_and_nothing_else_is(demo: Demo) -> None:
    gold = (Entity("Uganda", "m.0ug"), Entity("Kenya", "m.0ke"))
    groundings = demo.grounder("kenya", gold).ground(Crp(Entity("kenya"), (CONTAINS,)))
    assert [g.crp.topic.mid for g in groundings] == ["m.0ke", "m.0ug"]


@pytest.mark.parametrize(
    ("hop", "type_"),
    [
        (Hop("location.country.capital", inverse=True), COUNTRY),
        (Hop(OF_COUNTRY.relation, inverse=True), STATE),
    ],
    ids=["country", "state"],
)
def test_a_constraint_means_the_bearer_that_its_relation_leads_to(
    demo: Demo, hop: Hop, type_: str
) -> None:
    constraint = Constraint(1, (hop,), IsEntity(Entity("Georgia")))
    [grounding] = demo.grounder().ground(Crp(Entity("Kenya"), (CONTAINS,), (constraint,)))
    [georgia] = [entity for entity in grounding.crp.entities() if str(entity) == "Georgia"]
    assert type_ in demo.types(georgia)


@pytest.mark.parametrize("test", [IsEntity, IsNotEntity])
def test_names_that_nobody_bears_are_told_and_left(
    demo: Demo, test: type[IsEntity | IsNotEntity]
) -> None:
    inner = Constraint(1, (WITHIN,), test(Entity("Zorblax")))
    outer = Constraint(1, (WITHIN,), test(Entity("Kenya")), (inner,))
    [grounding] = demo.grounder().ground(Crp(Entity("Kenya"), (CONTAINS,), (outer,)))
    assert grounding.unlinked == ("Zorblax",)
    assert ungrounded_entities(grounding.crp) == [Entity("Zorblax")]
    assert all(e.is_grounded for e in grounding.crp.entities() if str(e) == "Kenya")


def test_a_given_entity_also_binds_a_constraint_of_its_name(demo: Demo) -> None:
    gold = (Entity("Kenya", "m.0ke"), Entity("Euro", "m.0eur"))
    constraint = Constraint(1, (), IsEntity(Entity("euro")))
    crp = Crp(Entity("Kenya"), (CONTAINS,), (constraint,))
    best = demo.grounder(gold=gold).ground(crp)[0]
    assert [entity.mid for entity in best.crp.entities()] == ["m.0ke", "m.0eur"]
