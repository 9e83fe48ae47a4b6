import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from kbqa.engine.linking.mentions import (
    MAX_WORDS,
    SHIPPED_MODEL,
    LinkingModel,
    find_mentions,
    mend_mojibake,
    stem,
    tokenise,
)
from kbqa.kb.loading.shards import NameIndexBuilder
from kbqa.kb.names import NameIndex, NameMatch
from kbqa.sparql.errors import ModelError
from kbqa.sparql.terms import is_mid

MakeNames = Callable[..., "CountingNames"]


class CountingNames(NameIndex):
    """A name index that keeps for which texts it was asked for typing errors."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.near_lookups: list[str] = []

    def near(self, text: str, limit: int = 10) -> list[NameMatch]:
        self.near_lookups.append(text)
        return super().near(text, limit)


@pytest.fixture
def make_names(tmp_path: Path) -> Iterator[MakeNames]:
    """Build indexes of a few names."""
    opened = []

    def make(*names: str) -> CountingNames:
        path = tmp_path / f"names{len(opened)}.sqlite"
        builder = NameIndexBuilder(path)
        rows = [(f"m.{number}", 1, name, False) for number, name in enumerate(names)]
        builder.add(pl.DataFrame(rows, ["mid", "popularity", "text", "is_alias"], orient="row"))
        builder.finish()
        opened.append(CountingNames.open(path))
        return opened[-1]

    yield make
    for names in opened:
        names.close()


def names_in(question: str, names: NameIndex) -> list[str]:
    mentions = find_mentions(question, names)
    return [mentions.text(span.start, span.end) for span in mentions.spans]


def test_all_readings_are_kept_as_they_overlap(make_names: MakeNames) -> None:
    names = make_names("New York", "New York City", "York", "City Hall")
    found = names_in("who built new york city hall?", names)
    assert found == ["new york city", "new york", "york", "city hall"]


def test_a_long_name_is_found_between_quotation_marks(make_names: MakeNames) -> None:
    saying = "It is a very rare man who does not go out of his way to victimize the helpless"
    assert names_in(f'Who said "{saying}"?', make_names(saying)) == [saying]


@pytest.mark.parametrize(
    ("question", "kind", "text"),
    [
        ("who ruled in 1789?", "date", "1789"),
        ("who won on 19 October 1875?", "date", "19 October 1875"),
        ("who won on october 19, 1875?", "date", "october 19, 1875"),
        ("who was born on 1875-10-19?", "date", "1875-10-19"),
        ("which bands played in the 1960s", "date", "1960s"),
        ("what happened from 1990-2000?", "date", "1990-2000"),
        ("what happened on 12-12-2012?", "date", "12-12-2012"),
        ("who was the 3rd president?", "ordinal", "3rd"),
        ("who was the twelfth president?", "ordinal", "twelfth"),
        ("who was the second president?", "ordinal", "second"),
        ("which city has more than 1,500,000 people?", "number", "1,500,000"),
        ("which city has two million people?", "number", "two million"),
        ("which town has a hundred people?", "number", "a hundred"),
        ("which city has a dozen bridges?", "number", "a dozen"),
        ("which rate is below 4.5 percent", "number", "4.5"),
    ],
)
def test_values_are_told_apart(question: str, kind: str, text: str, make_names: MakeNames) -> None:
    mentions = find_mentions(question, make_names("Kenya"))
    assert [(v.kind, mentions.text(v.start, v.end)) for v in mentions.values] == [(kind, text)]


@pytest.mark.parametrize("question", ["who may march?", "is it one of them?"])
def test_words_that_may_be_values_are_none_by_themselves(
    question: str, make_names: MakeNames
) -> None:
    assert not find_mentions(question, make_names("Kenya")).values


def test_a_misspelt_name_is_looked_for_where_nobody_bears_the_word(make_names: MakeNames) -> None:
    names = make_names("Griffin", "Stewie Griffin")
    assert names_in("Who voices Stewis Griffin?", names) == ["Griffin", "Stewis Griffin"]


def test_a_misspelt_word_is_looked_for_in_lower_case_too(make_names: MakeNames) -> None:
    names = make_names("capital", "Jamaica")
    assert names_in("which capital has jamaca", names) == ["capital", "jamaca"]


def test_taller_is_not_looked_up_as_a_misspelt_name(make_names: MakeNames) -> None:
    names = make_names("Teller", "Magic Johnson")
    assert names_in("who is taller than magic johnson", names) == ["magic johnson"]


def test_names_that_are_written_right_are_not_doubted(make_names: MakeNames) -> None:
    names = make_names("Stewie Griffin", "voices")
    find_mentions("Who voices Stewie Griffin?", names)
    assert names.near_lookups == []


def test_typing_errors_are_looked_for_a_bounded_number_of_times(make_names: MakeNames) -> None:
    names = make_names("Kenya")
    find_mentions(" ".join(f"unheard{chr(97 + i)}" for i in range(26)), names)
    assert len(names.near_lookups) <= 12


def test_a_text_is_read_up_to_its_hundredth_word() -> None:
    assert len(tokenise("word " * 10_000)) == MAX_WORDS


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("Where is GoiÃ¡s?", "Where is Goiás?"),
        ("Rosie Oâ€™Donnell", "Rosie O’Donnell"),
        ("who died in ConstanÈ\x9ba?", "who died in Constanța?"),
        ("in UTCâ\x88\x9205:00?", "in UTC−05:00?"),
        ("Where is GoiÃ¡s – the state?", "Where is Goiás – the state?"),
        ("“Ã–sterreich” and “ÃŽle”", "“Österreich” and “Île”"),
        ("Rosie Oâ€™Donnell – â€œwhoâ€\x9d", "Rosie O’Donnell – “who”"),
        ("ÐœÐ¾Ñ\x81ÐºÐ²Ð° – city", "Москва – city"),
        ("GoiÃƒÂ¡s", "Goiás"),
        ("who founded AT&amp;T?", "who founded AT&T?"),
        ("AT&amp;amp;T, SÃ£o &quot;Paulo&#39;s&quot;", 'AT&T, São "Paulo\'s"'),
        ("R&B &copy AT&T; ok", "R&B &copy AT&T; ok"),
        ("is “CAFÉ” “Spaß”?", "is “CAFÉ” “Spaß”?"),
        ("« café\xa0» à “Ä”", "« café\xa0» à “Ä”"),
        ("Where is Goiás?", "Where is Goiás?"),
        ("ÑANDÚ Ãlvares", "ÑANDÚ Ãlvares"),
        ("ποῦ;", "ποῦ;"),
    ],
)
def test_mojibake_is_mended_and_nothing_else(text: str, mended: str) -> None:
    assert mend_mojibake(text) == mended


def test_a_name_with_the_symbols_of_the_question_is_meant(make_names: MakeNames) -> None:
    names = make_names("C", "C++", "C Sharp", "Yahoo", "c #")

    def named(question: str) -> list[tuple[str, list[str]]]:
        mentions = find_mentions(question, names)
        return [
            (mentions.text(start, end), [match.name for match in matches])
            for start, end, matches in mentions.spans
        ]

    assert named("who designed C++?") == [("C++", ["C++"])]
    assert named("who designed C#") == [("C#", ["c #"])]
    assert named("who designed C?") == [("C", ["C", "C++", "c #"])]
    # The graph has it without the symbol.
    assert named("who runs Yahoo!?") == [("Yahoo", ["Yahoo"])]


MODEL = LinkingModel(
    names={"kenya": 2.5, "born": -3.0},
    types={"people.person": {"born": 1.5, "capital": -1.0}, "location.country": {"capital": 2.0}},
    relations={"people.person.place_of_birth": 0.5, "location.country.capital": 0.5},
    asking={
        "born": {"people.person.place_of_birth": 2.0, "location.country.capital": -1.0},
        "capital": {"location.country.capital": 3.0},
    },
    first={"words": 1.25},
    final={"words": 0.5, "before:of": -0.1},
    trained_on={"webqsp.train": 2},
)


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    MODEL.save(tmp_path / "model.json")
    assert LinkingModel.load(tmp_path / "model.json") == MODEL


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema_version": 99}', '{"schema_version": 1, "nothing": {}}']
)
def test_what_is_not_a_model_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelError, match="cannot read the linking model"):
        LinkingModel.load(tmp_path / "model.json")


def test_a_missing_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.json"):
        LinkingModel.load(tmp_path / "none.json")


def test_the_embedders_weights_in_an_older_file_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    MODEL.save(path)
    text = path.read_text("utf-8")
    path.write_text(text.replace('"trained_on"', '"final_embedded": {"a": 1},\n"trained_on"'))
    assert LinkingModel.load(path) == MODEL


def test_words_ask_for_relations() -> None:
    asked = MODEL.asked_relations({"where", "born"})
    assert sum(asked.values()) == pytest.approx(1)
    assert asked["people.person.place_of_birth"] > 0.9
    assert MODEL.asked_relations(())["location.country.capital"] == 0.5


def test_types_agree_with_words_in_the_mean() -> None:
    both = ["people.person", "location.country", "location.unknown"]
    assert MODEL.type_agreement(both, {"capital"}) == pytest.approx(0.5)
    assert MODEL.type_agreement(["location.unknown"], {"capital"}) == 0


def test_the_shipped_model_is_valid(tmp_path: Path) -> None:
    copy = tmp_path / "model.json"
    copy.write_bytes(SHIPPED_MODEL.read_bytes())
    assert LinkingModel.load(copy) == LinkingModel.load()


def test_the_shipped_model_knows_words_and_no_entity() -> None:
    model = LinkingModel.load()
    assert set(model.trained_on) == {"webqsp.train", "cwq.dev"}
    keys = {*model.names, *model.types, *model.relations, *model.asking, *model.final}
    assert not [key for key in keys if is_mid(key)]
    assert SHIPPED_MODEL.stat().st_size < 2_000_000


@pytest.mark.parametrize("word", ["is", "was", "us", "ed", "s"])
def test_short_words_keep_their_endings(word: str) -> None:
    assert stem(word) == word


def test_relations_that_have_no_share_are_not_asked_for() -> None:
    changed = replace(MODEL, relations={"location.country.capital": 0.0})
    assert changed.asked_relations(["capital", "born"]) == {"location.country.capital": 0.0}


def test_absurd_weights_give_no_error() -> None:
    changed = replace(MODEL, asking={"capital": {"location.country.capital": 1e300}})
    assert changed.asked_relations(["capital"])["location.country.capital"] == pytest.approx(1)
