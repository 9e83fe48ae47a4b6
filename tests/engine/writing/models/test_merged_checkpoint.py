"""An adapter merged into a tiny random model, made once in the cache."""

import json
import shutil
from pathlib import Path

import pytest

from kbqa.engine.writing.models.base_models import quiet_transformers
from kbqa.engine.writing.models.checkpoint_weights import can_merge, merged_weights
from kbqa.engine.writing.models.merged_checkpoint import load_merged, merged_checkpoint
from kbqa.sparql.errors import ModelError


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Llama, with a tokenizer of three words."""
    torch = pytest.importorskip("torch", reason="needs the lm extra")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"<unk>": 0, "who": 1, "<end>": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=3,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    directory = tmp_path_factory.mktemp("models") / "base"
    LlamaForCausalLM(config).save_pretrained(str(directory))
    tokenizer.save_pretrained(str(directory))
    return directory


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    """A LoRA adapter whose weights are not zero."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    quiet_transformers()
    config = LoraConfig(r=2, target_modules=["v_proj"], init_lora_weights=False)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(str(base)), config)
    model.save_pretrained(str(tmp_path / "adapter"))
    return tmp_path / "adapter"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_numpy_merges_as_peft_does(base: Path, adapter: Path) -> None:
    assert can_merge(base, adapter)
    ours = merged_weights(base, adapter)
    theirs = load_merged(str(base), adapter, "float32").model.state_dict()
    assert ours.keys() == theirs.keys()
    for name, weights in ours.items():
        assert weights == pytest.approx(theirs[name].numpy(), abs=1e-7), name


def test_numpy_merges_no_adapter_of_another_kind(base: Path, adapter: Path) -> None:
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_dora": True}))
    assert not can_merge(base, adapter)


def test_a_whole_model_in_bf16_is_read_exactly(base: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(base)).to(torch.bfloat16)
    whole = tmp_path / "whole"
    shutil.copytree(base, whole)
    model.save_pretrained(str(whole))
    assert can_merge(whole, whole)
    weights = merged_weights(whole, whole)
    for name, expected in model.state_dict().items():
        assert (weights[name] == expected.float().numpy()).all(), name


def test_weights_cut_short_are_reported(base: Path, adapter: Path) -> None:
    path = adapter / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ModelError, match="cannot be loaded"):
        merged_weights(base, adapter)


def test_the_checkpoint_computes_what_base_and_adapter_do(base: Path, adapter: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    checkpoint = merged_checkpoint(adapter, None, "float32")
    plain = AutoModelForCausalLM.from_pretrained(str(base))
    merged = AutoModelForCausalLM.from_pretrained(str(checkpoint))
    inputs = AutoTokenizer.from_pretrained(str(checkpoint))("who", return_tensors="pt").input_ids
    assert inputs.tolist() == [[1]]
    with torch.inference_mode():
        without = plain(inputs).logits
        expected = PeftModel.from_pretrained(plain, str(adapter))(inputs).logits
        found = merged(inputs).logits
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(found, without, atol=1e-5)


def test_it_is_made_once_for_an_adapter_and_a_precision(adapter: Path, cache: Path) -> None:
    made = merged_checkpoint(adapter, None, "float32")
    written = (made / "model.safetensors").stat().st_mtime_ns
    assert merged_checkpoint(adapter, None, "float32") == made
    assert (made / "model.safetensors").stat().st_mtime_ns == written
    half = merged_checkpoint(adapter, None, "bfloat16")
    assert (half / "model.safetensors").stat().st_size < (made / "model.safetensors").stat().st_size
    assert sorted(cache.iterdir()) == sorted([made, half])


def test_another_base_gives_another_checkpoint(base: Path, adapter: Path, tmp_path: Path) -> None:
    other = shutil.copytree(base, tmp_path / "other")
    assert merged_checkpoint(adapter, str(other), "float32") != merged_checkpoint(
        adapter, None, "float32"
    )


def test_damaged_weights_are_told_and_leave_nothing(adapter: Path, cache: Path) -> None:
    (adapter / "adapter_model.safetensors").write_bytes(b"none")
    with pytest.raises(ModelError, match=r"base with adapter .* cannot be loaded"):
        merged_checkpoint(adapter, None, "float32")
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="cannot be written"):
        merged_checkpoint(adapter, None, "float32")


def test_a_missing_adapter_is_told(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs the lm extra")
    with pytest.raises(ModelError, match="there is no adapter"):
        merged_checkpoint(tmp_path / "none", None, "float32")
