import gzip
import shutil
import tempfile
from pathlib import Path
from tempfile import gettempdir

import pytest

from kbqa.kb.open import open_graph
from kbqa.sparql.errors import EndpointError
from kbqa.sparql.terms import LiteralTerm
from tools.graph_servers import (
    VIRTUOSO_IS_MISSING,
    MissingServer,
    oxigraph_server,
    virtuoso_server,
)

needs_virtuoso = pytest.mark.skipif(shutil.which("virtuoso-t") is None, reason=VIRTUOSO_IS_MISSING)
COUNT = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"


def _folders() -> set[Path]:
    return set(Path(gettempdir()).glob("virtuoso-*"))


@needs_virtuoso
def test_virtuoso_serves_what_it_was_given_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where no other test has a server
    plain, packed = tmp_path / "it's plain.nt", tmp_path / "packed.nt.gz"
    plain.write_text('<http://a/1> <http://a/p> "1" .\n<http://a/1> <http://a/p> <http://a/2> .\n')
    packed.write_bytes(gzip.compress(b'<http://a/2> <http://a/p> "J\xc3\xbcrgen"@de .\n'))
    before = _folders()
    with virtuoso_server([plain, packed]) as url:
        graph = open_graph(endpoint=url)
        assert graph.select(COUNT).rows == ((LiteralTerm("3", datatype="integer"),),)
        rows = graph.select("SELECT ?o { <http://a/2> ?p ?o }").rows
        assert rows == ((LiteralTerm("Jürgen", language="de"),),)
        assert _folders() != before
    assert _folders() == before
    with pytest.raises(EndpointError, match="does not answer"):
        graph.ask("ASK {}")


@needs_virtuoso
def test_virtuoso_says_what_it_cannot_load(tmp_path: Path) -> None:
    broken = tmp_path / "broken.nt"
    broken.write_text("<http://a/1> <http://a/p> .\n")
    complaint = pytest.raises(RuntimeError, match=r"could not load everything: .*broken.nt")
    with complaint, virtuoso_server([broken]):
        pytest.fail("it loaded")


def test_missing_programs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(MissingServer, match="apt-get install "), virtuoso_server([]):
        pytest.fail("it started")
    with pytest.raises(MissingServer, match="pip install oxigraph"), oxigraph_server(tmp_path):
        pytest.fail("it started")
