import re
import sqlite3
import threading
import unicodedata
from contextlib import closing
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.kb.build_names import NameIndexBuilder
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


def names(*rows: tuple[str, int, str, bool]) -> pl.DataFrame:
    return pl.DataFrame(rows, ["mid", "popularity", "text", "is_alias"], orient="row")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> NameIndex:
    path = tmp_path_factory.mktemp("names") / "names.sqlite"
    rows = [(mid, POPULARITY[mid], text, is_alias) for mid, text, is_alias in NAMES]
    builder = NameIndexBuilder(path)
    builder.add(names(*rows[:5]))
    builder.add(names(*rows[5:]))
    # "US" and "U.S." of one entity are one name.
    assert builder.finish() == len(NAMES) - 1
    # Nothing is left of the building but the index.
    assert list(path.parent.iterdir()) == [path]
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


_REFERENCE_FOLDED = str.maketrans(
    dict(zip("øłđðıæœþ&", ["o", "l", "d", "d", "i", "ae", "oe", "th", " and "], strict=True))
)


def reference_key(text: str) -> str:
    """Normalise step by step, every text alike."""
    folded = unicodedata.normalize("NFKD", text.casefold()).casefold()
    folded = "".join(c for c in folded if not unicodedata.combining(c))
    folded = folded.translate(_REFERENCE_FOLDED)
    folded = re.sub(r"\s*['’ʼ`´](?=s\b)|['’ʼ`´]", "", folded)
    words = re.sub(r"[\W_]+", " ", folded).strip()
    words = re.sub(r"\b(?:\w )+\w\b", lambda run: run.group().replace(" ", ""), words)
    return words.removeprefix("the ") or " ".join(text.split())


@pytest.mark.parametrize(
    "alphabet",
    [
        pytest.param(st.characters(max_codepoint=127), id="ASCII"),
        pytest.param(st.sampled_from("aBs '`&.-_ 1\t\x1cthe"), id="what is treated apart"),
        pytest.param(st.characters(exclude_categories=["Cs"]), id="any"),
        pytest.param(st.sampled_from("aé s’'´ø&ＡＢ．ßİ東 "), id="accents and wide letters"),
    ],
)
@given(data=st.data())
def test_the_short_way_for_ascii_changes_no_key(
    alphabet: st.SearchStrategy[str], data: st.DataObject
) -> None:
    text = data.draw(st.text(alphabet, max_size=20))
    assert normalise(text) == reference_key(text)


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


def test_an_entity_is_called_by_its_first_own_name(tmp_path: Path) -> None:
    builder = NameIndexBuilder(tmp_path / "names.sqlite")
    stated = [("the bard", True), ("Will", False), ("Bard", True), ("WILL", True), ("Bill", False)]
    builder.add(names(*(("m.will", 0, text, is_alias) for text, is_alias in stated)))
    assert builder.finish() == 3
    index = NameIndex.open(tmp_path / "names.sqlite")
    matches = [index.lookup(text)[0] for text in ("bard", "will", "bill")]
    assert [(match.name, match.matched, match.is_alias) for match in matches] == [
        ("Will", "the bard", True),
        ("Will", "Will", False),
        ("Will", "Bill", False),
    ]
    assert {match.popularity for match in matches} == {0}


def test_names_that_are_treated_together_are_normalised_as_one_by_one(tmp_path: Path) -> None:
    words = ["The", "the", "Other", "a", "B", "12", "7", "é", "US", "O'Neil", ""]
    texts = [" ".join(words) for words in product(words, repeat=3)]
    builder = NameIndexBuilder(tmp_path / "names.sqlite")
    builder.add(names(*((f"m.{n}", 1, text, False) for n, text in enumerate(texts))))
    builder.finish()
    with closing(sqlite3.connect(tmp_path / "names.sqlite")) as connection:
        keys = dict(connection.execute("SELECT text, key FROM name"))
    assert keys == {text: normalise(text) for text in texts}


def test_a_build_that_was_killed_is_built_anew(tmp_path: Path) -> None:
    path = tmp_path / "names.sqlite"
    for leftover in (path, tmp_path / "names.sqlite.staging"):
        leftover.write_bytes(b"half an index")
    builder = NameIndexBuilder(path)
    builder.add(names(("m.kenya", 1, "Kenya", False)))
    assert builder.finish() == 1
    assert [match.mid for match in NameIndex.open(path).lookup("kenya")] == ["m.kenya"]


def test_a_build_that_is_given_up_leaves_no_staged_names(tmp_path: Path) -> None:
    builder = NameIndexBuilder(tmp_path / "names.sqlite")
    builder.add(names(("m.kenya", 1, "Kenya", False)))
    builder.close()
    assert [path.name for path in tmp_path.iterdir()] == ["names.sqlite"]


def test_short_beginnings_find_the_popular_first_among_many(tmp_path: Path) -> None:
    builder = NameIndexBuilder(tmp_path / "names.sqlite")
    builder.add(names(*((f"m.{n}", 1, f"a{n:06}", False) for n in range(30_000))))
    builder.add(names(("m.az", 9, "Azores", False)))
    builder.finish()
    index = NameIndex.open(tmp_path / "names.sqlite")
    assert index.search("a")[0].mid == "m.az"
