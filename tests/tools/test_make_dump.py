import gzip
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyoxigraph
import pytest
from click.testing import CliRunner

from kbqa.kb.loading.cleaning import Rejected, Repaired, Skipped, clean_line
from kbqa.kb.loading.job import LoadSettings
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import FilterRules, profile
from tools.make.dump import main
from tools.make.generated.lines import DEFECTS

NS = "http://rdf.freebase.com/ns/"


def _make(folder: Path, *options: str) -> Path:
    output = folder / f"{len(list(folder.iterdir()))}.nt.gz"
    told = CliRunner().invoke(main, [*options, "--output", str(output)])
    assert told.exit_code == 0, told.output
    return output


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _make(tmp_path_factory.mktemp("dump"), "--lines", "100000")


@pytest.fixture(scope="module")
def lines(dump: Path) -> list[bytes]:
    return gzip.decompress(dump.read_bytes()).splitlines(keepends=True)


def test_a_dump_has_the_lines_that_were_asked_for_and_each_is_a_triple(lines: list[bytes]) -> None:
    assert len(lines) == 100_000
    assert all(line.endswith(b"\t.\n") and line.count(b"\t") == 3 for line in lines)
    triples = pyoxigraph.parse(b"".join(lines), pyoxigraph.RdfFormat.N_TRIPLES)
    assert sum(1 for _ in triples) == 100_000


def test_the_same_lines_and_seed_make_the_same_dump(lines: list[bytes], tmp_path: Path) -> None:
    again = _make(tmp_path, "--lines", "100000", "--processes", "1")
    assert gzip.decompress(again.read_bytes()) == b"".join(lines)
    other = _make(tmp_path, "--lines", "1000", "--seed", "2")
    assert not set(gzip.decompress(other.read_bytes()).splitlines()) <= set(lines)


def test_a_dump_has_the_shape_of_freebase(dump: Path, lines: list[bytes]) -> None:
    rules = profile("qa")
    kept = 0
    for line in lines:
        _, predicate, value = line.split(b"\t", 2)
        tag = value.rpartition(b'"@')[2].split(b"\t")[0].decode() if b'"@' in value else ""
        is_kept = rules.reason_to_drop(predicate[1:-1].decode()) is None
        kept += is_kept and rules.keeps_language(tag)
    assert 0.55 <= kept / len(lines) <= 0.61
    size = sum(map(len, lines))
    assert 125 <= size / len(lines) <= 145
    assert 9 <= size / dump.stat().st_size <= 14
    assert 0.003 <= 1 - len(set(lines)) / len(lines) <= 0.012
    # Each subject comes once.
    subjects = [line.partition(b"\t")[0] for line in lines]
    changes = 1 + sum(one != other for one, other in pairwise(subjects))
    assert changes == len(set(subjects))


def test_what_a_type_lists_is_of_that_type(lines: list[bytes]) -> None:
    listed, typed = set(), set()
    for line in lines:
        subject, predicate, value, _ = line.split(b"\t")
        if predicate.endswith(b"type.type.instance>"):
            listed.add((value, subject))
        elif predicate.endswith(b"type.object.type>"):
            typed.add((subject, value))
    # The dump is cut: the last nodes that are listed do not come any more.
    nodes = {subject for subject, _ in typed}
    came = {pair for pair in listed if pair[0] in nodes}
    assert len(came) > 8_000
    assert len(came - typed) <= 3
    instances = {node for node, _ in came}
    assert len({pair for pair in typed if pair[0] in instances} - listed) <= 3


def test_properties_of_a_pair_state_each_other(lines: list[bytes]) -> None:
    reverse = {}
    edges = Counter()
    for line in lines:
        subject, predicate, value, _ = line.split(b"\t")
        if predicate.endswith((b"reverse_property>", b"master_property>")):
            reverse[subject] = value
        edges[subject, predicate, value] += 1
    assert all(reverse[other] == one for one, other in reverse.items())
    country = f"<{NS}people.person.country>".encode()
    usa = f"<{NS}m.09c7w0>".encode()
    lie_there = {edge[0] for edge in edges if edge[1:] == (country, usa)}
    listed = {edge[2] for edge in edges if edge[:2] == (usa, reverse[country])}
    assert len(lie_there) > 100
    assert lie_there <= listed


@pytest.mark.parametrize("kind", DEFECTS, ids=str)
def test_a_defect_meets_the_fate_that_is_stated(kind: str) -> None:
    defect = DEFECTS[kind]
    cleaned = clean_line(defect.make(f"<{NS}m.0b1>".encode()))
    if isinstance(cleaned, Repaired):
        assert defect.fate == ("repaired" if cleaned.defects else "legal")
    else:
        assert defect.fate == {Rejected: "rejected", Skipped: "skipped"}[type(cleaned)]


def test_every_line_of_a_defective_dump_is_accounted_for(tmp_path: Path) -> None:
    truth = tmp_path / "truth.json"
    dump = _make(tmp_path, "--lines", "50000", "--defects", "0.01", "--truth", str(truth))
    told = json.loads(truth.read_text())
    assert told["lines"] == 50_000
    assert told["bytes"] == len(gzip.decompress(dump.read_bytes()))
    assert 0.008 <= sum(told["defects"].values()) / told["lines"] <= 0.012
    assert set(told["defects"]) == set(DEFECTS)
    fates: Counter[str] = Counter()
    for kind, count in told["defects"].items():
        fates[DEFECTS[kind].fate] += count

    settings = LoadSettings(checks_disk=False)
    summary = load_freebase(
        [dump], tmp_path / "store", rules=FilterRules("full"), settings=settings
    )
    assert summary.read == told["lines"]
    assert sum(summary.rejected.values()) == fates["rejected"]
    assert sum(summary.filtered.values()) == fates["skipped"]
    assert summary.kept == told["lines"] - fates["rejected"] - fates["skipped"]
    assert sum(summary.mended.values()) >= fates["repaired"]
