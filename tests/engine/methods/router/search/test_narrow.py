"""Conditions that a path passes over, found on the demo graph."""

from collections.abc import Sequence

import pytest

from kbqa.engine.engine import Engine
from kbqa.engine.exploring.frontiers import Frontiers
from kbqa.engine.methods.router.method import RouterKgqa
from kbqa.engine.methods.router.search import narrow
from kbqa.engine.methods.router.search.narrow import Narrower
from kbqa.engine.resources import Resources
from kbqa.engine.running.execute import Policy
from kbqa.engine.writing.generate import Candidate, NoPaths
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.forms import render_crp

LANGUAGES = "Kenya -> location.country.languages_spoken"
NEIGHBOURS = "Kenya -> location.location.adjoin_s -> location.adjoining_relationship.adjoins"
PLACES = "Africa -> location.location.contains"


def _narrowed(graph: Graph, question: str, path: str) -> Sequence[str]:
    """Return the conditions that are added to a path."""
    resources = Resources(graph)
    method = RouterKgqa(resources, NoPaths(), Policy())
    asked = Engine.over(resources, method).prepare(question)
    [tried] = method.try_all(asked, [Candidate(path, -1.0, 10)])
    assert tried.crp is not None
    schema = GraphSchema(graph)
    found = Narrower(graph, schema, Frontiers(graph, schema)).find(asked, tried.crp)
    return [render_crp(crp).splitlines()[-1].split(" (")[0] for crp in found]


@pytest.mark.parametrize(
    ("question", "path", "condition"),
    [
        (
            "which languages of Kenya are spoken in Tanzania?",
            LANGUAGES,
            "?x -> language.human_language.countries_spoken_in = Tanzania",
        ),
        (
            "which country in Africa uses the euro?",
            PLACES,
            "?x <- finance.currency.countries_used = Euro",
        ),
        (
            "which countries border Kenya and Sudan?",
            NEIGHBOURS,
            "?x <- location.adjoining_relationship.adjoins -> "
            "location.adjoining_relationship.adjoins = Sudan",
        ),
        (
            "which country in Africa has the calling code 254?",
            PLACES,
            "?x -> location.country.calling_code = 254",
        ),
        (
            "which neighbour of Kenya has the code TZ?",
            NEIGHBOURS,
            '?x -> location.country.iso3166_1_alpha2 reads "TZ"',
        ),
    ],
    ids=["related", "to a relation's end", "over a mediator", "a number", "a code"],
)
def test_an_entity_or_a_value_that_a_path_passes_over_is_a_condition(
    demo: Graph, question: str, path: str, condition: str
) -> None:
    assert condition in _narrowed(demo, question, path)


def test_hubs_are_found_from_the_nodes_of_the_path(
    demo: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrow, "_MAX_EDGES", 30)
    found = _narrowed(demo, "which languages of Kenya are spoken in Tanzania?", LANGUAGES)
    assert found[:1] == ["?x -> language.human_language.countries_spoken_in = Tanzania"]


@pytest.mark.parametrize(
    ("question", "path"),
    [
        ("which languages are spoken in Kenya?", LANGUAGES),
        ("is Swahili a language of Kenya?", f"{LANGUAGES}\n?x = Swahili\nask"),
        ("what languages of Kenya are spoken in Oslo?", LANGUAGES),
        ("do the languages of Kenya and of Tanzania differ?", f"{LANGUAGES}\nask"),
        (
            "which languages of Kenya are spoken in Tanzania?",
            "Kenya (-> location.country.languages_spoken | -> location.country.official_language)",
        ),
    ],
    ids=["nothing is passed over", "yes or no", "no node is related", "yes or no of two", "a fork"],
)
def test_other_paths_get_no_condition(demo: Graph, question: str, path: str) -> None:
    assert not _narrowed(demo, question, path)


def test_every_node_of_a_path_may_have_the_condition(demo: Graph) -> None:
    question = "which languages are spoken in the countries that border Kenya and Sudan?"
    assert _narrowed(demo, question, f"{NEIGHBOURS} -> location.country.languages_spoken") == [
        "?x -> language.human_language.countries_spoken_in = Sudan",
        "?2 <- location.adjoining_relationship.adjoins -> "
        "location.adjoining_relationship.adjoins = Sudan",
    ]


GOVERNORS = "Avonia -> government.jurisdiction.officials -> government.position_held.holder"


@pytest.mark.parametrize(
    ("question", "conditions"),
    [
        (
            "which governor of Avonia was in the Harbour Party?",
            [
                "?x -> people.person.party = Harbour Party",
            ],
        ),
        (
            "which governor of Avonia came in 1940?",
            [
                "?x <- government.position_held.holder -> government.position_held.from = 1940",
                "?1 -> government.position_held.from = 1940",
            ],
        ),
        (
            'which governor of Avonia is called "AR"?',
            ['?x -> government.politician.initials reads "AR"'],
        ),
        (
            "which governor of Avonia had 18 terms?",
            ["?x -> government.politician.terms = 18"],
        ),
        ("which governor of Avonia has 13 children?", []),
    ],
    ids=["the shortest way", "a date, typed", "a text in English", "a number", "all have it"],
)
def test_conditions_are_exactly_those_that_narrow(
    officials: Graph, question: str, conditions: Sequence[str]
) -> None:
    assert _narrowed(officials, question, GOVERNORS) == conditions


@pytest.mark.parametrize(
    ("question", "conditions"),
    [
        ("which governor of Avonia had 12 terms?", ["?x -> government.politician.terms = 12"]),
        ("which governor of Avonia has 13 children?", []),
    ],
)
def test_a_value_with_too_many_edges_is_looked_for_at_the_nodes_of_the_path(
    officials: Graph, monkeypatch: pytest.MonkeyPatch, question: str, conditions: Sequence[str]
) -> None:
    """Seven and eight nodes have these values: half of them must not pass for all."""
    monkeypatch.setattr(narrow, "_MAX_EDGES", 6)
    assert _narrowed(officials, question, GOVERNORS) == conditions
