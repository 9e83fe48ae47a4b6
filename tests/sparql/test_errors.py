"""Errors pass from one process to another whole."""

import inspect
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from kbqa.sparql.errors import KbqaError, QueryTimeout

MADE_WITH: dict[str, object] = {
    "query": "SELECT ?x { ?x ?p ?o }",
    "timeout_s": 2.5,
    "max_rows": 10_000,
    "line": 3,
    "retry_after_s": 7.0,
}


def _kinds(kind: type[KbqaError] = KbqaError) -> Iterator[type[KbqaError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _make(kind: type[KbqaError]) -> KbqaError:
    if "__init__" not in vars(kind) and kind.__init__ is Exception.__init__:
        return kind("what happened")
    wanted = inspect.signature(kind).parameters.values()
    named = {
        p.name: MADE_WITH.get(p.name, f"a {p.name}") for p in wanted if p.kind != p.VAR_POSITIONAL
    }
    return kind(**named) if named else kind("what happened")


@pytest.mark.parametrize(
    "kind", sorted(set(_kinds()), key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__
)
def test_an_error_is_the_same_after_pickling(kind: type[KbqaError]) -> None:
    error = _make(kind)
    error.add_note("while loading")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args) == (kind, str(error), error.args)
    assert vars(again) == vars(error)


def _times_out(number: int) -> None:
    raise QueryTimeout(f"SELECT {number}", 5.0, "http://127.0.0.1:1/")


def test_a_query_that_times_out_in_a_process_ends_neither_it_nor_its_pool() -> None:
    context = get_context("spawn")
    with context.Pool(1) as pool, pytest.raises(QueryTimeout, match=r"within 5 s") as raised:
        pool.map_async(_times_out, [1]).get(timeout=60)
    assert (raised.value.query, raised.value.timeout_s) == ("SELECT 1", 5.0)
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        ended = [executor.submit(_times_out, number) for number in (1, 2)]
        assert [type(each.exception(timeout=60)) for each in ended] == [QueryTimeout] * 2
