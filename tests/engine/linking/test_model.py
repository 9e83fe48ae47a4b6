from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.engine.linking.model import SHIPPED_MODEL, LinkingModel, stem
from kbqa.sparql.errors import ModelError
from kbqa.sparql.terms import is_mid

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
