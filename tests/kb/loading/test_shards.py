"""Shards of a dump, and what becomes of them."""

import gzip
import json
from pathlib import Path

import pytest
from recorded_progress import RecordedProgress

from kbqa.kb.loading.dump import DumpReader
from kbqa.kb.loading.job import LoadSettings
from kbqa.kb.loading.load import MANIFEST, emit_shards, load_freebase
from kbqa.kb.loading.rules import FilterRules, profile
from kbqa.sparql.errors import DumpError, InputError
from tools.store_content import store_content

SETTINGS = LoadSettings(shard_triples=8, loaders=2)
ENGLISH = FilterRules("mine", languages=("en",))
PARTS = ("triples", "names.key", "schema")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = DumpReader.blocks.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "block_bytes", 500)


def parts_of(directory: Path) -> list[Path]:
    told = json.loads((directory / MANIFEST).read_text())["parts"]
    assert told == sorted(path.name for path in directory.glob("part-*"))
    return [directory / name for name in told]


def test_the_shards_loaded_are_the_dump_loaded(small_dump: Path, tmp_path: Path) -> None:
    counts = emit_shards([small_dump], tmp_path / "shards", rules=ENGLISH, settings=SETTINGS)
    parts = parts_of(tmp_path / "shards")
    assert len(parts) > 2
    assert counts.size_bytes == sum(part.stat().st_size for part in parts)
    assert counts.filtered == {"a literal in another language": 3}
    load_freebase([small_dump], tmp_path / "one", rules=ENGLISH)
    summary = load_freebase(parts, tmp_path / "other", rules=profile("full"))
    assert (summary.read, summary.kept) == (counts.kept, counts.kept)
    one, other = store_content(tmp_path / "one"), store_content(tmp_path / "other")
    assert [one[part] for part in PARTS] == [other[part] for part in PARTS]


def test_shards_that_are_resumed_are_the_same(small_dump: Path, tmp_path: Path) -> None:
    emit_shards([small_dump], tmp_path / "alone", settings=SETTINGS)
    shards = tmp_path / "shards"
    with pytest.raises(KeyboardInterrupt):
        emit_shards([small_dump], shards, settings=SETTINGS, progress=RecordedProgress(16))
    assert not (shards / MANIFEST).exists()
    progress = RecordedProgress()
    emit_shards([small_dump], shards, settings=SETTINGS, progress=progress)
    assert progress.loaded_before >= 16
    for one, other in zip(parts_of(tmp_path / "alone"), parts_of(shards), strict=True):
        assert gzip.decompress(one.read_bytes()) == gzip.decompress(other.read_bytes())
    names = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert sorted(path.name for path in shards.iterdir()) == names


def test_finished_shards_are_replaced_only_when_asked(small_dump: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    emit_shards([small_dump], shards, settings=SETTINGS)
    before = len(parts_of(shards))
    with pytest.raises(InputError, match="finished shards"):
        emit_shards([small_dump], shards)
    emit_shards([small_dump], shards, overwrite=True)
    assert len(parts_of(shards)) == 1 < before


def test_a_failed_replacement_leaves_the_finished_shards(small_dump: Path, tmp_path: Path) -> None:
    shards, page = tmp_path / "shards", tmp_path / "page"
    emit_shards([small_dump], shards, settings=SETTINGS)
    before = {path.name: path.read_bytes() for path in shards.iterdir()}
    page.write_text("<!DOCTYPE html>\n")
    with pytest.raises(DumpError, match="web page"):
        emit_shards([page], shards, overwrite=True)
    assert {path.name: path.read_bytes() for path in shards.iterdir()} == before


def test_a_foreign_folder_gets_no_shards(small_dump: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds small\.nt"):
        emit_shards([small_dump], small_dump.parent, overwrite=True)
    with pytest.raises(InputError, match="is a file"):
        emit_shards([small_dump], small_dump)
