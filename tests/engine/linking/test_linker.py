from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbqa.engine.linking.linker import Linker
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.names import Names
from kbqa.kb.open import open_graph
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.errors import QueryTimeout


class Linking:
    """A graph with its names and their linker."""

    def __init__(self, store: Path | None = None, endpoint: str | None = None) -> None:
        self.graph = open_graph(store, endpoint)
        self.names: Names = self.graph.names()
        self.linker = Linker(self.graph, self.names)

    def close(self) -> None:
        self.names.close()
        self.graph.close()


@pytest.fixture(scope="module", params=["store", "endpoint"])
def small(
    request: pytest.FixtureRequest, small_store: Path, small_endpoint: str
) -> Iterator[Linking]:
    """The small graph, in both ways of asking it."""
    opened = Linking(small_store) if request.param == "store" else Linking(endpoint=small_endpoint)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def demo(demo_store: Path) -> Iterator[Linker]:
    opened = Linking(demo_store)
    yield opened.linker
    opened.close()


@pytest.mark.parametrize(
    ("question", "mid", "mention"),
    [
        ("what is the capital of Jamaica?", "m.03_r3", "Jamaica"),
        ("who is justin bieber", "m.06w2sn5", "justin bieber"),
        ("Jamaica's capital?", "m.03_r3", "Jamaica's"),
        ("who prints Jamaican dollar bills", "m.04xc2m", "Jamaican dollar"),
    ],
    ids=["name", "lower case", "possessive", "two words"],
)
def test_finds_the_entity_that_is_named(
    small: Linking, question: str, mid: str, mention: str
) -> None:
    best = small.linker.link(question)[0]
    assert (best.mid, best.mention) == (mid, mention)


def test_an_alias_links_under_the_entitys_own_name(small: Linking) -> None:
    if not small.names.lookup("J. Biebs Bieber"):
        pytest.skip("labels of an endpoint are found as they are written")
    found = small.linker.link('is J. "Biebs" Bieber tall?')[0]
    assert (found.mid, found.name) == ("m.06w2sn5", "Justin Bieber")


HOSTILE = {
    "empty": "",
    "marks alone": "  ?!",
    "control characters": "\x00\x07\x1b[2J\r\n",
    "unassigned": "\ud7ff\uffff",
    "lone surrogate": "\ud800 \udfff",
    "emoji": "🇰🇪🦁👩\u200d👩\u200d👧",
    "combining marks": "e" + "\u0301" * 500,
    "zero-width": "\u200b\u200d\ufeff",
}


@pytest.mark.parametrize("question", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_holds_no_name_links_nothing(small: Linking, question: str) -> None:
    assert small.linker.link(question) == []


@pytest.mark.parametrize(
    "question",
    [
        "'; DROP TABLE name; -- in Kenya",
        'Kenya" OR 1=1 --',
        'NEAR(Kenya "x*", 3) AND NOT key : ^ {name} MATCH "',
        "Kenya* AND (",
        "%s %d {} $HOME `id` <script>Kenya</script>",
        "} UNION { ?s ?p ?o } # Kenya",
        "🦁 Kenya 🇰🇪",
        "\x00Kenya\x00",
        "كينيا אב Kenya \u202eaynek\u202c",
        "Kenya " + "?!" * 5_000,
        "Kenya " + "zzz " * 3_000,
        "KENYA",
    ],
    ids=[
        "SQL",
        "quotes",
        "FTS operators",
        "open bracket",
        "formats and shell",
        "SPARQL",
        "emoji",
        "NUL",
        "right to left",
        "10,000 marks",
        "10,000 characters",
        "capitals",
    ],
)
def test_a_name_is_found_in_hostile_company(demo: Linker, question: str) -> None:
    assert "Kenya" in [entity.name for entity in demo.link(question)[:3]]
    assert demo.link("what is the capital of Kenya?")[0].name == "Kenya"


def test_entities_come_once_and_best_first(demo: Linker) -> None:
    found = demo.link("how many people live in New York City?")
    assert found[0].name == "New York City"
    assert len({entity.mid for entity in found}) == len(found)
    scores = [entity.score for entity in found]
    assert scores == sorted(scores, reverse=True)


def test_scores_are_shares_of_one(demo: Linker) -> None:
    scores = [entity.score for entity in demo.link("is Paris in France?", limit=100)]
    assert sum(scores) == pytest.approx(1)


def test_a_name_inside_a_longer_one_counts_less(demo: Linker) -> None:
    inside = {e.name: e.score for e in demo.link("mayor of New York City", 100)}
    alone = {e.name: e.score for e in demo.link("mayor of York", 100)}
    assert inside["York"] < alone["York"]


def test_a_typing_error_is_forgiven_where_nobody_bears_the_word(demo: Linker) -> None:
    assert demo.link("what is the capital of Kenja?")[0].name == "Kenya"
    assert demo.link("what is the capital of the Solomn Ilands?")[0].name == "Solomon Islands"


def test_mojibake_is_mended(demo: Linker) -> None:
    assert demo.link("where is SÃ£o Paulo?")[0].name == "São Paulo"


def test_what_the_question_asks_tells_bearers_of_a_name_apart(demo: Linker) -> None:
    def share_of_country(question: str) -> float:
        found = demo.link(question)
        return next(entity.score for entity in found if entity.mid == country)

    [country, *_] = [entity.mid for entity in demo.link("which currency is used in Georgia?")]
    as_country = share_of_country("which currency is used in Georgia?")
    assert as_country > share_of_country("what time zone is the state of Georgia in?")


@pytest.mark.parametrize(
    ("question", "country"),
    [
        ("how many people live in Valencia (the Venezuelan one)?", "Venezuela"),
        ("is Victoria in the Seychelles a capital?", "Seychelles"),
    ],
)
def test_a_name_means_what_is_related_to_the_name_beside_it(
    demo: Linker, demo_store: Path, question: str, country: str
) -> None:
    found = demo.link(question)
    namesake = next(each.mid for each in found if each.mention in ("Valencia", "Victoria"))
    with closing(open_graph(demo_store)) as graph:
        lies_in = graph.neighbours(namesake, "location.location.containedby", "out")
        assert country in graph.labels([str(each) for each in lies_in]).values()


def test_no_more_than_the_limit(demo: Linker) -> None:
    assert len(demo.link("is Springfield near San Jose?", limit=3)) == 3


def test_only_the_start_of_an_endless_text_is_searched(demo: Linker) -> None:
    assert demo.link("zzz " * 100_000 + "Kenya") == []


@pytest.fixture(scope="module")
def stop_words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linker]:
    """A linker on a graph of entities whose names are words that tell nothing by themselves."""
    folder = tmp_path_factory.mktemp("stop-words")
    triples = {
        "m.0who": ("The Who", "music.musical_group", "music.group_membership.group"),
        "m.0it": ("It", "book.written_work", "book.author.works_written"),
        "m.0them": ("Them", "music.musical_group", "music.group_membership.group"),
        "m.0thethe": ("The The", "music.musical_group", "music.group_membership.group"),
        "m.0king": ("Stephen King", "people.person", "people.person.children"),
    }
    ns = "http://rdf.freebase.com/ns/"
    lines = [
        line
        for mid, (name, type_, relation) in triples.items()
        for line in (
            f'<{ns}{mid}>\t<{ns}type.object.name>\t"{name}"@en\t.',
            f"<{ns}{mid}>\t<{ns}type.object.type>\t<{ns}{type_}>\t.",
            f"<{ns}m.0{len(name)}x>\t<{ns}{relation}>\t<{ns}{mid}>\t.",
        )
    ]
    (folder / "dump.nt").write_text("\n".join(lines) + "\n")
    load_freebase([folder / "dump.nt"], folder / "store")
    opened = Linking(folder / "store")
    yield opened.linker
    opened.close()


@pytest.mark.parametrize(
    ("question", "mid"),
    [
        ("Who played the drums in The Who?", "m.0who"),
        ("Which author wrote It in 1986?", "m.0it"),
        ("Did Van Morrison sing with Them?", "m.0them"),
        ("who founded the band the the", "m.0thethe"),
        ("did Stephen King write it?", "m.0king"),
    ],
)
def test_a_name_may_be_a_stop_word(stop_words: Linker, question: str, mid: str) -> None:
    assert stop_words.link(question)[0].mid == mid


def test_a_stop_word_without_capitals_is_found_among_the_first(stop_words: Linker) -> None:
    found = [entity.mid for entity in stop_words.link("who played the drums in the who")]
    assert "m.0who" in found[:3]


@pytest.mark.parametrize(
    "question",
    [
        "What is the lightest element?",
        "which element boils at the lowest temperature",
        "WHAT IS IT?",
        "how are you",
        "can you help me",
        "who won the 2022 world cup?",
        "what to do in la",
    ],
)
def test_function_words_and_codes_are_no_entities(demo: Linker, question: str) -> None:
    assert demo.link(question) == []


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("what is IS in ISO codes", "is"),
        ("what country has the code cup", "Cuban Peso"),
        ("what country uses CUP", "Cuban Peso"),
        ("which language is 'la'", "la"),
        ("which language has the code la?", "la"),
        ('what does "do" mean', "do"),
    ],
)
def test_a_code_that_the_question_marks_is_an_entity(
    demo: Linker, question: str, name: str
) -> None:
    assert demo.link(question)[0].name == name


@pytest.mark.parametrize("question", ["Which city does Heathrow serve?", "where is heathrow"])
def test_a_part_of_a_name_is_linked(demo: Linker, question: str) -> None:
    assert demo.link(question)[0].name == "London Heathrow Airport"


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("tell me the captial city of burkina faso pls", "Burkina Faso"),
        ("What's the popluation of Slovenia", "Slovenia"),
        ("what is the capitol of Frnace", "France"),
    ],
)
def test_typing_errors_in_other_words_hide_no_name(demo: Linker, question: str, name: str) -> None:
    assert demo.link(question)[0].name == name


@pytest.mark.parametrize(
    "question",
    [
        "where should I go in jamaca",
        "what I'd like to know: where is jamaca?",
        "asked an American: where is jamaca?",
        "WHERE IS JAMACA?",
    ],
)
def test_capitals_elsewhere_do_not_forbid_typing_errors(demo: Linker, question: str) -> None:
    assert "Jamaica" in [entity.name for entity in demo.link(question)[:3]]


def test_an_entity_whose_look_up_times_out_is_still_ranked(
    small_store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def too_late(graph: OxigraphStore, mids: list[str], direction: str) -> dict[str, list[str]]:
        raise QueryTimeout("SELECT", 1, "the store")

    monkeypatch.setattr(OxigraphStore, "relations_of_each", too_late)
    opened = Linking(small_store)
    assert opened.linker.link("is justin bieber tall?")[0].mid == "m.06w2sn5"
    assert "ranking m.06w2sn5 without its types" in caplog.text
    opened.close()


def test_more_entities_than_are_looked_up_come_behind_with_no_score(demo: Linker) -> None:
    question = "is Springfield near San Jose or Santa Cruz?"
    some, many = demo.link(question, 10), demo.link(question, 100)
    assert many[: len(some)] == some
    assert len(many) > 12
    assert {entity.score for entity in many[12:]} == {0.0}
