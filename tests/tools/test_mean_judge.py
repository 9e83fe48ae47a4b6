"""The mean of judges is between them."""

import json
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kbqa.engine.running.cross_encoder import ADAPTER_FILE, SETTINGS_FILE, CrossEncoder
from kbqa.engine.running.precedents import PRECEDENTS_FILE
from kbqa.engine.running.reading import READER_FOLDER, SHIPPED_JUDGE
from kbqa.sparql.errors import InputError
from tools.fit.mean_judge import average_judges


@pytest.fixture
def doubled(tmp_path: Path) -> Path:
    """The shipped judge with twice its weights."""
    copy = copytree(SHIPPED_JUDGE, tmp_path / "doubled")
    weights = copy / READER_FOLDER / ADAPTER_FILE
    save_file({name: 2 * each for name, each in load_file(weights).items()}, weights)
    return copy


def test_weights_are_the_mean_and_the_rest_is_the_first(doubled: Path, tmp_path: Path) -> None:
    mean = tmp_path / "mean"
    average_judges([SHIPPED_JUDGE, doubled], mean)
    before = load_file(SHIPPED_JUDGE / READER_FOLDER / ADAPTER_FILE)
    after = load_file(mean / READER_FOLDER / ADAPTER_FILE)
    assert after.keys() == before.keys()
    assert all(np.allclose(after[name], 1.5 * before[name]) for name in before)
    kept = [(judge / PRECEDENTS_FILE).read_bytes() for judge in (SHIPPED_JUDGE, mean)]
    assert kept[0] == kept[1]
    CrossEncoder.load(mean / READER_FOLDER).score("who?", ["a path"])


def test_judges_of_other_shapes_are_refused(doubled: Path, tmp_path: Path) -> None:
    settings = doubled / READER_FOLDER / SETTINGS_FILE
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "scale": 3.0}) + "\n")
    with pytest.raises(InputError, match="different shapes"):
        average_judges([SHIPPED_JUDGE, doubled], tmp_path / "mean")


def test_a_folder_that_is_no_judge_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot average"):
        average_judges([SHIPPED_JUDGE, tmp_path], tmp_path / "mean")
