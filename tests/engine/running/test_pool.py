"""Paths that a search adds to the written ones, and what a judge makes of both.

Conditions that a path passes over, found on the demo graph.

Orders and comparisons that a path lacks, found on the demo graph.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.engine import Engine
from kbqa.engine.graph_walk import Frontiers
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.methods import Resources
from kbqa.engine.methods import kbqa as method
from kbqa.engine.methods.kbqa import Kbqa, KbqaSettings, run_searched
from kbqa.engine.running import pool as pools
from kbqa.engine.running.evidence import PathTrace
from kbqa.engine.running.judge import Judge
from kbqa.engine.running.pool import PathPool
from kbqa.engine.running.run import Runner
from kbqa.engine.running.tried import ConfidenceModel, Tried, with_first_answers
from kbqa.engine.writing.generate import Candidate, NoPaths
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.errors import EndpointDown, GraphError
from kbqa.sparql.forms import read_crp, render_crp

QUESTION = "which currency is used in Kenya?"
CAPITAL = "Kenya -> location.country.capital"
CURRENCY = "location.country.currency_used"
SEARCHED = ConfidenceModel(0.0, {"searched": 2.0, "rank": -1.0})


@pytest.fixture(scope="module")
def pool(demo: Graph, embedder: Embedder) -> PathPool:
    return PathPool(demo, embedder, LinkingModel.load(), paths=5)


def _asking(graph: Graph, pool: PathPool | None, model: ConfidenceModel = SEARCHED) -> Engine:
    resources, judge = Resources(graph), Judge(GraphSchema(graph), model)
    method = Kbqa(resources, KbqaSettings(), NoPaths(), judge, pool)
    return Engine.over(resources, method)


def _try_all(
    engine: Engine, question: str, written: Sequence[Candidate], pool: PathPool | None = None
) -> list[Tried]:
    """Run written paths as they are, and what a search adds to them."""
    asked, resources = engine.prepare(question), engine.resources
    runner = Runner(asked, resources.graph, resources.names, 5.0)
    tried = runner.run(written)
    return tried if pool is None else tried + run_searched(asked, tried, pool, runner)


def _find(graph: Graph, pool: PathPool, *written: str, question: str = QUESTION) -> list[Candidate]:
    engine = _asking(graph, None)
    tried = _try_all(engine, question, _candidates(written))
    return pool.find(engine.prepare(question), tried)


def _candidates(texts: Sequence[str]) -> list[Candidate]:
    return [Candidate(text, -1.0, 10) for text in texts]


def _ask(engine: Engine, *written: str) -> Answer:
    return engine.answer(replace(engine.prepare(QUESTION), candidates=_candidates(written)))


def test_what_is_written_does_not_wait_long_for_what_is_searched(
    demo: Graph, pool: PathPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_and_back = " -> location.location.containedby <- location.location.containedby" * 30
    endless = Candidate(f"Kenya{there_and_back}\n?x = Euro", 0.0, 1, (), "search")
    monkeypatch.setattr(pool, "find", lambda asked, tried: [endless])
    monkeypatch.setattr(method, "SEARCHED_LIMIT_S", 0.5)
    with _asking(demo, pool) as engine:
        trace = _ask(engine, CAPITAL).trace
    assert isinstance(trace, PathTrace)
    written, searched = trace.tried
    assert written.table is not None
    assert "within 0.5 s" in (searched.problem or "")


def test_what_the_question_asks_is_found_first(demo: Graph, pool: PathPool) -> None:
    first, *others = _find(demo, pool, CAPITAL)
    assert CURRENCY in first.text
    assert (first.is_searched, first.rank, first.logprob) == (True, 0, 0.0)
    assert [each.rank for each in others] == sorted(each.rank for each in others)
    assert all("location.country.capital" not in each.text.split("->")[-1] for each in others[:1])


def test_what_is_written_is_not_added_by_any_of_its_names(demo: Graph, pool: PathPool) -> None:
    written = f"Kenya -> {CURRENCY}"
    reverse = "Kenya <- finance.currency.countries_used"
    for text in (written, reverse):
        found = [read_crp(each.text).crp for each in _find(demo, pool, text)]
        assert all(len(crp.path) > 1 or CURRENCY not in str(crp.path) for crp in found)


def test_constraints_are_carried_over(demo: Graph, pool: PathPool) -> None:
    text = f"{CAPITAL}\n?x -> type.object.type = ns:location.location"
    found = [read_crp(each.text).crp for each in _find(demo, pool, text)]
    assert any(crp.constraints for crp in found)
    assert any(not crp.constraints for crp in found)


def test_a_searched_path_answers_if_it_is_surer(demo: Graph, pool: PathPool) -> None:
    with _asking(demo, pool) as engine:
        answer = _ask(engine, CAPITAL)
    assert [each.name for each in answer.answers] == ["Kenyan Shilling"]
    assert isinstance(answer.trace, PathTrace)
    assert answer.trace.answering is not None
    assert answer.trace.answering.candidate.is_searched
    told = "Found by searching the graph, beside what the model wrote, relaxation: full."
    assert told in answer.trace.describe()
    sources = [beam["source"] for beam in answer.trace.to_dict()["beams"]]
    assert sources[:2] == ["writer", "search"]
    assert "search" in answer.seconds


def test_without_a_search_only_written_paths_answer(demo: Graph) -> None:
    with _asking(demo, None) as engine:
        assert [each.name for each in _ask(engine, CAPITAL).answers] == ["Nairobi"]


class _Failing(PathPool):
    """A search that fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def find(self, asked: object, tried: Sequence[Tried]) -> list[Candidate]:
        raise self._error

    def settings(self) -> dict[str, object]:
        return {}


def test_a_search_that_fails_leaves_the_written_paths(
    demo: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    with _asking(demo, _Failing(GraphError("no result after 30 s"))) as engine:
        assert [each.name for each in _ask(engine, CAPITAL).answers] == ["Nairobi"]
    assert "only written paths are candidates: no result after 30 s" in caplog.text


def test_a_graph_that_is_gone_ends_the_question(demo: Graph) -> None:
    with (
        _asking(demo, _Failing(EndpointDown("it is gone"))) as engine,
        pytest.raises(EndpointDown),
    ):
        _ask(engine, CAPITAL)


LANGUAGES, OFFICIAL = "location.country.languages_spoken", "location.country.official_language"
ADJOIN, ADJOINS = "location.location.adjoin_s", "location.adjoining_relationship.adjoins"
SPOKEN_IN, MAIN = (
    "language.human_language.countries_spoken_in",
    "language.human_language.main_country",
)
TYPE = "?x -> type.object.type = ns:language.human_language"


@pytest.mark.parametrize(
    ("question", "written", "added", "searched"),
    [
        pytest.param(
            "what currency code is used in Kenya?",
            [],
            [],
            [
                f"Kenya -> {CURRENCY} -> finance.currency.currency_code",
                f"Kenya -> {CURRENCY}",
            ],
            id="two hops are searched",
        ),
        pytest.param(
            "at which latitude and longitude is the capital of Kenya?",
            [],
            [],
            [
                f"{CAPITAL} -> location.location.geolocation -> location.geocode.{which}"
                for which in ("latitude", "longitude")
            ],
            id="and a third over a mediator",
        ),
        pytest.param(
            "which official language of Kenya is spoken in Tanzania?",
            [CAPITAL, f"Kenya -> {OFFICIAL}"],
            [f"Kenya -> {OFFICIAL}\n?x -> {MAIN} = Tanzania"],
            [f"Tanzania -> {OFFICIAL}"],
            id="a list of two is narrowed, a single answer is not",
        ),
        pytest.param(
            "which languages of Kenya are spoken in Tanzania?",
            [f"Kenya -> {LANGUAGES}\n{TYPE}", f"Kenya -> {OFFICIAL}\n{TYPE}"],
            [
                f"Kenya -> {LANGUAGES}\n{TYPE}\n?x -> {SPOKEN_IN} = Tanzania",
                f"Kenya -> {LANGUAGES}\n{TYPE}\n?x -> {MAIN} = Tanzania",
                f"Kenya -> {OFFICIAL}\n{TYPE}\n?x -> {MAIN} = Tanzania",
                f"Kenya -> {LANGUAGES}\n?x -> {SPOKEN_IN} = Tanzania",
                f"Kenya -> {LANGUAGES}\n?x -> {MAIN} = Tanzania",
            ],
            [f"Kenya -> {LANGUAGES}", f"Tanzania -> {LANGUAGES}\n{TYPE}"],
            id="only the first is narrowed without its own constraints as well",
        ),
        pytest.param(
            "which languages are spoken in the countries that border Kenya and Sudan?",
            [f"Kenya -> {ADJOIN} -> {ADJOINS} -> {LANGUAGES}\n{TYPE}"],
            [
                f"Kenya -> {ADJOIN} -> {ADJOINS} -> {LANGUAGES}\n{own}{condition} = Sudan"
                for own in (f"{TYPE}\n", "")
                for condition in (f"?x -> {SPOKEN_IN}", f"?2 <- {ADJOINS} -> {ADJOINS}")
            ],
            [f"Sudan <- {SPOKEN_IN}"],
            id="every node of a long path may be narrowed",
        ),
        pytest.param(
            "which languages of Kenya are spoken in Tanzania?",
            [f"Kenya (-> {LANGUAGES} | -> {OFFICIAL})"],
            [],
            [f"Kenya -> {LANGUAGES}", f"Tanzania -> {LANGUAGES}"],
            id="a fork is not narrowed, and hides none of its ways",
        ),
    ],
)
def test_what_is_added_to_what_was_written(
    demo: Graph,
    pool: PathPool,
    question: str,
    written: Sequence[str],
    added: Sequence[str],
    searched: Sequence[str],
) -> None:
    """`added` is all that is added to written main paths; `searched` is among what is found."""
    found = _find(demo, pool, *written, question=question)
    mains = {text.splitlines()[0] for text in written}
    narrower = [each for each in found if each.narrows]
    assert [_named(each) for each in narrower if _named(each).splitlines()[0] in mains] == added
    assert {*searched} <= {_named(each) for each in found if not each.narrows}


def _named(candidate: Candidate) -> str:
    """Return a path without the ids behind its names."""
    return re.sub(r" \(m\.\w+\)", "", candidate.text)


def test_no_third_hop_is_searched_but_over_a_mediator(demo: Graph, pool: PathPool) -> None:
    found = [read_crp(each.text).crp for each in _find(demo, pool, question="what adjoins Kenya?")]
    assert any(str(crp.path).count(ADJOIN) == 2 for crp in found)  # a border is a mediator
    assert max(len(crp.path) for crp in found) == 2


def test_a_question_for_yes_or_no_is_not_narrowed(demo: Graph, pool: PathPool) -> None:
    question = "do the languages of Kenya and of Tanzania differ?"
    found = _find(demo, pool, f"Kenya -> {LANGUAGES}\nask", question=question)
    assert [each.narrows for each in found if each.text.endswith("\nask")].count(False) > 0
    assert not any(each.narrows for each in found if each.text.endswith("\nask"))


@pytest.mark.parametrize(
    ("question", "paths", "most"),
    [
        (
            "which languages of Kenya are spoken in Tanzania?",
            [LANGUAGES, OFFICIAL, f"{LANGUAGES} -> {MAIN}", f"{OFFICIAL} -> {SPOKEN_IN}"],
            3,
        ),
        (
            "which neighbour of Kenya has the most people?",
            [
                f"{ADJOIN} -> {ADJOINS}",
                "location.location.contains",
                *(f"{ADJOIN} -> {ADJOINS}{f' -> {ADJOIN} -> {ADJOINS}' * at}" for at in (1, 2, 3)),
                "base.locations.countries.continent -> base.locations.continents.countries_within",
            ],
            5,
        ),
    ],
    ids=["conditions", "measures"],
)
def test_only_the_first_written_paths_get_more(
    demo: Graph, pool: PathPool, question: str, paths: Sequence[str], most: int
) -> None:
    written = [f"Kenya -> {path}" for path in paths]
    found = _find(demo, pool, *written, question=question)
    longer = {_named(each).splitlines()[0] for each in found if each.narrows}
    assert [path in longer for path in written] == [at < most for at in range(len(written))]


def test_written_paths_are_measured_with_what_says_what_their_nodes_are(
    demo: Graph, pool: PathPool
) -> None:
    """Conditions stay; comparisons and orders, which may be what is wrong, do not."""
    path = f"Kenya -> {ADJOIN} -> {ADJOINS}"
    country = "?x -> type.object.type = ns:location.country"
    measures = "?x -> location.location.area > 5\nsmallest ?x -> location.country.calling_code"
    written = f"{path}\n{country}\n{measures}"
    found = _find(demo, pool, written, question="which neighbour of Kenya has the most people?")
    measured = [_named(each) for each in found if each.narrows and _named(each).startswith(path)]
    people = "location.statistical_region.population -> measurement_unit.dated_integer.number"
    assert f"{path}\n{country}\nlargest ?x -> {people}" in measured
    assert all(text.startswith(f"{path}\n{country}\nlargest ") for text in measured)


def test_manifests_say_how_many_paths_are_searched(demo: Graph, embedder: Embedder) -> None:
    settings = PathPool(demo, embedder, LinkingModel.load()).settings()
    assert settings == {"paths": 5, "embedder": embedder.name}


LANGUAGES = "Kenya -> location.country.languages_spoken"
NEIGHBOURS = "Kenya -> location.location.adjoin_s -> location.adjoining_relationship.adjoins"
PEOPLE_PLACES = "Africa -> location.location.contains"


def _narrowed(graph: Graph, question: str, path: str) -> Sequence[str]:
    """Return the conditions that are added to a path."""
    engine = _asking(graph, None)
    asked = engine.prepare(question)
    [tried] = _try_all(engine, question, [Candidate(path, -1.0, 10)])
    assert tried.crp is not None
    schema = GraphSchema(graph)
    ways_to = partial(pools.find_ways, graph, schema)
    found = pools.narrow(asked, tried.crp, Frontiers(graph, schema), ways_to)
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
            PEOPLE_PLACES,
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
            PEOPLE_PLACES,
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
    monkeypatch.setattr(pools, "_MAX_EDGES", 30)
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
    monkeypatch.setattr(pools, "_MAX_EDGES", 6)
    assert _narrowed(officials, question, GOVERNORS) == conditions


ELEMENTS = "ns:chemistry.chemical_element <- type.object.type"
DISCOVERED = "chemistry.chemical_element.discovery_date"
PLACES = "Kenya -> location.location.contains"
PEOPLE = "-> location.statistical_region.population -> measurement_unit.dated_integer.number"


def _tried(graph: Graph, question: str, path: str) -> Sequence[Tried]:
    """Run a written path and what is added to it."""
    pool = PathPool(graph, Embedder.load(), LinkingModel.load())
    return _try_all(_asking(graph, None), question, [Candidate(path, -1.0, 10)], pool)


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
        (
            "which elements were discovered in the 1940s?",
            ELEMENTS,
            f"?x -> {DISCOVERED} >= 1940\n?x -> {DISCOVERED} < 1950",
        ),
    ],
    ids=["order", "other", "comparison", "a code", "count", "another order", "a decade"],
)
def test_what_a_question_measures_is_added_to_a_path(
    demo: Graph, question: str, path: str, line: str
) -> None:
    added = [each.candidate.text for each in _tried(demo, question, path) if each.candidate.narrows]
    assert line in [text.partition("\n")[2] for text in added]


def test_what_is_larger_than_a_named_thing_is_compared_with_it(demo: Graph) -> None:
    question = "which countries have a bigger population than India?"
    tried = _tried(demo, question, "ns:location.country <- type.object.type")
    added = [each for each in tried if each.candidate.text.endswith(f"?x {PEOPLE} > ?other")]
    assert [each.first_answers for each in with_first_answers(demo, added)] == [("China",)]


def test_answers_other_than_what_is_named_are_added(demo: Graph) -> None:
    question = "which countries other than Ethiopia and Somalia border Kenya?"
    tried = _tried(demo, question, NEIGHBOURS)
    added = [each for each in tried if "!=" in each.candidate.text]
    names = [set(each.first_answers) for each in with_first_answers(demo, added)]
    assert {"Uganda", "Tanzania", "South Sudan"} in names


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
