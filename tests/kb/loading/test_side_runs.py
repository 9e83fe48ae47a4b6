from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyoxigraph
import pytest

from kbqa.kb.graph import Direction
from kbqa.kb.layout import StoreLayout
from kbqa.kb.loading import shards
from kbqa.kb.loading.job import LoadSettings
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.loading.shards import merge_runs
from kbqa.kb.store import Hub, HubRow, Statistics, count_hub_relations
from kbqa.sparql.terms import FREEBASE_NS
from tools.store_content import store_content

DIRECTIONS: tuple[Direction, Direction] = ("out", "in")


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_many_ranges_make_the_indexes_of_one(
    rows: int, small_dump: Path, small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_RANGE_ROWS", rows)
    # In three files, so that nodes come in several shards.
    lines = small_dump.read_text(encoding="utf-8").splitlines(keepends=True)
    parts = [tmp_path / f"part{number}.nt" for number in range(3)]
    for part, start in zip(parts, (0, 15, 30), strict=True):
        part.write_text("".join(lines[start : start + 15]), encoding="utf-8")
    parts[-1].write_text("".join(lines[30:]), encoding="utf-8")
    load_freebase(parts, tmp_path / "store", rules=profile("full"))
    found, expected = store_content(tmp_path / "store"), store_content(small_store)
    assert found == expected


def test_no_rows_are_no_range(tmp_path: Path) -> None:
    assert list(merge_runs(StoreLayout(tmp_path).runs, 0, hub_degree=1000)) == []


@pytest.fixture
def hub_dump(tmp_path: Path) -> list[Path]:
    """Make ten files: `m.near` has many edges in one of them, `m.far` a few in each."""

    def line(subject: str, predicate: str, object_: str) -> str:
        return f"<{FREEBASE_NS}{subject}>\t<{FREEBASE_NS}{predicate}>\t{object_}\t.\n"

    near, far = f"<{FREEBASE_NS}m.near>", f"<{FREEBASE_NS}m.far>"
    parts = []
    for part in range(10):
        lines = [line(f"m.{part}x{n}", f"a.b.r{n % 2}", far) for n in range(4)]
        lines += [line("m.far", "a.b.text", f'"{part} {n}"') for n in range(4)]
        if part == 3:
            lines += [line(f"m.n{n}", f"a.b.r{n % 3}", near) for n in range(40)]
            lines += [line("m.near", f"a.b.r{n % 3}", f'"{n}"') for n in range(80)]
        path = tmp_path / f"part{part}.nt"
        path.write_text("".join(lines), encoding="utf-8")
        parts.append(path)
    return parts


def test_only_hubs_whose_edges_are_scattered_are_asked_of_the_store(
    hub_dump: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Hub] = []

    def spy(store: pyoxigraph.Store, hubs: list[Hub], threads: int) -> Iterator[HubRow]:
        asked.extend(hubs)
        return count_hub_relations(store, hubs, threads)

    monkeypatch.setattr(shards, "HUB_DEGREE", 40)
    monkeypatch.setattr(shards, "count_hub_relations", spy)
    settings = LoadSettings(shard_triples=1)
    summary = load_freebase(hub_dump, tmp_path / "store", settings=settings)
    assert summary.hubs == 4
    assert sorted(asked) == [Hub("m.far", "in", 40), Hub("m.far", "out", 40)]
    with closing(Statistics.open(StoreLayout(tmp_path / "store").statistics)) as statistics:
        listed = {
            (node, direction): statistics.hub_relations(node, direction, 10)
            for node in ("m.near", "m.far")
            for direction in DIRECTIONS
        }
    assert listed == {
        ("m.near", "in"): ["a.b.r0", "a.b.r1", "a.b.r2"],
        ("m.near", "out"): ["a.b.r0", "a.b.r1", "a.b.r2"],
        ("m.far", "in"): ["a.b.r0", "a.b.r1"],
        ("m.far", "out"): ["a.b.text"],
    }
