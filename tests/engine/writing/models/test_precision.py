from pathlib import Path

import pytest

from kbqa.engine.writing.models import precision as precision_module
from kbqa.engine.writing.models.precision import (
    fastest_precision,
    has_fast_int8,
    openvino_precision,
)
from kbqa.sparql.errors import InputError


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
    monkeypatch.setattr(precision_module, "_CPU_INFO", tmp_path / "cpuinfo")
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
    monkeypatch.setattr(precision_module, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if limit is not None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert has_fast_int8() == is_fast
