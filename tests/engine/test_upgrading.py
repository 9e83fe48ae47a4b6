"""Files that kbqa 0.1 wrote, at revision 49513a3, are read or refused as docs/upgrading.md says."""

import shutil
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.chat.cache import CachedChat
from kbqa.engine.chat.model import Message
from kbqa.engine.cli import main
from kbqa.kb.open import open_graph

FILES = Path(__file__).with_name("from_0_1")
MONEY = 'SELECT ?x { ?x ns:type.object.name "Jamaican dollar"@en }'


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which 0.1 worked."""
    directory = tmp_path_factory.mktemp("old") / "work"
    shutil.copytree(FILES, directory)
    with tarfile.open(directory / "store.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory


def kbqa(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def evaluate(old: Path, output: Path, *options: str) -> Result:
    command = ("eval", "--questions", old / "questions.jsonl", "--store", old / "store")
    beams = ("--beams", old / "beams.jsonl", "--set", "judge=confidence")
    return kbqa(*command, *beams, "--output", output, *options)


def test_a_store_is_read(old) -> None:
    with open_graph(old / "store") as graph:
        assert graph.select(MONEY).rows == (("m.04xc2m",),)
        assert graph.names(30).search("jamaican dolar")[0].mid == "m.04xc2m"


def test_beams_are_read_and_a_run_is_refused(old, tmp_path) -> None:
    new = tmp_path / "new.jsonl"
    assert evaluate(old, new).exit_code == 0
    assert len(new.read_text(encoding="utf-8").splitlines()) == 3
    refused = kbqa("compare", old / "run.jsonl", new)
    assert refused.exit_code == 2
    assert "run.jsonl, line 1 is a row of schema_version 2" in refused.stderr


def test_a_run_is_not_resumed(old) -> None:
    before = (old / "run.jsonl").read_bytes()
    result = evaluate(old, old / "run.jsonl", "--resume")
    assert result.exit_code == 2
    assert "holds a run with other settings (method)" in result.stderr
    assert "choose another --output" in result.stderr
    assert (old / "run.jsonl").read_bytes() == before


def test_replies_of_a_general_model_are_found(old, scripted_chat) -> None:
    identity = {"model": "some-model", "url": "http://127.0.0.1:9/v1"}
    chat = CachedChat(scripted_chat(), identity, directory=old / "chat")
    assert chat.complete([Message("user", "hello")]).text == "a reply of 0.1"
