"""The number format that language models compute in.

bf16 halves the memory and, on processors with instructions for it, the time. int8, which only
OpenVINO computes in here, quarters the memory. Results differ from float32's in about the third
digit, so log-probabilities, and sometimes texts, depend on the processor. With
``KBQA_PRECISION=float32``, processors agree to about six digits.
"""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    import torch

Precision = Literal["bfloat16", "float32"]
OpenVinoPrecision = Literal["int8", "bfloat16", "float32"]

_VARIABLE = "KBQA_PRECISION"
_CPU_INFO = Path("/proc/cpuinfo")


def fastest_precision(device: str) -> Precision:
    """Return ``KBQA_PRECISION`` if it is set, else the format that torch computes faster in.

    Args:
        device: ``cpu`` or ``cuda``.

    Raises:
        InputError: ``KBQA_PRECISION`` names neither format.
    """
    match os.environ.get(_VARIABLE):
        case None | "":
            return "bfloat16" if _has_fast_bf16(device) else "float32"
        case "bfloat16" | "float32" as precision:
            return precision
        case "int8":
            raise InputError(f"{_VARIABLE} is int8, which only --backend openvino computes in")
        case other:
            raise InputError(f"{_VARIABLE} is {other!r}: set it to bfloat16 or float32")


def mixed_precision(device: "torch.device") -> AbstractContextManager[None]:
    """Compute in bf16 if that is the fastest precision of the device.

    Raises:
        InputError: ``KBQA_PRECISION`` names neither format.
    """
    import torch

    in_bf16 = fastest_precision(device.type) == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=in_bf16)


def openvino_precision() -> OpenVinoPrecision:
    """Return ``KBQA_PRECISION`` if it is set, else what torch would compute in.

    int8 has to be asked for: it is faster still, but may cost F1 (docs/serving.md).

    Raises:
        InputError: ``KBQA_PRECISION`` names no format.
    """
    return "int8" if os.environ.get(_VARIABLE) == "int8" else fastest_precision("cpu")


def has_fast_int8() -> bool:
    """Return whether OpenVINO multiplies by matrices in int8 in 8 bits."""
    # OpenVINO 2026.4 returns nothing at all if oneDNN is told to do without these instructions.
    return "avx512_vnni" in _cpu_flags() and "ONEDNN_MAX_CPU_ISA" not in os.environ


def _has_fast_bf16(device: str) -> bool:
    if device == "cuda":
        import torch

        return bool(torch.cuda.is_bf16_supported())
    # Without these instructions a CPU computes bf16 many times slower than float32.
    return "avx512_bf16" in _cpu_flags()


def _cpu_flags() -> list[str]:
    try:
        return _CPU_INFO.read_text(encoding="utf-8").split()
    except OSError:  # another system than Linux
        return []
