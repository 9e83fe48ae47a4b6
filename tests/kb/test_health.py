import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbqa.kb.health import FINAL_DUMP_BYTES, FINAL_DUMP_SHA256, Finding, check_store
from kbqa.kb.layout import LineCounts, StoreLayout
from kbqa.kb.loading.checkpoint import Checkpoint, Plan
from kbqa.kb.loading.load import load_freebase
from kbqa.sparql.terms import FREEBASE_NS


@pytest.fixture
def store(small_store: Path, tmp_path: Path) -> StoreLayout:
    """A store to damage."""
    return StoreLayout(Path(shutil.copytree(small_store, tmp_path / "store")))


def _findings(layout: StoreLayout) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_store(layout.directory, timeout_s=20)}


def _wrong(layout: StoreLayout) -> Finding:
    """The one finding that is not ok."""
    [wrong] = [finding for finding in check_store(layout.directory) if finding.status != "ok"]
    return wrong


def test_nothing_is_wrong_with_a_finished_store(small_store: Path) -> None:
    findings = _findings(StoreLayout(small_store))
    assert {finding.status for finding in findings.values()} == {"ok"}
    assert {"store", "files", "dump", "vocabulary", "queries", "names"} <= findings.keys()
    assert "13 entities" in findings["store"].finding
    assert "not from the final dump" in findings["dump"].finding


def _largest_file(layout: StoreLayout) -> Path:
    return max(layout.graph.glob("*.sst"), key=lambda path: path.stat().st_size)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _overwrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20:200] = b"\xff" * 180
    path.write_bytes(data)


def _set(layout: StoreLayout, **fields: object) -> None:
    manifest = json.loads(layout.manifest.read_text(encoding="utf-8"))
    layout.manifest.write_text(json.dumps(manifest | fields), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "check", "finding"),
    [
        (lambda store: shutil.rmtree(store.directory), "store", "does not exist"),
        (lambda store: store.manifest.unlink(), "store", "holds no finished store"),
        (lambda store: store.manifest.write_text("{"), "store", "cannot be read"),
        (lambda store: _set(store, schema_version=99), "store", "version 99"),
        (lambda store: shutil.rmtree(store.graph), "store", "cannot be opened"),
        (lambda store: _largest_file(store).unlink(), "store", "No such file"),
        (lambda store: _cut(_largest_file(store)), "store", "size mismatch"),
        (lambda store: _overwrite(_largest_file(store)), "store", "checksum mismatch"),
        (lambda store: _cut(store.names), "names", "is cut short"),
        (lambda store: store.names.write_bytes(b"x" * 50_000), "names", "cut short|no name index"),
        (lambda store: store.names.unlink(), "names", "cannot be read"),
        (lambda store: store.schema.write_text("{}"), "schema", "holds no schema"),
    ],
    ids=[
        "no folder",
        "no manifest",
        "damaged manifest",
        "other version",
        "no graph",
        "a file of the graph is missing",
        "a file of the graph is cut short",
        "a file of the graph is damaged",
        "name index cut short",
        "name index damaged",
        "no name index",
        "damaged schema",
    ],
)
def test_damage_is_a_problem_with_advice(
    store: StoreLayout, damage: Callable[[StoreLayout], object], check: str, finding: str
) -> None:
    damage(store)
    wrong = _findings(store)[check]
    assert wrong.status == "problem"
    assert re.search(finding, wrong.finding)
    assert "oad" in wrong.advice, "it says to load the store"


def test_an_empty_folder_and_a_file_are_no_store(tmp_path: Path) -> None:
    assert "is empty" in _wrong(StoreLayout(tmp_path)).finding
    (tmp_path / "file").touch()
    assert "is a file" in _wrong(StoreLayout(tmp_path / "file")).finding


def test_missing_files_show_by_the_size(store: StoreLayout) -> None:
    (store.directory / "manifest.json").write_text(
        store.manifest.read_text(encoding="utf-8").replace('"size_bytes": ', '"size_bytes": 9'),
        encoding="utf-8",
    )
    assert _findings(store)["files"].status == "problem"


def _load(tmp_path: Path, *triples: str, name: str = "dump.nt") -> StoreLayout:
    (tmp_path / name).write_text("".join(f"{triple} .\n" for triple in triples), encoding="utf-8")
    load_freebase([tmp_path / name], tmp_path / "loaded")
    return StoreLayout(tmp_path / "loaded")


def test_a_dump_of_something_else_is_a_problem(tmp_path: Path) -> None:
    layout = _load(
        tmp_path,
        # A load looks at the first 1,000 lines.
        *(f'<{FREEBASE_NS}m.0a>\t<{FREEBASE_NS}a.b.c>\t"{at}"\t' for at in range(1000)),
        *(f'<http://example.org/{at}>\t<http://example.org/p>\t"x"\t' for at in range(9000)),
    )
    findings = _findings(layout)
    assert findings["vocabulary"].status == "problem"
    assert "http://example.org/" in findings["vocabulary"].finding


def test_a_store_without_names_is_a_problem(tmp_path: Path) -> None:
    layout = _load(tmp_path, f"<{FREEBASE_NS}m.0a>\t<{FREEBASE_NS}a.b.c>\t<{FREEBASE_NS}m.0b>\t")
    findings = _findings(layout)
    assert findings["names"].status == "problem"
    assert "no names" in findings["names"].finding
    assert findings["schema"].status == "warning"


def test_an_index_of_another_load_is_a_problem(store: StoreLayout, tmp_path: Path) -> None:
    other = _load(
        tmp_path, f'<{FREEBASE_NS}m.0a>\t<{FREEBASE_NS}type.object.name>\t"Somebody"@en\t'
    )
    shutil.copyfile(other.names, store.names)
    assert "are not in the index" in _findings(store)["names"].finding


@pytest.mark.parametrize(
    ("name", "size_bytes", "sha256", "status", "finding"),
    [
        ("a.gz", FINAL_DUMP_BYTES, FINAL_DUMP_SHA256, "ok", "the final dump of 2015"),
        ("a.gz", FINAL_DUMP_BYTES, "0" * 64, "problem", "not its SHA-256"),
        ("freebase-rdf-latest.gz", 22_000_000_000, "0" * 64, "warning", "22,000,000,000 bytes"),
        ("slice.nt.gz", 22_000, "0" * 64, "ok", "not from the final dump"),
    ],
    ids=["final", "damaged", "another official one", "a slice"],
)
def test_the_dump_is_compared_with_the_final_one(
    store: StoreLayout, name: str, size_bytes: int, sha256: str, status: str, finding: str
) -> None:
    dump = {"name": f"/data/{name}", "size_bytes": size_bytes, "sha256": sha256}
    _set(store, dumps=[dump])
    found = _findings(store)["dump"]
    assert found.status == status
    assert finding in found.finding


def test_many_rejected_lines_are_a_warning(tmp_path: Path) -> None:
    layout = _load(
        tmp_path,
        f'<{FREEBASE_NS}m.0a>\t<{FREEBASE_NS}type.object.name>\t"Somebody"@en\t',
        "no triple",
    )
    found = _findings(layout)["lines"]
    assert (found.status, found.finding) == ("warning", "2 lines were read, 1 rejected")
    assert str(layout.rejects) in found.advice


_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


class _Holder:
    """Another process that holds a lock while the context lasts."""

    def __init__(self, path: Path, lock: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, path, lock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"held\n"

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def test_an_unfinished_load_is_told_with_how_to_go_on(store: StoreLayout) -> None:
    store.manifest.unlink()
    work = StoreLayout(store.building)
    work.directory.mkdir()
    counts = LineCounts(900, 800, {}, {}, {})
    plan = Plan("store", (("/data/one.gz", "1"), ("/data/the other.gz", "2")), "", ())
    Checkpoint(plan, 500, counts=counts, triples_loaded=500).save(work.checkpoint)
    wrong = _wrong(store)
    assert (wrong.check, wrong.status) == ("load", "problem")
    assert "900 lines are read, 0 of 2 dumps to the end" in wrong.finding
    assert "500 triples are in the store" in wrong.finding
    command = f"kbqa load-freebase /data/one.gz '/data/the other.gz' --store {store.directory}"
    assert command in wrong.advice


def test_a_load_that_is_killed_early_has_nothing_complete(store: StoreLayout) -> None:
    store.manifest.unlink()
    store.building.mkdir()
    assert "nothing is complete yet" in _wrong(store).finding
    StoreLayout(store.building).checkpoint.write_text("{")
    assert "cannot be read" in _wrong(store).finding


def test_a_load_under_way_is_told_apart(store: StoreLayout) -> None:
    store.building.mkdir()
    (store.building / "lock").touch()
    assert _wrong(store).status == "warning"
    with _Holder(store.building / "lock", "flock"):
        assert "is being replaced" in _wrong(store).finding
        store.manifest.unlink()
        assert _wrong(store).status == "problem"
        assert "is being loaded" in _wrong(store).finding


def test_a_store_that_is_open_for_writing_is_told(store: StoreLayout) -> None:
    (store.graph / "LOCK").touch()
    with _Holder(store.graph / "LOCK", "lockf"):
        assert _wrong(store).check == "lock"


def test_what_needs_statistics_says_so(store: StoreLayout) -> None:
    store.statistics.write_bytes(b"no statistics")
    assert "statistics" in _wrong(store).finding
