"""The number format that language models compute in.

bf16 halves the memory and, on processors with instructions for it, the time. Its results differ
from float32's in about the third digit, so log-probabilities, and sometimes texts, depend on the
processor. With ``KBQA_PRECISION=float32``, processors agree to about six digits.
"""

import os
from pathlib import Path
from typing import Literal

from kbqa.sparql.errors import InputError

Precision = Literal["bfloat16", "float32"]

_VARIABLE = "KBQA_PRECISION"
_CPU_INFO = Path("/proc/cpuinfo")


def fastest_precision(device: str) -> Precision:
    """Return ``KBQA_PRECISION`` if it is set, else the format that a device computes faster in.

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
        case other:
            raise InputError(f"{_VARIABLE} is {other!r}: set it to bfloat16 or float32")


def _has_fast_bf16(device: str) -> bool:
    if device == "cuda":
        import torch

        return bool(torch.cuda.is_bf16_supported())
    # Without these instructions a CPU computes bf16 many times slower than float32.
    try:
        return "avx512_bf16" in _CPU_INFO.read_text(encoding="utf-8").split()
    except OSError:  # another system than Linux
        return False
