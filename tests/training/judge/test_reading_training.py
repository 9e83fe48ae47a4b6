"""The cross-encoder learns which candidates are right, from toys."""

import json
import math
from pathlib import Path

import pytest

from kbqa.engine.running.judge import READER_VERSION, SETTINGS_FILE, CrossEncoder
from kbqa.sparql.errors import ModelError, TrainingError
from kbqa.training.judge.learning import ReadingConfig, ReadingExample, train_reading

pytest.importorskip("torch", reason="needs the lm extra")

COUNTRIES = ("Kenya", "Peru", "Chile", "Ghana", "Nepal", "Oman", "Fiji", "Mali")
CANDIDATES = ("{}: country capital", "{}: country currency used", "{}: country anthem")
ASKED = ("capital", "money", "song")


def _questions(countries: tuple[str, ...]) -> list[ReadingExample]:
    return [
        ReadingExample(
            f"what is the {asked} of {country}?",
            [(text.format(country), float(at == right)) for at, text in enumerate(CANDIDATES)],
        )
        for country in countries
        for right, asked in enumerate(ASKED)
    ]


def test_right_candidates_are_learnt_and_none_of_these(tmp_path: Path) -> None:
    """The right candidate scores above 0, which is what none scores, and the others below."""
    steps: list[tuple[int, int, float]] = []
    config = ReadingConfig(epochs=10, questions_a_step=3, without_right=0.3)
    train_reading(
        _questions(COUNTRIES[:6]), tmp_path / "reader", config, lambda *one: steps.append(one)
    )
    assert steps[-1][:2] == (60, 60)
    assert steps[-1][2] < math.log(len(CANDIDATES) + 1)
    encoder = CrossEncoder.load(tmp_path / "reader")
    for question, candidates in _questions(COUNTRIES[6:]):
        scores = encoder.score(question, [text for text, _ in candidates])
        assert [score > 0 for score in scores] == [f1 == 1.0 for _, f1 in candidates]


def test_what_no_path_says_makes_all_of_them_wrong(tmp_path: Path) -> None:
    """Conditions in words that were not read still count; words that ask nothing do not."""
    config = ReadingConfig(epochs=16, questions_a_step=3, with_condition=0.4)
    train_reading(_questions(COUNTRIES[:6]), tmp_path / "reader", config)
    encoder = CrossEncoder.load(tmp_path / "reader")
    text = CANDIDATES[0].format("Fiji")
    right, beside, beyond = (
        encoder.score(question, [text])[0]
        for question in (
            "what is the capital of Fiji?",
            "just wondering, what is the capital of Fiji? thanks",
            "what is the nicest capital of Fiji's enemy with no rats?",
        )
    )
    assert min(right, beside) > 0 > beyond


@pytest.mark.parametrize(
    ("rank", "scale", "message"),
    [(4, 2.0, "it was trained with another rank"), (16, 1.0, "its scale is 1, and has to be 2")],
)
def test_a_start_of_another_rank_or_scale_is_refused(
    rank: int, scale: float, message: str, tmp_path: Path
) -> None:
    config = ReadingConfig(epochs=1, rank=rank)
    train_reading(_questions(COUNTRIES[:1]), tmp_path / "first", config)
    settings = {"schema_version": READER_VERSION, "scale": scale}
    (tmp_path / "first" / SETTINGS_FILE).write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=f"cannot go on from the judge in .*: {message}"):
        train_reading(
            _questions(COUNTRIES[:1]), tmp_path / "on", ReadingConfig(), start=tmp_path / "first"
        )


def test_questions_without_any_right_candidate_are_not_enough(tmp_path: Path) -> None:
    wrong = ReadingExample("who?", [("a", 0.0), ("b", 0.0)])
    with pytest.raises(TrainingError, match="no question has a right candidate"):
        train_reading([wrong, ReadingExample("what?", [])], tmp_path, ReadingConfig())
