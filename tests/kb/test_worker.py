import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kbqa.kb.worker import QueryWorker
from kbqa.sparql.errors import GraphError, QueryTimeout, StoreError

# The cross product of three free triples, of which no row passes: seconds of work.
SLOW = """ASK { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l
FILTER (CONCAT(STR(?a), STR(?d), STR(?g), STR(?j)) = "none") }"""
QUICK = "ASK { ?s ?p ?o }"


@pytest.fixture
def worker(small_store: Path) -> Iterator[QueryWorker]:
    made = QueryWorker(small_store / "graph", "store small")
    yield made
    made.close()


def _children(parent: int) -> list[int]:
    """The query processes of a parent that run, without those that have ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, its_parent = stat.read_text().rpartition(")")[2].split()[:2]
            command = (stat.parent / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_parent) == parent and state != "Z" and b"kbqa.kb.worker" in command:
            found.append(int(stat.parent.name))
    return found


def _has_opened_a_store(process: int) -> bool:
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has just been closed
            if file.readlink().suffix == ".sst":
                return True
    return False


def _until(is_true: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_process_starts_at_the_first_query_and_is_kept(worker: QueryWorker) -> None:
    assert not _children(os.getpid())
    worker.ask(QUICK, 30)
    first = _children(os.getpid())
    assert len(first) == 1
    worker.ask(QUICK, 30)
    assert _children(os.getpid()) == first
    worker.close()
    assert not _children(os.getpid())


def test_timeout_kills_the_process(worker: QueryWorker) -> None:
    worker.ask(QUICK, 30)
    started = time.monotonic()
    with pytest.raises(QueryTimeout, match="store small"):
        worker.ask(SLOW, 0.2)
    assert time.monotonic() - started < 2
    assert not _children(os.getpid())
    assert worker.ask(QUICK, 30)


def test_a_process_that_was_killed_is_replaced(worker: QueryWorker) -> None:
    worker.ask(QUICK, 30)
    (child,) = _children(os.getpid())
    os.kill(child, signal.SIGKILL)
    assert worker.ask(QUICK, 30)
    assert _children(os.getpid()) not in ([], [child])


def test_a_query_whose_process_dies_twice_fails(worker: QueryWorker) -> None:
    worker.ask(QUICK, 30)

    def kill_two() -> None:
        killed: set[int] = set()
        while len(killed) < 2:
            for child in filter(_has_opened_a_store, set(_children(os.getpid())) - killed):
                time.sleep(0.2)  # the query is running now
                os.kill(child, signal.SIGKILL)
                killed.add(child)

    killer = threading.Thread(target=kill_two)
    killer.start()
    with pytest.raises(GraphError, match="died 2 times"):
        worker.ask(SLOW, 30)
    killer.join()
    assert worker.ask(QUICK, 30)


def test_a_forgotten_worker_leaves_no_process(small_store: Path) -> None:
    QueryWorker(small_store / "graph", "store small").ask(QUICK, 30)
    _until(lambda: not _children(os.getpid()))


def test_process_ends_with_its_parent_in_the_middle_of_a_query(small_store: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kbqa.kb.worker import QueryWorker\n"
        f"QueryWorker(Path(sys.argv[1]), 'store').ask('''{SLOW}''', 60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(small_store / "graph")])
    _until(lambda: bool(_children(parent.pid)))
    (child,) = _children(parent.pid)
    time.sleep(0.5)  # the query is running now
    parent.kill()
    parent.wait()
    _until(lambda: not Path(f"/proc/{child}/cmdline").exists() or not _command(child))


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_threads_take_turns(worker: QueryWorker) -> None:
    answers: list[tuple[int, int]] = []

    def ask(number: int) -> None:
        for _ in range(20):
            table = worker.select(f"SELECT ({number} AS ?n) {{}}", 30, None)
            value = table.rows[0][0]
            assert value is not None
            answers.append((number, int(value.text if not isinstance(value, str) else -1)))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 80
    assert all(asked == got for asked, got in answers)


def test_store_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="query process"):
        QueryWorker(tmp_path / "none", "store none").ask(QUICK, 30)


def test_a_failing_query_is_told_and_the_process_stays(worker: QueryWorker) -> None:
    with pytest.raises(GraphError, match="not supported"):
        worker.select("SELECT (<http://x/f>(1) AS ?x) {}", 30, None)
    (child,) = _children(os.getpid())
    assert worker.ask(QUICK, 30)
    assert _children(os.getpid()) == [child]
