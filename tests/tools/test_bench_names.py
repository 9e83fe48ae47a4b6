from collections import Counter
from pathlib import Path
from random import Random

import polars as pl
import pytest
from click.testing import CliRunner

from kbqa.kb.names.build import NameIndexBuilder
from kbqa.kb.names.index import allowed_errors
from tools.bench.made_names import made_names
from tools.bench.names import main, mistype


def test_each_kind_of_query_is_measured_on_indexes_of_two_sizes(tmp_path: Path) -> None:
    sizes = ["--names", "1000", "--names", "3000"]
    told = CliRunner().invoke(main, [*sizes, "--queries", "40", "--folder", str(tmp_path)])
    assert told.exit_code == 0, told.output
    rows = {line[:32].strip(): line[32:].split() for line in told.output.splitlines()[1:]}
    kinds = ["lookup", "match_spans", "near, 1 error", "near, 2 errors", "search"]
    times = [f"{kind}, {what} ms" for kind in kinds for what in ("cold, median", "median", "p99")]
    assert {"building, s", "bytes a name", "asking, peak MB", *times} <= set(rows)
    # Of an entity with two names of one key, one counts.
    small, _, ratio = rows["names and aliases"][:3]
    assert 900 < int(small.replace(",", "")) <= 1000
    assert ratio.startswith("×")
    assert float(rows["near, 1 error, found"][0]) > 0.9
    # Nothing is left of the indexes.
    assert list(tmp_path.iterdir()) == []


def test_an_index_that_is_there_is_asked(tmp_path: Path) -> None:
    builder = NameIndexBuilder(tmp_path / "names.sqlite")
    for names in made_names(1000, seed=1):
        builder.add(names)
    builder.finish()
    told = CliRunner().invoke(main, ["--index", str(tmp_path / "names.sqlite"), "--queries", "20"])
    assert told.exit_code == 0, told.output
    assert "building" not in told.output
    assert "near, 1 error, found" in told.output


def test_made_names_are_as_many_as_wanted_and_the_same_for_a_seed() -> None:
    first, again, other = (pl.concat(made_names(5000, seed)) for seed in (1, 1, 2))
    assert first.height == 5000
    assert first.equals(again)
    assert not first.equals(other)
    bearers = Counter(first["text"])
    assert max(bearers.values()) > 1
    assert first["is_alias"].any()
    assert first["popularity"].max() > 20 * first["popularity"].median()


@pytest.mark.parametrize("errors", [1, 2])
def test_mistyped_names_are_other_names(errors: int) -> None:
    random = Random(1)
    for _ in range(200):
        text = mistype("barack obama", errors, random)
        assert text is None or (text != "barack obama" and allowed_errors(text) == 2)
    assert mistype("1234", errors, random) is None
    assert mistype("abcd", 2, random) is None
