from collections.abc import Sequence
from pathlib import Path

import pytest

from kbqa.engine.writing.backends.transformers_generator import TransformersGenerator
from kbqa.engine.writing.generate import Request
from kbqa.training.data.training_set import Example, Split
from kbqa.training.writer.config import TrainingConfig
from kbqa.training.writer.train import train_adapter
from kbqa.training.writer.validation import Validation

pytest.importorskip("torch", reason="needs the lm extra")


@pytest.mark.parametrize(
    ("one", "other", "is_better"),
    [
        (Validation(2.0, 0.5), Validation(1.0, 0.4), True),
        (Validation(1.0, 0.4), Validation(2.0, 0.5), False),
        (Validation(1.0, 0.5), Validation(2.0, 0.5), True),
        (Validation(1.0, 0.5), Validation(1.0, 0.5), False),
        (Validation(1.0, None), Validation(2.0, None), True),
        (Validation(2.0, None), Validation(1.0, None), False),
    ],
)
def test_main_paths_count_before_the_loss(
    one: Validation, other: Validation, is_better: bool
) -> None:
    assert one.is_better_than(other) == is_better


def test_the_share_is_that_of_main_paths_that_the_adapter_writes(
    examples: Sequence[Example], tiny_base: Path, tmp_path: Path
) -> None:
    """On questions it was trained on, a tiny model gets some right and some wrong."""
    config = TrainingConfig(base=str(tiny_base), epochs=12, learning_rate=3e-2, patience=0)
    result = train_adapter(Split(tuple(examples), tuple(examples)), tmp_path, config)
    generator = TransformersGenerator.load(tmp_path)
    beams = generator.generate([Request(example.question) for example in examples], n=1)
    relations = [text.partition("[")[2] for [text] in ([one.text for one in row] for row in beams)]
    right = sum(
        example.target.partition("[")[2] == relation
        for example, relation in zip(examples, relations, strict=True)
    )
    assert right > len(examples) / 4
    assert result.valid_main_path == pytest.approx(right / len(examples), abs=0.1)
