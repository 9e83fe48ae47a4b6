import shutil
from pathlib import Path

import pyoxigraph
import pytest

from kbqa.kb.select_graph import open_graph
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.errors import InputError, StoreError


@pytest.fixture
def copy(small_store: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "copy"
    shutil.copytree(small_store, directory)
    return directory


def test_missing_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="load-freebase"):
        OxigraphStore.open(tmp_path / "none")


def test_unfinished_store(copy: Path) -> None:
    (copy / "manifest.json").unlink()
    with pytest.raises(StoreError, match="not a finished store"):
        OxigraphStore.open(copy)


def test_empty_store(copy: Path) -> None:
    shutil.rmtree(copy / "graph")
    pyoxigraph.Store(str(copy / "graph")).flush()
    with pytest.raises(StoreError, match="is empty"):
        OxigraphStore.open(copy)


def test_store_whose_triples_are_gone(copy: Path) -> None:
    shutil.rmtree(copy / "graph")
    with pytest.raises(StoreError, match="cannot be opened"):
        OxigraphStore.open(copy)


def test_two_readers_at_once(small_store: Path) -> None:
    first, second = OxigraphStore.open(small_store), OxigraphStore.open(small_store)
    assert first.types("m.03_r3") == second.types("m.03_r3")


def test_a_store_is_opened_beside_its_writer(copy: Path) -> None:
    writer = pyoxigraph.Store(str(copy / "graph"))
    assert OxigraphStore.open(copy).types("m.03_r3")
    del writer


def test_only_one_graph_is_chosen(small_store: Path) -> None:
    with pytest.raises(InputError, match="not both"):
        open_graph(small_store, "http://localhost:7878/query")
