import threading
from pathlib import Path

import pytest

from kbqa.kb.build_names import NameIndexBuilder, StatedName
from kbqa.kb.names import NameIndex, normalise
from kbqa.sparql.errors import StoreError

POPULARITY = {
    "m.kenya": 280,
    "m.moore": 5,
    "m.beyonce": 1700,
    "m.us": 68000,
    "m.beatles": 200,
    "m.potter": 70,
    "m.potter1": 90,
    "m.potter2": 300,
    "m.obama": 530,
    "m.bieber": 400,
    "m.brother": 3,
    "m.bang": 9,
    "m.anonymous": 7,
}
NAMES = [
    ("m.kenya", "Kenya", False),
    ("m.kenya", "Republic of Kenya", True),
    ("m.moore", "Kenya Moore", False),
    ("m.moore", "kenya", True),
    ("m.beyonce", "Beyoncé", False),
    ("m.us", "United States", False),
    ("m.us", "U.S.", True),
    ("m.us", "US", True),
    ("m.beatles", "The Beatles", False),
    ("m.potter", "Harry Potter", False),
    ("m.potter1", "harry potter", True),
    ("m.potter1", "Harry Potter and the Philosopher's Stone", False),
    ("m.potter2", "Harry Potter", True),
    ("m.potter2", "Harry Potter and the Deathly Hallows", False),
    ("m.obama", "Barack Obama", False),
    ("m.bieber", "Justin Bieber", False),
    ("m.brother", "Brother", False),
    ("m.bang", "!!!", False),
    ("m.anonymous", "Nobody", True),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> NameIndex:
    path = tmp_path_factory.mktemp("names") / "names.sqlite"
    builder = NameIndexBuilder(path)
    builder.add(StatedName(*name) for name in NAMES[:7])
    builder.add(StatedName(*name) for name in NAMES[7:])
    # "US" and "U.S." of one entity are one name.
    assert builder.finish(POPULARITY) == len(NAMES) - 1
    return NameIndex.open(path)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("  Harry   POTTER ", "harry potter", id="case and blanks"),
        pytest.param("Beyoncé", "beyonce", id="accents"),
        pytest.param("Straße", "strasse", id="casefold"),
        pytest.param("Łódź, Øresund", "lodz oresund", id="letters without decomposition"),
        pytest.param("Spider-Man: Homecoming", "spider man homecoming", id="punctuation"),
        pytest.param("Schindler's List", "schindlers list", id="apostrophe"),
        pytest.param("schindler 's list", "schindlers list", id="tokenised apostrophe"),
        pytest.param("The Beatles", "beatles", id="leading the"),
        pytest.param("The The", "the", id="never empty by the"),
        pytest.param("J. R. R. Tolkien", "jrr tolkien", id="initials apart"),
        pytest.param("J.R.R. Tolkien", "jrr tolkien", id="initials together"),
        pytest.param("U.S.A.", "usa", id="abbreviation"),
        pytest.param("Simon & Garfunkel", "simon and garfunkel", id="ampersand"),
        pytest.param("!!!", "!!!", id="punctuation only"),
        pytest.param("東京", "東京", id="other script"),
        pytest.param("", "", id="empty"),
        pytest.param("\ud800 !", "!", id="lone surrogate"),
    ],
)
def test_normalise(text: str, key: str) -> None:
    assert normalise(text) == key
    assert normalise(key) == key


@pytest.mark.parametrize(
    ("text", "mids"),
    [
        pytest.param("kenya", ["m.kenya", "m.moore"], id="own name and alias"),
        pytest.param("Kenya's", ["m.kenya", "m.moore"], id="possessive"),
        pytest.param("beyonce", ["m.beyonce"], id="accents"),
        pytest.param("u.s.", ["m.us"], id="abbreviation"),
        pytest.param("Beatles", ["m.beatles"], id="without the"),
        pytest.param("the kenya", ["m.kenya", "m.moore"], id="with the"),
        # Of 70, 300 and 90; the last two are aliases, which count as a quarter.
        pytest.param("Harry Potter", ["m.potter", "m.potter2", "m.potter1"], id="order"),
        pytest.param("!!!", ["m.bang"], id="punctuation"),
        pytest.param("nairobi", [], id="unknown"),
        pytest.param("", [], id="empty"),
    ],
)
def test_lookup_finds_equal_names_best_first(index: NameIndex, text: str, mids: list[str]) -> None:
    matches = index.lookup(text)
    assert [match.mid for match in matches] == mids
    assert all(match.score == 1 for match in matches)
    assert [match.mid for match in index.lookup(text, limit=1)] == mids[:1]


def test_a_match_tells_the_name_and_what_matched(index: NameIndex) -> None:
    moore = index.lookup("kenya")[1]
    assert (moore.name, moore.matched, moore.is_alias) == ("Kenya Moore", "kenya", True)
    assert moore.popularity == 5
    nobody = index.lookup("nobody")[0]
    assert (nobody.name, nobody.is_alias) == ("Nobody", True)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param("kenya", "m.kenya", id="exact"),
        pytest.param("beyonse", "m.beyonce", id="wrong letter"),
        pytest.param("barak obama", "m.obama", id="missing letter"),
        pytest.param("obama", "m.obama", id="one word of two"),
        pytest.param("justin bie", "m.bieber", id="beginning"),
        pytest.param("deathly hallows", "m.potter2", id="words inside"),
        pytest.param("potter harry hallows", "m.potter2", id="other order"),
        pytest.param("u", "m.us", id="one letter"),
    ],
)
def test_search_forgives(index: NameIndex, text: str, first: str) -> None:
    matches = index.search(text)
    assert matches[0].mid == first
    scores = [match.score for match in matches]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)
    assert len(matches) == len({match.mid for match in matches})


@pytest.mark.parametrize(
    "text", ['"', 'a" OR "b*', "NEAR(a b)", "key:x", "-", "*", "  ", "'); DROP"]
)
def test_search_takes_no_operators(index: NameIndex, text: str) -> None:
    index.search(text)
    index.lookup(text)
    index.match_spans(text.split())


def test_spans_of_a_question(index: NameIndex) -> None:
    tokens = ["what", "is", "the", "name", "of", "Justin", "Bieber's", "brother"]
    found = {
        " ".join(tokens[span.start : span.end]): span.matches[0].mid
        for span in index.match_spans(tokens)
    }
    assert found == {"Justin Bieber's": "m.bieber", "brother": "m.brother"}


def test_spans_come_in_reading_order_longest_first(index: NameIndex) -> None:
    spans = index.match_spans(["harry", "potter", "kenya", "moore"])
    assert [(span.start, span.end) for span in spans] == [(0, 2), (2, 4), (2, 3)]
    assert index.match_spans(["kenya", "moore"], max_tokens=1)[0].end == 1
    assert index.match_spans([]) == []


def test_threads_share_an_index(index: NameIndex) -> None:
    found: list[str] = []

    def look() -> None:
        for _ in range(100):
            found.append(index.lookup("kenya")[0].mid)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["m.kenya"] * 400


def test_what_is_no_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no name index at"):
        NameIndex.open(tmp_path / "names.sqlite")
    other = tmp_path / "other"
    other.write_text("not SQLite")
    with pytest.raises(StoreError, match="is no name index"):
        NameIndex.open(other)
