"""The cross-encoder learns which candidates are right, from toys."""

import math
from pathlib import Path

import pytest

from kbqa.engine.running.cross_encoder import CrossEncoder
from kbqa.sparql.errors import TrainingError
from kbqa.training.judge.reading import Read, ReadingConfig, Step, train_reading

pytest.importorskip("torch", reason="needs the lm extra")

COUNTRIES = ("Kenya", "Peru", "Chile", "Ghana", "Nepal", "Oman", "Fiji", "Mali")
CANDIDATES = ("{}: country capital", "{}: country currency used", "{}: country anthem")
ASKED = ("capital", "money", "song")


def _questions(countries: tuple[str, ...]) -> list[Read]:
    return [
        Read(
            f"what is the {asked} of {country}?",
            [(text.format(country), float(at == right)) for at, text in enumerate(CANDIDATES)],
        )
        for country in countries
        for right, asked in enumerate(ASKED)
    ]


def test_right_candidates_are_learnt(tmp_path: Path) -> None:
    steps: list[Step] = []
    config = ReadingConfig(epochs=8, questions_a_step=3)
    train_reading(_questions(COUNTRIES[:6]), tmp_path / "reader", config, steps.append)
    assert (steps[-1].step, steps[-1].steps) == (48, 48)
    assert steps[-1].loss < math.log(3)
    encoder = CrossEncoder.load(tmp_path / "reader")
    for question, candidates in _questions(COUNTRIES[6:]):
        scores = encoder.score(question, [text for text, _ in candidates])
        assert candidates[scores.index(max(scores))][1] == 1.0


def test_questions_that_teach_nothing_are_left_out(tmp_path: Path) -> None:
    alike = Read("who?", [("a", 0.0), ("b", 0.0)])
    with pytest.raises(TrainingError, match="no question has candidates of which some are better"):
        train_reading([alike, Read("what?", [])], tmp_path, ReadingConfig())
