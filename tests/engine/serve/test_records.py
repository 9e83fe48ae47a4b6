import pytest

pytest.importorskip("mcp", reason="needs the mcp extra")

from kbqa.engine.serve.records import (
    MAX_RESULT_BYTES,
    AskResult,
    LinkedEntities,
    LinkedRecord,
    Rows,
    fitted,
    rows_result,
    shortened,
)
from kbqa.kb.graph import Table
from kbqa.sparql.terms import LiteralTerm


def _size(result: AskResult | Rows | LinkedEntities) -> int:
    return len(result.model_dump_json().encode())


def test_the_longest_list_is_shortened_until_the_result_fits() -> None:
    long = AskResult(
        status="answered",
        path_words=["From Kenya, follow it."],
        evidence=[f"Kenya location.location.contains Place {n}" for n in range(500)],
    )
    short = fitted(long)
    assert _size(short) <= MAX_RESULT_BYTES
    assert short.truncated
    assert short.path_words == long.path_words
    assert short.evidence == long.evidence[: len(short.evidence)]
    assert len(short.evidence) > 100


def test_a_result_that_fits_stays_as_it_is() -> None:
    result = AskResult(status="none", reason="unlinked")
    assert fitted(result) is result


def test_long_texts_are_cut() -> None:
    table = Table(("x",), ((LiteralTerm("é" * 10_000),), (None,)))
    rows = rows_result(table)
    assert rows.rows == [[f"{'é' * 300}…"], [None]]
    name = LinkedRecord(mid="m.1", name="n" * 10_000, mention="n", score=1.0)
    linked = shortened(LinkedEntities(entities=[name] * 200))
    assert len(linked.entities[0].name) == 301
    assert _size(fitted(linked)) <= MAX_RESULT_BYTES
