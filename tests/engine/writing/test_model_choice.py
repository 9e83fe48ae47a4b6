"""What runs the small model unless the user says."""

import json
from pathlib import Path

import pytest

from kbqa.engine.writing import generate
from kbqa.engine.writing.checkpoint import DEFAULT_BASE
from kbqa.engine.writing.generate import ModelChoice, default_backend
from kbqa.sparql.errors import ModelError

LLAMA = {
    "model_type": "llama",
    "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


@pytest.fixture
def installed(without, monkeypatch: pytest.MonkeyPatch):
    """Make torch and OpenVINO look installed only if they are named, on a machine without a GPU."""

    def installed(*names: str) -> None:
        without(*{"torch", "openvino"} - set(names))
        monkeypatch.setattr(generate, "_GPU_DEVICES", ())

    return installed


@pytest.mark.parametrize(
    ("packages", "backend"),
    [
        (("torch", "openvino"), "openvino"),
        (("openvino",), "openvino"),
        (("torch",), "transformers"),
        ((), "openvino"),  # what is missing is then reported with the smaller of the two installs
    ],
)
def test_openvino_runs_it_where_it_is_installed(installed, packages, backend) -> None:
    installed(*packages)
    assert default_backend(DEFAULT_BASE) == backend


def test_a_gpu_is_used(installed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed("torch", "openvino")
    monkeypatch.setattr(generate, "_GPU_DEVICES", (str(tmp_path),))
    assert default_backend(DEFAULT_BASE) == "transformers"


@pytest.mark.parametrize(
    ("changed", "backend"),
    [({}, "openvino"), ({"model_type": "qwen2"}, "transformers"), (None, "transformers")],
    ids=["llama", "another kind", "no configuration"],
)
def test_transformers_runs_what_openvino_cannot(
    installed, tmp_path: Path, changed: dict | None, backend: str
) -> None:
    installed("torch", "openvino")
    if changed is not None:
        (tmp_path / "config.json").write_text(json.dumps(LLAMA | changed))
    assert default_backend(str(tmp_path)) == backend


def test_without_any_runtime_the_smaller_one_is_advised(installed) -> None:
    installed()
    with pytest.raises(ModelError, match=r"needs openvino\. Install: pip install 'kbqa\[cpu\]'"):
        ModelChoice(None, None, 5).check()
