from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.make.dump import main as make_dump


@pytest.fixture(scope="session")
def made_dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up dump of 20,000 lines."""
    dump = tmp_path_factory.mktemp("made") / "dump.nt.gz"
    made = CliRunner().invoke(make_dump, ["--lines", "20000", "--output", str(dump)])
    assert made.exit_code == 0, made.output
    return dump
