import pytest

from kbqa.engine.writing.models.precision import fastest_precision
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
