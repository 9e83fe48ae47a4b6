import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbqa.kb.worker import QueryWorkers, memory_limit_bytes
from kbqa.sparql.errors import (
    GraphError,
    InputError,
    QuerySyntaxError,
    QueryTimeout,
    QueryTooLarge,
    StoreError,
)
from kbqa.sparql.terms import LiteralTerm

# The cross product of three free triples, of which no row passes: seconds of work.
SLOW = """ASK { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l
FILTER (CONCAT(STR(?a), STR(?d), STR(?g), STR(?j)) = "none") }"""
QUICK = "ASK { ?s ?p ?o }"


_OF_OTHERS: set[int] = set()
"""Processes of stores that other tests share."""


@pytest.fixture
def worker(small_store: Path) -> Iterator[QueryWorkers]:
    _OF_OTHERS.update(_children(os.getpid()))
    made = QueryWorkers(small_store / "graph", "store small")
    yield made
    made.close()


def _children(parent: int) -> list[int]:
    """Return the query processes of a parent that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, its_parent = stat.read_text().rpartition(")")[2].split()[:2]
            command = (stat.parent / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_parent) == parent and state != "Z" and b"kb/worker_process.py" in command:
            found.append(int(stat.parent.name))
    return [child for child in found if child not in _OF_OTHERS]


def _until(is_true: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_process_starts_at_the_first_query_and_is_kept(worker: QueryWorkers) -> None:
    assert not _children(os.getpid())
    worker.ask(QUICK, 30)
    first = _children(os.getpid())
    assert len(first) == 1
    worker.ask(QUICK, 30)
    assert _children(os.getpid()) == first
    worker.close()
    assert not _children(os.getpid())


def test_timeout_kills_the_process(worker: QueryWorkers) -> None:
    worker.ask(QUICK, 30)
    started = time.monotonic()
    with pytest.raises(QueryTimeout, match="store small"):
        worker.ask(SLOW, 0.2)
    assert time.monotonic() - started < 2
    assert not _children(os.getpid())
    assert worker.ask(QUICK, 30)


def test_a_process_that_was_killed_is_replaced(worker: QueryWorkers) -> None:
    worker.ask(QUICK, 30)
    (child,) = _children(os.getpid())
    os.kill(child, signal.SIGKILL)
    _until(lambda: not _children(os.getpid()))
    assert worker.ask(QUICK, 30)
    assert _children(os.getpid()) not in ([], [child])


def _kill_processes(count: int) -> None:
    """Kill the process of a running query, and that of the next tries of it."""
    killed: set[int] = set()
    while len(killed) < count:
        time.sleep(0.5)
        for child in set(_children(os.getpid())) - killed:
            os.kill(child, signal.SIGKILL)
            killed.add(child)


@pytest.mark.parametrize(
    ("kills", "error", "message"),
    [(1, QueryTimeout, "within 4 s"), (2, GraphError, r"died \(SIGKILL\)")],
    ids=["run again", "given up"],
)
def test_a_query_whose_process_something_kills_is_run_once_more(
    worker: QueryWorkers, kills: int, error: type[GraphError], message: str
) -> None:
    worker.ask(QUICK, 30)
    killer = threading.Thread(target=_kill_processes, args=(kills,))
    killer.start()
    with pytest.raises(error, match=message):
        worker.ask(SLOW, 4)
    killer.join()
    assert worker.ask(QUICK, 30)


DOUBLED = " ".join(f"BIND (CONCAT(?x{n}, ?x{n}) AS ?x{n + 1})" for n in range(32))
GREEDY = f'SELECT (STRLEN(?x32) AS ?n) {{ BIND ("aaaaaaaaaaaaaaaa" AS ?x0) {DOUBLED} }}'


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(GREEDY, id="one long text"),
        pytest.param("SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }", id="many rows"),
    ],
)
def test_a_query_that_takes_too_much_memory_is_stopped_and_not_run_again(
    worker: QueryWorkers,
    query: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # As little as a quick query allows: the rows are small, and 0.2 GB of them take 7 s.
    monkeypatch.setenv("KBQA_QUERY_MEMORY_GB", "0.01")
    # With it, Rust may wait forever if nothing else ends the process.
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    worker.ask(QUICK, 30)
    (child,) = _children(os.getpid())
    with pytest.raises(QueryTooLarge, match=r"more than 0\.01 GB of memory.*KBQA_QUERY_MEMORY_GB"):
        worker.select(query, 60, None)
    assert not _children(os.getpid())
    assert worker.ask(QUICK, 30)
    assert _children(os.getpid()) != [child]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("size", ["0", "-1", "nan", "much"])
def test_a_memory_limit_that_is_not_a_number_is_refused(
    worker: QueryWorkers, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBQA_QUERY_MEMORY_GB", size)
    with pytest.raises(InputError, match=r"KBQA_QUERY_MEMORY_GB is .*: set it to a number"):
        worker.ask(QUICK, 30)


def test_several_processes_share_half_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    assert 0 < 64 * memory_limit_bytes(64) <= half
    monkeypatch.setenv("KBQA_QUERY_MEMORY_GB", "0.5")
    assert memory_limit_bytes(64) == memory_limit_bytes() == 2**29


def test_the_two_pools_of_a_server_leave_some_of_the_memory() -> None:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 64 * (memory_limit_bytes(64) + memory_limit_bytes(64, beside_another=True)) < 0.8 * whole


@pytest.fixture
def of_others(small_store: Path) -> Iterator[QueryWorkers]:
    made = QueryWorkers(small_store / "graph", "store small", low_priority=True)
    yield made
    made.close()


def _megabytes(columns: int = 1) -> str:
    """Return a query of which each row has columns of 4 MB."""
    steps = " ".join(f"BIND (CONCAT(?x{n}, ?x{n}) AS ?x{n + 1})" for n in range(18))
    texts = " ".join(f'(CONCAT(?x18, "{n}") AS ?y{n})' for n in range(columns))
    return f'SELECT {texts} {{ BIND ("aaaaaaaaaaaaaaaa" AS ?x0) {steps} ?s ?p ?o }}'


def test_rows_of_megabytes_are_cut_where_they_arise(of_others: QueryWorkers) -> None:
    found = of_others.select(_megabytes(), 30, 200)
    assert (len(found.rows), found.truncated) == (3, True)
    with pytest.raises(QueryTooLarge, match="whose result is more than 16 MB"):
        of_others.select(_megabytes(), 30, None)  # nobody is to take some rows for all
    with pytest.raises(QueryTooLarge, match="whose result is more than 16 MB"):
        of_others.select(_megabytes(columns=4), 30, 200)  # not even one row
    assert of_others.ask(QUICK, 30)


def test_rows_of_many_unbound_variables_are_large_too(of_others: QueryWorkers) -> None:
    names = " ".join(f"?v{n}" for n in range(2000))
    found = of_others.select(f"SELECT {names} {{ ?s ?p ?o . ?t ?q ?w }}", 30, 10_000)
    assert (len(found.rows), found.truncated) == (250, True)


def test_one_s_own_results_have_no_limit_of_bytes(worker: QueryWorkers) -> None:
    found = worker.select(_megabytes(), 30, 8)
    assert (len(found.rows), found.truncated) == (8, True)


AT_EXIT = f"""
import sys, threading, time
from pathlib import Path
from kbqa.kb.worker import QueryWorkers

worker = QueryWorkers(Path(sys.argv[1]), "store small")
worker.ask("{QUICK}", 30)
threading.Thread(target=worker.ask, args=('''{SLOW}''', 60), daemon=True).start()
time.sleep(0.5)
"""


def test_a_thread_that_still_asks_at_the_exit_is_not_told_of_memory(small_store: Path) -> None:
    command = [sys.executable, "-c", AT_EXIT, str(small_store / "graph")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0
    assert "memory" not in ran.stderr


def test_a_deeply_nested_query_is_not_reported_as_missing_memory(worker: QueryWorkers) -> None:
    query = f"SELECT * {'{' * 3000} ?x ?y ?z {'}' * 3000}"
    with pytest.raises(QuerySyntaxError, match="nested too deeply"):
        worker.select(query, 30, None)
    assert worker.ask(QUICK, 30)


def test_the_time_limit_counts_the_wait_for_other_queries(worker: QueryWorkers) -> None:
    worker.ask(QUICK, 30)

    def ask(_: int) -> float:
        started = time.monotonic()
        with pytest.raises(QueryTimeout, match="within 1 s"):
            worker.ask(SLOW, 1)
        return time.monotonic() - started

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(ask, range(4))) < 3, "one after the other, they would take 4"


def test_the_time_limit_counts_the_start_of_the_process_which_is_kept(worker: QueryWorkers) -> None:
    with pytest.raises(QueryTimeout):
        worker.ask(QUICK, 0.001)
    (child,) = _children(os.getpid())
    assert worker.ask(QUICK, 30)
    assert _children(os.getpid()) == [child]


FORKED = """
import os, sys
from pathlib import Path
from kbqa.kb.worker import QueryWorkers

worker = QueryWorkers(Path(sys.argv[1]), "store small", int(sys.argv[2]))
worker.ask("ASK { ?s ?p ?o }", 30)
forked = os.fork()
first = 0 if forked else 1000
for number in range(first, first + 200):
    (row,) = worker.select(f"SELECT ?x {{ VALUES ?x {{ {number} }} }}", 30, None).rows
    assert row[0].text == str(number), (number, row)
if forked:
    assert os.waitpid(forked, 0)[1] == 0
    assert worker.ask("ASK { ?s ?p ?o }", 30)
print("done", flush=True)
"""


@pytest.mark.parametrize("size", ["1", "2"])
def test_workers_that_are_open_across_a_fork_do_not_mix_answers(
    small_store: Path, size: str
) -> None:
    command = [sys.executable, "-W", "error", "-c", FORKED, str(small_store / "graph"), size]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\ndone\n", "")


def test_a_forgotten_worker_leaves_no_process(small_store: Path) -> None:
    QueryWorkers(small_store / "graph", "store small").ask(QUICK, 30)
    _until(lambda: not _children(os.getpid()))


def test_process_ends_with_its_parent_in_the_middle_of_a_query(small_store: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kbqa.kb.worker import QueryWorkers\n"
        f"QueryWorkers(Path(sys.argv[1]), 'store').ask('''{SLOW}''', 60)"
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


def test_threads_take_turns(worker: QueryWorkers) -> None:
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


@pytest.fixture
def three(small_store: Path) -> Iterator[QueryWorkers]:
    made = QueryWorkers(small_store / "graph", "store small", 3)
    yield made
    made.close()


def test_several_workers_run_queries_at_once(three: QueryWorkers) -> None:
    def ask(_: int) -> None:
        with pytest.raises(QueryTimeout, match="within 3 s"):
            three.ask(SLOW, 3)

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, number) for number in range(3)]
        _until(lambda: len(_children(os.getpid())) == 3)
        # All are busy: the wait for one counts.
        with pytest.raises(QueryTimeout, match=r"within 0\.1 s"):
            three.ask(QUICK, 0.1)
        for each in asked:
            each.result()
    assert three.ask(QUICK, 30)


def test_only_as_many_processes_start_as_are_needed_and_all_end(three: QueryWorkers) -> None:
    for _ in range(4):
        assert three.ask(QUICK, 30)
    assert len(_children(os.getpid())) == 1
    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(lambda _: three.ask(QUICK, 30), range(60)))
    three.close()
    assert not _children(os.getpid())
    assert three.ask(QUICK, 30)


def test_processes_that_are_killed_cost_no_answer(three: QueryWorkers) -> None:
    def ask(number: int) -> int:
        [[value]] = three.select(f"SELECT ({number} AS ?n) {{}}", 30, None).rows
        assert isinstance(value, LiteralTerm)
        return int(value.text)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(ask, range(60))) == list(range(60))
        victims = _children(os.getpid())  # not those that replace them: a query is run twice only
        answers = pool.map(ask, range(150))
        for child in victims:
            time.sleep(0.1)
            os.kill(child, signal.SIGKILL)
        assert list(answers) == list(range(150))


def test_queries_that_can_wait_run_at_low_priority(small_store: Path) -> None:
    workers = QueryWorkers(small_store / "graph", "store small", low_priority=True)
    assert workers.ask(QUICK, 30)
    (child,) = _children(os.getpid())
    is_idle = os.sched_getscheduler(child) == os.SCHED_IDLE
    assert is_idle or os.getpriority(os.PRIO_PROCESS, child) == 19  # where that is not allowed
    workers.close()


def test_store_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="query process"):
        QueryWorkers(tmp_path / "none", "store none").ask(QUICK, 30)


def test_a_failing_query_is_reported_and_the_process_stays(worker: QueryWorkers) -> None:
    with pytest.raises(GraphError, match="not supported"):
        worker.select("SELECT (<http://x/f>(1) AS ?x) {}", 30, None)
    (child,) = _children(os.getpid())
    assert worker.ask(QUICK, 30)
    assert _children(os.getpid()) == [child]
