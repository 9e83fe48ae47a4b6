import _thread
import signal
import sqlite3
import threading
from contextlib import closing
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.kb.loading.shards import NameIndexBuilder
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
    "m.c": 900,
    "m.cpp": 60,
    "m.csharp": 9,
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
    ("m.c", "C", False),
    ("m.cpp", "C++", False),
    ("m.csharp", "C Sharp", False),
    ("m.csharp", "c #", True),
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
    ("text", "mids"),
    [
        pytest.param("kenya", ["m.kenya", "m.moore"], id="own name and alias"),
        pytest.param("c++", ["m.cpp", "m.c", "m.csharp"], id="the same symbols first"),
        pytest.param("C#", ["m.csharp", "m.c", "m.cpp"], id="the same symbols, spaced"),
        pytest.param("C", ["m.c", "m.cpp", "m.csharp"], id="no symbols"),
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


def test_a_possessive_keeps_the_symbols(index: NameIndex) -> None:
    assert [match.mid for match in index.lookup("C++'s", limit=1)] == ["m.cpp"]


@pytest.mark.parametrize(
    ("text", "mids"),
    [
        pytest.param("Kenya's", ["m.kenya", "m.moore"], id="possessive"),
        pytest.param("justin bieber s", ["m.bieber"], id="possessive without its apostrophe"),
        pytest.param("the Biebers'", [], id="possessive of a plural that nobody bears"),
        pytest.param("Brothers", ["m.brother"], id="plural"),
        pytest.param("the Beatle", ["m.beatles"], id="singular"),
        pytest.param("'s", [], id="nothing but a possessive"),
    ],
)
def test_lookup_finds_other_forms_with_a_lower_score(
    index: NameIndex, text: str, mids: list[str]
) -> None:
    matches = index.lookup(text)
    assert [match.mid for match in matches] == mids
    assert all(match.score == 0.95 for match in matches)


def test_the_singular_stands_behind_those_who_bear_the_plural(tmp_path: Path) -> None:
    builder = NameIndexBuilder(tmp_path / "names.sqlite")
    rows = [("m.comic", 1, "Peanuts"), ("m.food", 9, "Peanut"), ("m.queens", 1, "Queens")]
    builder.add(names(*((*row, False) for row in rows), ("m.comic", 1, "Peanut", True)))
    builder.finish()
    index = NameIndex.open(tmp_path / "names.sqlite")
    found = [(match.mid, match.score) for match in index.lookup("peanuts")]
    assert found == [("m.comic", 1), ("m.food", 0.95)]
    assert [match.mid for match in index.lookup("peanuts", limit=1)] == ["m.comic"]
    # The plural is a guess, for where there is nobody.
    assert [match.mid for match in index.lookup("queen")] == ["m.queens"]
    assert [match.mid for match in index.lookup("peanut")] == ["m.food", "m.comic"]


@pytest.mark.parametrize(
    ("text", "mids"),
    [
        pytest.param("beyonse", ["m.beyonce"], id="wrong letter"),
        pytest.param("barack obma", ["m.obama"], id="missing letter"),
        pytest.param("justin bieberr", ["m.bieber"], id="letter too many"),
        pytest.param("jutsin bieber", ["m.bieber"], id="swapped letters"),
        pytest.param("justinbieber", ["m.bieber"], id="missing blank"),
        pytest.param("jus tin bieber", ["m.bieber"], id="blank too many"),
        pytest.param("justi nbieber", ["m.bieber"], id="blank swapped forward"),
        pytest.param("justinb ieber", ["m.bieber"], id="blank swapped back"),
        pytest.param("justinxbieber", ["m.bieber"], id="letter for a blank"),
        pytest.param("barak obamma", ["m.obama"], id="errors in two words"),
        pytest.param("barack obxxa", ["m.obama"], id="two errors in a short word"),
        pytest.param("united sttats", ["m.us"], id="two errors"),
        pytest.param("hary pottr", ["m.potter", "m.potter2", "m.potter1"], id="three bearers"),
        pytest.param("BEYONSÉ", ["m.beyonce"], id="normalised first"),
        pytest.param("keny", ["m.kenya", "m.moore"], id="four letters"),
        pytest.param("kenya", [], id="equal names are for lookup"),
        pytest.param("bxyonsx", [], id="two errors in seven letters"),
        pytest.param("xxrack obamma", [], id="three errors"),
        pytest.param("u", [], id="short"),
        pytest.param("", [], id="empty"),
    ],
)
def test_near_forgives_typing_errors(index: NameIndex, text: str, mids: list[str]) -> None:
    matches = index.near(text)
    assert [match.mid for match in matches] == mids
    assert all(0.5 < match.score < 1 for match in matches)
    assert [match.mid for match in index.near(text, limit=1)] == mids[:1]


def test_near_takes_the_fewest_errors_and_then_the_best_known(tmp_path: Path) -> None:
    builder = NameIndexBuilder(tmp_path / "names.sqlite")
    named = {"Marten": 1, "Martin": 50, "Morton": 900, "Martin 4": 7, "Martin 5": 2}
    rows = [(f"m.{name}", popularity, name, False) for name, popularity in named.items()]
    builder.add(names(*rows))
    builder.finish()
    index = NameIndex.open(tmp_path / "names.sqlite")
    found = [match.mid for match in index.near("martyn")]
    assert found == ["m.Martin", "m.Marten"]
    assert [match.mid for match in index.near("martyn 4")] == ["m.Martin 4"]
    assert index.near("martin")[0].score == pytest.approx(1 - 1 / 6)


_SYLLABLES = st.sampled_from(["ba", "do", "ki", "lu", "ra", "sk", "en", "mo"])
_WORDS = st.lists(_SYLLABLES, min_size=2, max_size=5).map("".join)


@settings(max_examples=40)
@given(name=st.lists(_WORDS, min_size=1, max_size=3).map(" ".join), data=st.data())
def test_near_finds_every_single_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("one") / "names.sqlite"
    builder = NameIndexBuilder(path)
    builder.add(names(("m.it", 1, name, False)))
    builder.finish()
    at = data.draw(st.integers(0, len(name) - 2))
    letter, other = data.draw(st.sampled_from("abz ")), data.draw(st.sampled_from("abz"))
    wrong = data.draw(
        st.sampled_from(
            [
                name[:at] + name[at + 1 :],
                name[:at] + letter + name[at:],
                name[:at] + other + name[at + 1 :],
                name[:at] + name[at + 1] + name[at] + name[at + 2 :],
            ]
        )
    )
    text = normalise(wrong)
    # A letter between blanks is an initial and joins its neighbour, which makes it another text.
    if text != normalise(name) and len(text) >= 4 and 1 not in map(len, wrong.split()):
        with closing(NameIndex.open(path)) as index:
            assert [match.mid for match in index.near(wrong)] == ["m.it"]


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


def test_containing_finds_longer_names_alone(index: NameIndex) -> None:
    assert [match.mid for match in index.containing("hallows potter")] == ["m.potter2"]
    assert "Kenya" not in [match.matched for match in index.containing("Kenya")]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('"', id="quote"),
        pytest.param('a" OR "b*', id="quotes around an operator"),
        pytest.param("kenya AND nobody", id="AND"),
        pytest.param("NEAR(kenya moore)", id="NEAR"),
        pytest.param("key:kenya", id="column"),
        pytest.param("-", id="minus"),
        pytest.param("*", id="star"),
        pytest.param("^ + {", id="other operators"),
        pytest.param("  ", id="blanks"),
        pytest.param("'); DROP TABLE name; --", id="SQL"),
        pytest.param("\0", id="NUL"),
        pytest.param("ken\0ya", id="NUL inside"),
        pytest.param("\ud800\udfff kenyaa\ud800", id="lone surrogates"),
        pytest.param("\u202e\u200f عربي", id="right to left"),
        pytest.param("👩\u200d🚀 🙂", id="emoji"),
        pytest.param("%00%ff%", id="percent-encoded"),
        pytest.param("a" * 10_000, id="a long word"),
        pytest.param("a b " * 2_500, id="many words"),
        pytest.param(" " * 10_000 + "'", id="many blanks"),
        pytest.param("' " * 5_000, id="many apostrophes"),
        pytest.param('"' * 10_000, id="many quotes"),
    ],
)
def test_any_text_is_only_text(index: NameIndex, text: str) -> None:
    for matches in (
        index.lookup(text),
        index.near(text),
        index.containing(text),
        index.search(text),
    ):
        assert all(0 < match.score <= 1 for match in matches)
    index.match_spans(text.split())
    assert index.lookup("kenya")[0].mid == "m.kenya"


@given(text=st.text(st.characters(), max_size=40))
def test_no_text_breaks_the_index(index: NameIndex, text: str) -> None:
    index.lookup(text)
    index.near(text)
    index.search(text)


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
    words = ["The", "the", "St", "a", "B", "12", "7", "é", "US", "O'Neil", ""]
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


def test_ctrl_c_while_sqlite_calls_a_function_is_no_error_of_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def interrupt(word: str) -> bool:
        _thread.interrupt_main()  # as a signal, and a process that has no handler outlives it
        return len(word) > 0

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, handler))
    monkeypatch.setattr("kbqa.kb.loading.shards.is_spelled", interrupt)
    builder = NameIndexBuilder(tmp_path / "names.sqlite")
    builder.add(names(("m.kenya", 1, "Kenya", False)))
    with pytest.raises(KeyboardInterrupt):
        builder.finish()
    builder.close()
    assert not list(tmp_path.glob("*.staging"))
