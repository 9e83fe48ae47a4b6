import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyoxigraph import Store

from kbqa.kb.loading.load import StoreWriter, drop_orphans
from kbqa.sparql.errors import DumpError


def shard_of(numbers: Sequence[int], path: Path) -> Path:
    path.write_text("".join(f"<http://a/{n}>\t<http://a/p>\t<http://a/o>\t.\n" for n in numbers))
    return path


def load(graph: Path, *shards: Path) -> dict[Path, dict[int, str]]:
    with StoreWriter(graph, 2) as writer:
        for shard in shards:
            writer.submit(shard)
        taken = [writer.take(wait=True) for _ in shards]
        assert writer.take(wait=True) is None
        writer.finish()
    return {one.path: one.refused for one in taken if one is not None}


def triples(graph: Path) -> list[str]:
    return sorted(str(quad) for quad in Store.read_only(str(graph)))


def writing_process(graph: Path) -> int:
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    (pid,) = (
        int(child)
        for child in children
        if str(graph).encode() in Path(f"/proc/{child}/cmdline").read_bytes()
    )
    return pid


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return shard_of(range(50), tmp_path / "shard-00000.nt")


def test_shards_are_loaded_once_however_often(shard: Path, tmp_path: Path) -> None:
    other = shard_of(range(40, 90), tmp_path / "shard-00001.nt")
    assert load(tmp_path / "graph", shard, other, shard) == {shard: {}, other: {}}
    assert len(triples(tmp_path / "graph")) == 90


def test_a_compacted_store_holds_the_same_in_as_few_files_as_if_loaded_at_once(
    tmp_path: Path,
) -> None:
    load(tmp_path / "once", shard_of(range(90), tmp_path / "shard-00000.nt"))
    graph = tmp_path / "graph"
    load(graph, *(shard_of(range(n, 90, 3), tmp_path / f"shard-0000{n}.nt") for n in range(3)))
    files = len(list(graph.glob("*.sst")))
    with StoreWriter(graph, 1) as writer:
        writer.compact()
        writer.finish()
    assert triples(graph) == triples(tmp_path / "once")
    assert len(list(graph.glob("*.sst"))) == len(list((tmp_path / "once").glob("*.sst"))) < files


def test_while_shards_are_loaded_files_are_merged_only_when_a_core_is_idle(
    shard: Path, tmp_path: Path
) -> None:
    with StoreWriter(tmp_path / "graph", 1) as writer:
        writer.submit(shard)
        writer.take(wait=True)
        pid = writing_process(tmp_path / "graph")
        policies = {
            os.sched_getscheduler(int(thread.name))
            for thread in Path(f"/proc/{pid}/task").iterdir()
            if (thread / "comm").read_text().startswith("rocksdb")
        }
        assert os.sched_getscheduler(pid) == os.SCHED_OTHER
        writer.finish()
    assert policies == {os.SCHED_IDLE}


def test_a_shard_that_is_in_the_store_takes_no_disk_again(shard: Path, tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    load(graph, shard)
    before = {path.name for path in graph.glob("*.sst")}
    assert before
    assert load(graph, shard) == {shard: {}}
    assert {path.name for path in graph.glob("*.sst")} == before


def test_refused_lines_are_left_out_and_told(shard: Path, tmp_path: Path) -> None:
    lines = shard.read_text().splitlines(keepends=True)
    lines[3:3] = ["no triple\n"]
    lines[20:20] = ["no triple\n"] * 2
    shard.write_text("".join(lines))
    refused = dict.fromkeys((4, 21, 22), "no triple")
    assert load(tmp_path / "graph", shard) == {shard: refused}
    assert len(triples(tmp_path / "graph")) == 50
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", shard.name]


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "graph", 1) as writer:
        writer.submit(tmp_path / "nowhere.nt")
        with pytest.raises(DumpError, match=r"cannot be written: .*No such file"):
            writer.take(wait=True)


def test_a_store_in_use_is_named(shard: Path, tmp_path: Path) -> None:
    holder = Store(str(tmp_path / "graph"))
    with StoreWriter(tmp_path / "graph", 1) as writer:
        writer.submit(shard)
        with pytest.raises(DumpError, match="in use"):
            writer.take(wait=True)
    del holder


def test_a_writer_that_was_killed_is_told_from_one_that_ended(shard: Path, tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "graph", 1) as writer:
        writer.submit(shard)
        writer.take(wait=True)
        pid = writing_process(tmp_path / "graph")
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        # The pipe is broken: neither a line to it nor closing it is an error of its own.
        writer.submit(shard)
        with pytest.raises(DumpError, match=r"died \(code -9\)"):
            writer.take(wait=True)


@pytest.fixture
def orphaned(shard: Path, tmp_path: Path) -> Path:
    """A store with files in it that belong to nothing, as kills leave them behind."""
    graph = tmp_path / "graph"
    load(graph, shard)
    whole = next(graph.glob("*.sst"))
    for name in ("900001.sst", "bulk-1.sst"):
        (graph / name).write_bytes(whole.read_bytes())
    return graph


@pytest.mark.parametrize("state", ["graph", "graph+clean", "old+clean", "graph+old"])
def test_orphans_are_dropped_wherever_that_was_stopped_before(state: str, orphaned: Path) -> None:
    before = triples(orphaned)
    clean, old = orphaned.with_suffix(".clean"), orphaned.with_suffix(".old")
    match state:
        case "graph+clean":  # Killed while the backup was made.
            clean.mkdir()
            (clean / "half").write_text("")
        case "old+clean":
            Store(str(orphaned)).backup(str(clean))
            orphaned.rename(old)
        case "graph+old":
            Store(str(orphaned)).backup(str(clean))
            orphaned.rename(old)
            clean.rename(orphaned)
    drop_orphans(orphaned)
    assert [path.name for path in orphaned.parent.iterdir() if path.is_dir()] == ["graph"]
    assert not {"900001.sst", "bulk-1.sst"} & {path.name for path in orphaned.iterdir()}
    assert triples(orphaned) == before


def test_where_there_is_no_store_there_are_no_orphans(tmp_path: Path) -> None:
    drop_orphans(tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []
