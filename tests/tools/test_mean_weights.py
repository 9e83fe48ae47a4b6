"""The mean of adapters is between them."""

import json
from pathlib import Path
from shutil import copytree

import pytest

torch = pytest.importorskip("torch", reason="needs the lm extra")
from safetensors.torch import load_file, save_file  # noqa: E402

from kbqa.engine.running.judge import (  # noqa: E402
    READER_FOLDER,
    SHIPPED_JUDGE,
    CrossEncoder,
)
from kbqa.engine.writing.generate import DEFAULT_ADAPTER  # noqa: E402
from kbqa.sparql.errors import InputError  # noqa: E402
from tools.fit.mean_weights import average_weights  # noqa: E402

READER = SHIPPED_JUDGE / READER_FOLDER


def _doubled(adapter: Path, folder: Path) -> Path:
    """Copy an adapter with twice its weights."""
    copytree(adapter, folder)
    [file] = folder.glob("*.safetensors")
    save_file({name: 2 * each for name, each in load_file(file).items()}, file)
    return folder


@pytest.mark.parametrize("adapter", [READER, DEFAULT_ADAPTER])
def test_weights_are_the_mean_and_the_rest_is_the_same(adapter: Path, tmp_path: Path) -> None:
    mean = tmp_path / "mean"
    average_weights([adapter, _doubled(adapter, tmp_path / "doubled")], mean)
    [before] = map(load_file, adapter.glob("*.safetensors"))
    [after] = map(load_file, mean.glob("*.safetensors"))
    assert {name: each.dtype for name, each in after.items()} == {
        name: each.dtype for name, each in before.items()
    }
    assert all(
        torch.allclose(after[name].float(), 1.5 * before[name].float(), rtol=0.01)
        for name in before
    )
    for file in adapter.glob("*.json"):
        assert (mean / file.name).read_bytes() == file.read_bytes()


def test_a_mean_of_cross_encoders_reads(tmp_path: Path) -> None:
    average_weights([READER, READER], tmp_path)
    same, mean = CrossEncoder.load(READER), CrossEncoder.load(tmp_path)
    texts = ["Kenya: country capital = Nairobi"]
    assert mean.score("what is Kenya's capital?", texts) == same.score(
        "what is Kenya's capital?", texts
    )


def test_adapters_with_other_settings_are_refused(tmp_path: Path) -> None:
    doubled = _doubled(READER, tmp_path / "doubled")
    [settings] = doubled.glob("*.json")
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "scale": 3.0}) + "\n")
    with pytest.raises(InputError, match="settings or prompts of these adapters differ"):
        average_weights([READER, doubled], tmp_path / "mean")


def test_a_folder_without_weights_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 0 files of weights"):
        average_weights([READER, tmp_path], tmp_path / "mean")
