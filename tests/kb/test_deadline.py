import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

import pytest

from kbqa.kb.deadline import Deadline, bound, check_deadline, held, keep_to
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.errors import DeadlineExceeded

LAND = "m.d9p_g24s"


def test_without_a_deadline_everything_has_its_own_limit() -> None:
    with keep_to(None):
        assert check_deadline() is None
        assert bound(30.0) == 30.0


def test_a_deadline_bounds_what_is_done_until_it_passes() -> None:
    with keep_to(Deadline.after(5.0)):
        assert 4.9 < bound(30.0) <= 5.0
        assert bound(1.0) == 1.0
    with keep_to(Deadline.after(0.0)), pytest.raises(DeadlineExceeded, match=r"within 0 s\. Raise"):
        bound(1.0)
    assert check_deadline() is None


def test_the_earlier_of_two_deadlines_holds() -> None:
    for outer, inner in ((5.0, 60.0), (60.0, 5.0)):
        with keep_to(Deadline.after(outer)), keep_to(Deadline.after(inner)):
            assert bound(100.0) <= 5.0


def test_a_thread_has_the_deadline_of_the_context_that_it_runs_in() -> None:
    with ThreadPoolExecutor(1) as pool, keep_to(Deadline.after(5.0)):
        assert pool.submit(bound, 30.0).result() == 30.0
        assert pool.submit(copy_context().run, bound, 30.0).result() <= 5.0


def test_a_lock_is_held_under_a_deadline_without_end() -> None:
    lock = threading.Lock()
    with keep_to(Deadline.after(math.inf)), held(lock, "the lock"):
        assert lock.locked()
    assert not lock.locked()


@pytest.mark.parametrize("lock", [threading.Lock(), threading.BoundedSemaphore(1)])
def test_a_lock_that_another_holds_is_waited_for_until_the_deadline(
    lock: "threading.Lock | threading.Semaphore",
) -> None:
    began = time.monotonic()
    with (
        held(lock, "the model"),
        keep_to(Deadline.after(0.1)),
        pytest.raises(DeadlineExceeded, match="the model was busy"),
        held(lock, "the model"),
    ):
        raise AssertionError
    assert time.monotonic() - began >= 0.1


def test_no_search_of_a_store_begins_after_the_deadline(demo_store: Path) -> None:
    with OxigraphStore.open(demo_store) as graph:
        assert graph.labels([LAND])
        with keep_to(Deadline.after(0.0)):
            for search in (
                lambda: graph.labels([LAND]),
                lambda: graph.relations(LAND, "out"),
                lambda: graph.neighbours(LAND, "type.object.type", "out"),
                lambda: graph.edges([LAND], "in"),
                lambda: graph.select("SELECT * { ?s ?p ?o } LIMIT 1"),
                lambda: graph.ask("ASK { ?s ?p ?o }"),
            ):
                with pytest.raises(DeadlineExceeded):
                    search()
