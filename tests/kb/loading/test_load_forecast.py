import gzip
from pathlib import Path

import pytest

from kbqa.kb.loading import job
from kbqa.kb.loading.dump import DumpReader
from kbqa.kb.loading.job import Forecast, check_disk, forecast, shard_size
from kbqa.kb.loading.rules import profile
from kbqa.sparql.errors import InputError

_START = b"<http://rdf.freebase.com/ns/m.0a>\t<http://a/p>\t"
LINE = _START + b'"kept"@en\t.\n' + _START + b'"left out"@de\t.\n'


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.nt"
    path.write_bytes(LINE * 500)
    return path


@pytest.fixture
def _only_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a dump be large at 20 kB."""
    monkeypatch.setattr(job, "_WHOLE_BYTES", 20_000)
    defaults = DumpReader.blocks.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "block_bytes", 5_000)


def test_small_dumps_are_counted(dump: Path, tmp_path: Path) -> None:
    packed = tmp_path / "dump.gz"
    packed.write_bytes(gzip.compress(LINE * 10))
    expected = forecast([str(dump), str(packed)], tmp_path / "not" / "yet", profile("qa"))
    assert expected is not None
    assert (expected.lines, expected.triples) == (1020, 510)
    assert expected.free_bytes > 0


@pytest.mark.usefixtures("_only_a_sample")
def test_large_dumps_are_taken_to_be_like_freebase(dump: Path, tmp_path: Path) -> None:
    plain = forecast([str(dump)], tmp_path, profile("qa"))
    assert plain is not None
    assert plain.lines == round(dump.stat().st_size / 129)
    assert plain.triples == round(0.45 * plain.lines)
    whole = forecast([str(dump)], tmp_path, profile("full"))
    assert whole is not None
    assert whole.triples == whole.lines == plain.lines
    packed = tmp_path / "dump.gz"
    packed.write_bytes(gzip.compress(LINE * 500))
    compressed = forecast([str(packed)], tmp_path, profile("full"))
    assert compressed is not None
    assert compressed.lines == round(packed.stat().st_size / 10.3)


def test_what_cannot_be_read_twice_has_no_forecast(dump: Path, tmp_path: Path) -> None:
    assert forecast([str(dump), "-"], tmp_path, profile("qa")) is None


def test_a_missing_dump_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dump at"):
        forecast([str(tmp_path / "nowhere")], tmp_path, profile("qa"))


def test_a_disk_that_will_not_hold_it_is_refused(tmp_path: Path) -> None:
    check_disk(Forecast(2_000, 1_000, 1_000 * job.PEAK_BYTES), tmp_path)
    with pytest.raises(InputError, match=r"1,000,000,000 triples takes 230\.0 GB .* 150\.0 GB"):
        check_disk(Forecast(3 * 10**9, 10**9, 150 * 10**9), tmp_path)


@pytest.mark.parametrize(
    ("triples", "size"),
    [
        pytest.param(None, 500_000, id="unknown"),
        pytest.param(10, 100_000, id="small"),
        pytest.param(2_000_000, 250_000, id="an-eighth"),
        pytest.param(10**9, 500_000, id="large"),
    ],
)
def test_shards_are_at_least_eight_and_neither_small_nor_large(
    triples: int | None, size: int
) -> None:
    assert shard_size(None if triples is None else Forecast(triples, triples, 0)) == size
