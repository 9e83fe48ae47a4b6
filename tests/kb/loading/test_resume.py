"""Loads that are stopped in different ways and resumed by the same command."""

import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from recorded_progress import RecordedProgress

from kbqa.kb.layout import StoreLayout, read_manifest
from kbqa.kb.loading import load as loading
from kbqa.kb.loading.checkpoint import Checkpoint, Plan, discard, locked
from kbqa.kb.loading.dump import DumpReader
from kbqa.kb.loading.job import LoadSettings, LoadStage
from kbqa.kb.loading.load import emit_shards, load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.sparql.errors import DumpError, InputError, StoreError
from kbqa.sparql.terms import FREEBASE_NS
from tools.store_content import store_content

ENTITIES = 300
BLOCK_BYTES = 5000
SETTINGS = LoadSettings(shard_triples=150, loaders=2)
TIMEOUT_S = 60.0

# The real command, with blocks so small that a small dump has many.
COMMAND = f"""
from kbqa.kb.loading.dump import DumpReader
DumpReader.blocks.__kwdefaults__["block_bytes"] = {BLOCK_BYTES}
from kbqa.engine.cli import main
main()
"""

Content = dict[str, tuple[int, str]]


def made_up_lines() -> Iterator[str]:
    def triple(subject: str, predicate: str, object_: str) -> str:
        object_ = object_ if object_.startswith('"') else f"<{FREEBASE_NS}{object_}>"
        return f"<{FREEBASE_NS}{subject}>\t<{FREEBASE_NS}{predicate}>\t{object_}\t.\n"

    yield triple("a.b.c", "type.property.schema", "a.b")
    yield triple("a.b.c", "type.property.expected_type", "a.b")
    for number in range(ENTITIES):
        mid = f"m.0{number}"
        yield triple(mid, "type.object.name", f'"Entity {number}"@en')
        yield triple(mid, "type.object.name", f'"Wesen {number}"@de')
        yield triple(mid, "common.topic.alias", f'"The {number % 17}th"@en')
        yield triple(mid, "type.object.type", "a.b")
        # A hub, and what is said twice.
        yield from [triple(mid, f"a.b.{kind}", "m.0hub") for kind in "cdd"]
        yield triple(mid, "a.b.c", f"m.0{number * 7 % ENTITIES}")
        if number % 9 == 0:
            yield f"<{FREEBASE_NS}{mid}>\t<{FREEBASE_NS}a.b.c>\t\t.\n"
            yield f'<{FREEBASE_NS}{mid}>\t<{FREEBASE_NS}a.b.e>\t"\\xe9 {number}"\t.\n'
            yield "\n"


LINES = "".join(made_up_lines()).encode()


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        defaults = DumpReader.blocks.__kwdefaults__
        assert defaults is not None
        patch.setitem(defaults, "block_bytes", BLOCK_BYTES)
        yield


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dump") / "dump.gz"
    path.write_bytes(gzip.compress(LINES))
    return path


@pytest.fixture(scope="module")
def expected(_small_blocks: None, dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Content:
    """What an uninterrupted load makes."""
    store = tmp_path_factory.mktemp("stores") / "alone"
    load_freebase([dump], store, settings=SETTINGS)
    return content(store)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def content(store: Path) -> Content:
    assert not StoreLayout(store).building.exists()
    # The dump may have another name; `test_rejected_lines…` has the first column.
    parts: Content = dict(store_content(store))
    rejects = StoreLayout(store).rejects.read_bytes().splitlines()
    rows = [row.split(b"\t", 1)[1].decode() for row in rejects]
    return parts | {"rejects": (len(rows), "\n".join(rows))}


def stop(
    dumps: Sequence[Path | str],
    store: Path,
    at: int,
    stage: LoadStage | None = None,
    *,
    overwrite: bool = False,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_freebase(
            dumps,
            store,
            overwrite=overwrite,
            settings=SETTINGS,
            progress=RecordedProgress(at, stage),
        )
    assert (StoreLayout(store).building / "checkpoint.json").exists()


def resume(dumps: Sequence[Path | str], store: Path, *, overwrite: bool = False) -> int:
    """Load to the end; return how many triples were loaded before."""
    progress = RecordedProgress()
    load_freebase(dumps, store, overwrite=overwrite, settings=SETTINGS, progress=progress)
    return progress.loaded_before


@pytest.mark.parametrize(
    ("stage", "at"),
    [
        pytest.param("reading", 1, id="reading-at-the-beginning"),
        pytest.param("reading", 1000, id="reading-in-the-middle"),
        pytest.param("loading", 0, id="loading-the-last"),
        pytest.param("compacting", 0, id="compacting"),
        pytest.param("indexing", 0, id="indexing"),
    ],
)
def test_an_interrupted_load_ends_with_the_same_store(
    dump: Path, store: Path, expected: Content, stage: LoadStage, at: int
) -> None:
    stop([dump], store, at, stage)
    with pytest.raises(StoreError, match="the load has not finished"):
        read_manifest(store)
    assert resume([dump], store) >= at
    assert content(store) == expected


@pytest.mark.parametrize("compacts", [True, False], ids=["again", "never"])
def test_what_a_stopped_compaction_left_is_dropped(
    dump: Path, store: Path, expected: Content, compacts: bool
) -> None:
    stop([dump], store, 0, "compacting")
    graph = StoreLayout(StoreLayout(store).building).graph
    (graph / "900001.sst").write_bytes(next(graph.glob("*.sst")).read_bytes())
    progress = RecordedProgress()
    settings = replace(SETTINGS, compacts=compacts)
    load_freebase([dump], store, settings=settings, progress=progress)
    assert ("compacting" in progress.stages) == compacts
    assert not (StoreLayout(store).graph / "900001.sst").exists()
    assert content(store) == expected


def test_a_store_is_compacted_once(dump: Path, store: Path, expected: Content) -> None:
    stop([dump], store, 0, "indexing")
    progress = RecordedProgress()
    load_freebase([dump], store, settings=SETTINGS, progress=progress)
    assert progress.stages == ["indexing"]
    assert content(store) == expected


def test_a_load_may_be_interrupted_again_and_again(
    dump: Path, store: Path, expected: Content
) -> None:
    loaded = [0]
    for at in (300, 700, 1200):
        stop([dump], store, at)
        state = json.loads((StoreLayout(store).building / "checkpoint.json").read_text())
        loaded.append(state["triples_loaded"])
    assert loaded == sorted(set(loaded))
    assert resume([dump], store) == loaded[-1]
    assert content(store) == expected


@pytest.mark.parametrize(
    "part", ["graph", "names.sqlite", "statistics.sqlite", "rejects.tsv", "manifest.json"]
)
@pytest.mark.parametrize("is_replacing", [False, True], ids=["new", "replacing"])
def test_a_load_stopped_while_its_parts_are_moved_ends_that(
    dump: Path,
    store: Path,
    expected: Content,
    part: str,
    is_replacing: bool,
    small_store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_replacing:
        if part not in ("graph", "manifest.json"):
            pytest.skip("as when there is nothing to replace")
        shutil.copytree(small_store, store)
    replace = Path.replace

    def fail(self: Path, target: Path) -> Path:
        if target == store / part:
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(KeyboardInterrupt):
            load_freebase([dump], store, settings=SETTINGS, overwrite=is_replacing)
    assert not StoreLayout(store).is_finished
    progress = RecordedProgress()
    load_freebase([dump], store, settings=SETTINGS, overwrite=is_replacing, progress=progress)
    assert progress.steps == []  # Nothing is built a second time.
    assert content(store) == expected


@pytest.fixture(params=[False, True], ids=["with-state", "without"])
def untidied(
    dump: Path, store: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A store whose load was stopped when all was in place."""

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kbqa.kb.loading.load.discard", fail)
        with pytest.raises(KeyboardInterrupt):
            load_freebase([dump], store, settings=SETTINGS)
    assert StoreLayout(store).is_finished
    if request.param:
        StoreLayout(StoreLayout(store).building).checkpoint.unlink()
    return store


def test_a_load_stopped_when_all_is_in_place_only_clears_up(
    dump: Path, untidied: Path, expected: Content
) -> None:
    progress = RecordedProgress()
    load_freebase([dump], untidied, settings=SETTINGS, progress=progress)
    assert progress.steps == []
    assert content(untidied) == expected


def test_the_state_that_says_that_a_load_ended_is_deleted_last(
    dump: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop([dump], store, 500)
    work = StoreLayout(StoreLayout(store).building)
    unlink = Path.unlink

    def fail(self: Path, missing_ok: bool = False) -> None:
        if self == work.checkpoint:
            raise KeyboardInterrupt
        unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fail)
        with pytest.raises(KeyboardInterrupt):
            discard(work)
    assert set(work.directory.iterdir()) == {work.lock, work.checkpoint}
    discard(work)
    assert not work.directory.exists()


@pytest.mark.parametrize(
    ("copies", "rules"), [(2, "qa"), (1, "full")], ids=["other-dumps", "other-rules"]
)
def test_another_load_into_a_store_that_was_not_tidied_up_is_refused(
    dump: Path, untidied: Path, copies: int, rules: str
) -> None:
    before = read_manifest(untidied)
    with pytest.raises(InputError, match=r"finished store\. Use --overwrite to replace it"):
        load_freebase([dump] * copies, untidied, rules=profile(rules))
    assert read_manifest(untidied) == before
    load_freebase([dump], untidied, rules=profile(rules), overwrite=True, settings=SETTINGS)
    assert read_manifest(untidied).rules == profile(rules).to_toml()
    assert not StoreLayout(untidied).building.exists()


def run_until(command: Sequence[str], is_there: Callable[[], bool], *, whole_group: bool) -> None:
    """Run a command and kill it -9 when something is there."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + TIMEOUT_S
    while not is_there():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    if whole_group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def test_a_killed_command_resumes(dump: Path, store: Path, expected: Content) -> None:
    command = [sys.executable, "-c", COMMAND, "load-freebase", str(dump), "--no-progress"]
    command += ["--store", str(store), "--shard-triples", "150", "--loaders", "2"]
    work = StoreLayout(StoreLayout(store).building)

    def has_loaded(triples: int) -> Callable[[], bool]:
        def is_so() -> bool:
            return (
                work.checkpoint.exists()
                and json.loads(work.checkpoint.read_text())["triples_loaded"] >= triples
            )

        return is_so

    def has_loaded_all() -> bool:
        state = json.loads(work.checkpoint.read_text())
        return state["is_read"] and not state["unloaded"]

    run_until(command, work.lock.exists, whole_group=True)
    run_until(command, has_loaded(200), whole_group=True)
    run_until(command, has_loaded(1200), whole_group=False)
    run_until(command, has_loaded_all, whole_group=True)  # While it compacts the store.
    run_until(command, work.names.exists, whole_group=False)
    assert has_loaded(1500)()
    assert not StoreLayout(store).is_finished
    ended = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["kept"] == expected["triples"][0] + ENTITIES
    assert content(store) == expected


def test_a_load_resumes_only_with_the_same_plan(dump: Path, store: Path, tmp_path: Path) -> None:
    stop([dump], store, 500)
    other = tmp_path / "other.nt"
    other.write_bytes(LINES[: LINES.index(b"\n") + 1])
    with pytest.raises(InputError, match=r"unfinished load with other dumps\. .*--overwrite"):
        resume([other], store)
    with pytest.raises(InputError, match="with other rules"):
        load_freebase([dump], store, rules=profile("full"), settings=SETTINGS)
    with pytest.raises(InputError, match="with other dumps and rules"):
        load_freebase([dump, other], store, rules=profile("full"), settings=SETTINGS)
    assert resume([other], store, overwrite=True) == 0
    assert store_content(store)["triples"].total == 1
    assert StoreLayout(store).rejects.read_bytes().count(b"\n") == 1


def test_shards_are_not_resumed_as_a_store(dump: Path, store: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        emit_shards([dump], store, settings=SETTINGS, progress=RecordedProgress(500))
    with pytest.raises(InputError):
        resume([dump], store)


def test_two_loads_at_once_are_one_too_many(dump: Path, store: Path, expected: Content) -> None:
    stop([dump], store, 500)
    with locked(StoreLayout(StoreLayout(store).building)):
        with pytest.raises(InputError, match=r"another load is writing to .*store"):
            resume([dump], store)
        with pytest.raises(InputError, match="another load is writing"):
            resume([dump], store, overwrite=True)
    assert resume([dump], store) > 0
    assert content(store) == expected


def test_a_finished_store_stays_in_use_while_its_successor_is_stopped(
    dump: Path, store: Path, expected: Content, small_store: Path
) -> None:
    shutil.copytree(small_store, store)
    before = read_manifest(store)
    stop([dump], store, 500, overwrite=True)
    assert read_manifest(store) == before
    with pytest.raises(InputError, match="finished store"):
        resume([dump], store)
    assert read_manifest(store) == before
    assert resume([dump], store, overwrite=True) >= 500
    assert content(store) == expected


def test_a_load_of_a_changed_dump_is_not_resumed(store: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump.nt"
    dump.write_bytes(LINES)
    stop([dump], store, 500)
    changed_at = dump.stat().st_mtime
    dump.write_bytes(LINES.swapcase())
    os.utime(dump, (changed_at, changed_at + 1))
    with pytest.raises(
        InputError,
        match=rf"other dumps \({dump}: ([\d,]+ bytes) of .* UTC, now \1 of .* UTC\)\. Finish it",
    ):
        resume([dump], store)
    dump.write_bytes(LINES)
    os.utime(dump, (changed_at, changed_at))
    assert resume([dump], store) >= 500


def test_a_load_stopped_within_its_second_dump_resumes_there(
    dump: Path, store: Path, expected: Content, tmp_path: Path
) -> None:
    cuts = [LINES.rindex(b"\n", 0, len(LINES) * share // 10) + 1 for share in (4, 8)]
    parts = [tmp_path / f"part{number}.nt" for number in range(3)]
    for part, start, end in zip(parts, [0, *cuts], [*cuts, None], strict=True):
        part.write_bytes(LINES[start:end])
    stop(parts, store, 1100)
    state = json.loads((StoreLayout(store).building / "checkpoint.json").read_text())
    assert (state["position"][0], len(state["dumps"])) == (1, 1)
    resume(parts, store)
    found = content(store)
    assert found.keys() == expected.keys()
    assert {name for name in found if found[name] != expected[name]} == {"rejects"}
    assert [one.size_bytes for one in read_manifest(store).dumps] == [
        part.stat().st_size for part in parts
    ]
    load_freebase(parts, tmp_path / "alone", settings=SETTINGS)
    assert content(tmp_path / "alone") == found
    assert read_manifest(tmp_path / "alone").dumps == read_manifest(store).dumps


class Piped:
    """Standard input with a dump in it."""

    def __init__(self, lines: bytes) -> None:
        self.buffer = io.BytesIO(lines)


def test_standard_input_is_piped_in_again(
    store: Path, expected: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Piped(LINES))
    stop(["-"], store, 1000)
    monkeypatch.setattr(sys, "stdin", Piped(LINES[:1000]))
    with pytest.raises(DumpError, match="it changed since the load started"):
        resume(["-"], store)
    monkeypatch.setattr(sys, "stdin", Piped(LINES))
    assert resume(["-"], store) >= 1000
    assert content(store) == expected


class KillsTheWriter(RecordedProgress):
    """Kills the process that writes the store when 500 triples are loaded and a stage is on."""

    def __init__(self, stage: LoadStage) -> None:
        super().__init__()
        self._stage = stage

    def advance(self, stage: LoadStage, bytes_read: int, triples_loaded: int) -> None:
        super().advance(stage, bytes_read, triples_loaded)
        if triples_loaded >= 500 and stage == self._stage:
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
            for pid in map(int, children.split()):
                if b"store_writer_process.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("stage", ["reading", "compacting"])
def test_a_killed_writer_is_named_and_the_load_resumes(
    dump: Path, store: Path, expected: Content, stage: LoadStage
) -> None:
    with pytest.raises(DumpError, match=r"the process that writes .* died \(code -9\)"):
        load_freebase([dump], store, settings=SETTINGS, progress=KillsTheWriter(stage))
    assert resume([dump], store) >= 500
    assert content(store) == expected


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"plan": {}, "shard_triples": 1}'],
    ids=["empty", "cut", "list", "of-nothing", "incomplete"],
)
def test_a_state_that_cannot_be_read_is_named(dump: Path, store: Path, text: str) -> None:
    work = StoreLayout(StoreLayout(store).building)
    work.directory.mkdir(parents=True)
    work.checkpoint.write_text(text)
    with pytest.raises(DumpError, match=r"checkpoint\.json, cannot be read .*--overwrite"):
        resume([dump], store)


def test_a_state_that_cannot_be_read_is_overwritten(
    dump: Path, store: Path, expected: Content
) -> None:
    stop([dump], store, 500)
    (StoreLayout(store).building / "checkpoint.json").write_text("{")
    assert resume([dump], store, overwrite=True) == 0
    assert content(store) == expected


def test_a_load_waits_for_the_writer_that_a_kill_has_left(
    dump: Path, store: Path, expected: Content
) -> None:
    stop([dump], store, 500)
    graph = StoreLayout(StoreLayout(store).building).graph
    program = "import pyoxigraph, sys, time; s = pyoxigraph.Store(sys.argv[1]); print(flush=True)"
    command = [sys.executable, "-c", program + "; time.sleep(1)", str(graph)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        assert resume([dump], store) >= 500
    assert content(store) == expected


def test_a_writer_that_does_not_end_is_named(
    dump: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop([dump], store, 500)
    graph = StoreLayout(StoreLayout(store).building).graph
    program = (
        "import pyoxigraph, sys; s = pyoxigraph.Store(sys.argv[1]); print(flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(graph)]
    monkeypatch.setattr(loading, "_STOP_TIMEOUT_S", 0)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(DumpError, match=r"another process is writing to .*graph\. Wait until"):
            resume([dump], store)
        writer.kill()


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("runs/00001.noted.parquet", r"runs/00001\.noted\.parquet is missing"),
        ("runs", r"runs/00000\.nodes\.parquet is missing"),
        ("graph", "graph is missing"),
    ],
)
def test_a_load_whose_files_are_gone_is_started_again_only_when_asked(
    dump: Path, store: Path, expected: Content, lost: str, message: str
) -> None:
    stop([dump], store, 500)
    path = StoreLayout(store).building / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DumpError, match=rf"cannot be resumed: {message}\. Use --overwrite"):
        resume([dump], store)
    assert resume([dump], store, overwrite=True) == 0
    assert content(store) == expected


@pytest.mark.parametrize("kind", ["*.sst", "MANIFEST-*", "CURRENT"])
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_damaged_store_of_an_unfinished_load_is_started_again_only_when_asked(
    dump: Path, store: Path, expected: Content, kind: str, is_cut: bool
) -> None:
    stop([dump], store, 500)
    for path in StoreLayout(StoreLayout(store).building).graph.glob(kind):
        content_before = path.read_bytes()
        path.write_bytes(b"" if is_cut else bytes(len(content_before)))
    with pytest.raises(DumpError, match=r"cannot be resumed: graph is damaged .*--overwrite"):
        resume([dump], store)
    assert resume([dump], store, overwrite=True) == 0
    assert content(store) == expected


def test_damaged_runs_are_named(dump: Path, store: Path) -> None:
    stop([dump], store, 0, "indexing")
    for path in StoreLayout(StoreLayout(store).building).runs.glob("*.noted.parquet"):
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DumpError, match=r"the files in .*runs are damaged .* Delete .*building to"):
        resume([dump], store)


class Disk:
    """The room on a disk as it is told: all there is, until a number of questions were asked."""

    def __init__(self, answers: int, free_bytes: int) -> None:
        self._answers = answers
        self._free_bytes = free_bytes

    def __call__(self, path: Path) -> "Disk":
        self._answers -= 1
        return self

    @property
    def free(self) -> int:
        return 10**12 if self._answers >= 0 else self._free_bytes


def test_a_disk_too_small_is_refused_before(
    dump: Path, store: Path, expected: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", Disk(0, 100_000))
        with pytest.raises(
            InputError, match=r"about 2,\d{3} triples takes 0\.0 GB of disk.* 0\.0 GB free"
        ):
            resume([dump], store)
        assert not store.exists()
        patch.setattr(shutil, "disk_usage", Disk(0, 200_000))
        load_freebase([dump], store, settings=LoadSettings(shard_triples=150, checks_disk=False))
    assert content(store) == expected


def test_a_disk_nearly_full_stops_a_load_that_then_resumes(
    dump: Path, store: Path, expected: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", Disk(8, 1000))
        with pytest.raises(DumpError, match=r"nearly full \(0\.0 GB left\).*the same command"):
            resume([dump], store)
    assert resume([dump], store) > 0
    assert content(store) == expected


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own that holds but little."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "kbqa-test", directory],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"may not mount a small disk: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "-l", directory], check=True)


def test_a_full_disk_is_named_and_with_more_room_the_load_resumes(
    dump: Path, small_disk: Path, expected: Content
) -> None:
    store = small_disk / "store"
    command = [sys.executable, "-c", COMMAND, "load-freebase", str(dump), "--no-progress"]
    command += ["--store", str(store), "--shard-triples", "150", "--no-disk-check"]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert "the same command again" in failed.stderr
    assert not StoreLayout(store).is_finished
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    subprocess.run(command, capture_output=True, check=True)
    assert content(store) == expected


def test_ctrl_c_while_the_state_is_saved_stays_ctrl_c(tmp_path: Path) -> None:
    class Interrupted(Counter[str]):
        def items(self) -> NoReturn:
            raise KeyboardInterrupt

    state = Checkpoint(Plan("store", (), "", ()), 1000, relations=Interrupted(a=1))
    with pytest.raises(KeyboardInterrupt):
        state.save(tmp_path / "checkpoint.json")
    assert not list(tmp_path.iterdir())
