"""A soak of seconds, and how growth is found; `python -m tools.bench.soak` works for hours."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

for package in ("httpx", "fastapi", "uvicorn"):
    pytest.importorskip(package, reason="needs the serve extra")

from tools.bench.soak.__main__ import Sample, find_growth, soak, write_results  # noqa: E402
from tools.bench.soak.work import JOBS  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("soak")


def test_nothing_grows_while_everything_works(folder: Path) -> None:
    samples, ended = soak(folder, 6, 1000, rounds=4)
    assert ended == []
    assert {each.job for each in samples} == set(JOBS)
    assert find_growth(samples) == []
    write_results(folder, samples, [])
    with (folder / "soak.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(samples)
    summary = json.loads((folder / "soak.json").read_text())
    assert min(summary["rounds"][job] for job in JOBS if job != "server") >= 4
    assert not list((folder / "loads" / "tmp").iterdir())


STEADY = [Sample(second, "runs", 200.0, 20, 2, 9, 3, second) for second in range(100)]


@pytest.mark.parametrize(
    ("measure", "each_second", "problem"),
    [
        ("memory_mb", 2, "memory_mb grew from"),
        ("descriptors", 1, "descriptors grew from"),
        ("files", 1, "files grew from"),
        ("rounds", 0, "runs did no more rounds"),
    ],
)
def test_what_grows_or_stands_still_is_named(measure: str, each_second: int, problem: str) -> None:
    samples = [replace(each, **{measure: 200 + at * each_second}) for at, each in enumerate(STEADY)]
    (found,) = find_growth(samples)
    assert problem in found


def test_a_beginning_that_grows_is_no_problem() -> None:
    samples = [
        replace(each, memory_mb=min(8 * at, 200), descriptors=min(at, 20))
        for at, each in enumerate(STEADY)
    ]
    assert find_growth(samples) == []


def test_a_job_that_ends_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBQA_QUERY_MEMORY_GB", "nonsense")  # its store cannot be opened
    _, ended = soak(tmp_path, 60, 100)
    assert ended and "ended with 1: see" in ended[0]
