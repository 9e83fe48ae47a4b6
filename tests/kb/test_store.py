import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyoxigraph
import pytest

from kbqa.kb.graph import Direction
from kbqa.kb.layout import StoreLayout
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.open import open_graph
from kbqa.kb.store import (
    Hub,
    OxigraphStore,
    Statistics,
    add_hub_relations,
    count_hub_relations,
    write_statistics,
)
from kbqa.sparql.errors import InputError, StoreError
from kbqa.sparql.terms import FREEBASE_NS, full_iri


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


@pytest.mark.parametrize(
    "node", ["http://x.org/w?a[]=1", "http://x.org/50%", "http://x.org/\u009b"]
)
def test_a_node_that_no_query_can_name_has_no_edges(node: str, tmp_path: Path) -> None:
    dump = tmp_path / "film.nt"
    trailer = f"<{full_iri('m.01')}>\t<{full_iri('film.film.trailers')}>\t<{node}>\t.\n"
    dump.write_text(trailer, encoding="utf-8")
    load_freebase([dump], tmp_path / "store")
    with OxigraphStore.open(tmp_path / "store") as graph:
        (found,) = graph.neighbours("m.01", "film.film.trailers", "out")
        assert found == node
        assert graph.frontier_relations([found, "m.01"], "out") == ["film.film.trailers"]
        assert graph.frontier_neighbours([found], "film.film.trailers", "in") == []
        assert graph.relations_of_each([found], "in") == {found: []}
        assert graph.edges([found], "in") == {found: {}}
        assert (graph.labels([found]), graph.types(found)) == ({}, [])


def test_two_readers_at_once(small_store: Path) -> None:
    first, second = OxigraphStore.open(small_store), OxigraphStore.open(small_store)
    assert first.types("m.03_r3") == second.types("m.03_r3")


def test_a_store_is_opened_beside_its_writer(copy: Path) -> None:
    writer = pyoxigraph.Store(str(copy / "graph"))
    assert OxigraphStore.open(copy).types("m.03_r3")
    del writer


@pytest.fixture
def replaced(tmp_path: Path) -> Iterator[OxigraphStore]:
    """A store that is open and was asked, and that another load has replaced."""
    directory, dump = tmp_path / "store", tmp_path / "dump.nt"
    name = f'<{FREEBASE_NS}m.0{{}}> <{FREEBASE_NS}type.object.name> "{{}}"@en .\n'
    dump.write_text(name.format("old", "Old"))
    load_freebase([dump], directory)
    with OxigraphStore.open(directory) as graph:
        assert graph.select("SELECT ?s { ?s ?p ?o }").rows == (("m.0old",),)
        dump.write_text(name.format("new", "New"))
        load_freebase([dump], directory, overwrite=True)
        yield graph


def test_a_store_that_is_replaced_stays_in_use_for_those_who_opened_it(
    replaced: OxigraphStore,
) -> None:
    assert replaced.select("SELECT ?s { ?s ?p ?o }").rows == (("m.0old",),)
    assert replaced.labels(["m.0old", "m.0new"]) == {"m.0old": "Old"}
    with OxigraphStore.open(replaced.directory) as graph:
        assert graph.labels(["m.0old", "m.0new"]) == {"m.0new": "New"}
        assert graph.identity() != replaced.identity()


def test_a_query_process_that_ends_after_its_store_was_replaced_does_not_ask_the_new_one(
    replaced: OxigraphStore,
) -> None:
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    for pid in children:
        if str(replaced.directory).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"was replaced after it was opened\. Open it again"):
            replaced.ask("ASK { ?s ?p ?o }")
    assert replaced.relations("m.0old", "out") == ["type.object.name"]


def test_names_and_schema_of_another_store_are_not_mixed_in(replaced: OxigraphStore) -> None:
    for part in (replaced.names, replaced.schema):
        with pytest.raises(StoreError, match="was replaced"):
            part()


def test_a_store_opened_by_a_relative_path_is_found_from_another_folder(
    small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_store.parent)
    with OxigraphStore.open(Path(small_store.name)) as graph:
        monkeypatch.chdir("/")
        assert graph.ask("ASK { ?s ?p ?o }")
        assert graph.names().lookup("kenya") is not None
        assert graph.schema().properties
        assert graph.description == f"store {small_store.name}"


def test_only_one_graph_is_chosen(small_store: Path) -> None:
    with pytest.raises(InputError, match="not both"):
        open_graph(small_store, "http://localhost:7878/query")


@pytest.fixture
def hub_store(copy: Path) -> Path:
    """A store whose statistics list for one entity what the graph does not hold."""
    path = StoreLayout(copy).statistics
    write_statistics(path, {}, [])
    graph = pyoxigraph.Store()
    for relation, ends in (("z.rare", 1), ("a.frequent", 3), ("c.middling", 2)):
        edge = pyoxigraph.NamedNode(full_iri(relation))
        hub = pyoxigraph.NamedNode(full_iri("m.03_r3"))
        for end in range(ends):
            node = pyoxigraph.NamedNode(full_iri(f"m.{end}"))
            graph.add(pyoxigraph.Quad(node, edge, hub))
    hubs = [Hub("m.03_r3", "in", 6)]
    add_hub_relations(path, count_hub_relations(graph, hubs, threads=1))
    return copy


def test_relations_of_hubs_come_from_the_statistics(hub_store: Path) -> None:
    with closing(OxigraphStore.open(hub_store)) as store:
        assert store.relations("m.03_r3", "in") == ["a.frequent", "c.middling", "z.rare"]
        assert store.relations("m.03_r3", "in", limit=2) == ["a.frequent", "c.middling"]


def test_edges_of_a_hub_are_not_read_if_they_are_too_many(hub_store: Path) -> None:
    with closing(OxigraphStore.open(hub_store)) as store:
        assert store.edges(["m.03_r3", "m.03yl7"], "in", limit=5).keys() == {"m.03yl7"}
        assert store.edges(["m.03_r3"], "in", limit=6) == {"m.03_r3": {}}  # it has none of these


def test_the_bookkeeping_of_a_hub_is_not_read(copy: Path) -> None:
    hub = "m.06w2sn5"
    rows = [(hub, "out", 5000, "type.object.key"), (hub, "out", 1, "people.person.gender")]
    add_hub_relations(StoreLayout(copy).statistics, rows)
    with closing(OxigraphStore.open(copy)) as store:
        assert store.edges([hub], "out") == {hub: {"people.person.gender": ["m.05zppz"]}}


def test_relations_of_others_come_from_the_graph(hub_store: Path) -> None:
    with closing(OxigraphStore.open(hub_store)) as store:
        assert "location.country.capital" in store.relations("m.03_r3", "out")
        assert store.relations("m.03yl7", "in") == ["location.country.capital"]


def test_statistics_that_are_missing(copy: Path) -> None:
    StoreLayout(copy).statistics.unlink()
    with pytest.raises(StoreError, match="no file of statistics"):
        OxigraphStore.open(copy)


def test_statistics_that_cannot_be_read(copy: Path) -> None:
    StoreLayout(copy).statistics.write_bytes(b"")
    with pytest.raises(StoreError, match="no file of statistics"):
        OxigraphStore.open(copy)


@pytest.mark.parametrize("part", ["statistics", "names"])
def test_a_view_in_place_of_a_table_is_not_read_for_ever(copy: Path, part: str) -> None:
    path, table = {
        "statistics": (StoreLayout(copy).statistics, "relation"),
        "names": (StoreLayout(copy).names, "name"),
    }[part]
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"DROP TABLE {table}; CREATE VIEW {table} AS WITH RECURSIVE endless(id) AS "
            "(SELECT 1 UNION ALL SELECT id + 1 FROM endless) SELECT id, id AS triples FROM endless"
        )
    with pytest.raises(StoreError, match=rf"it has the view {table}\)\. Load the store again"):
        OxigraphStore.open(copy).names()


_READER = """
import sys
from pathlib import Path
from kbqa.kb.store import OxigraphStore

store = OxigraphStore.open(Path(sys.argv[1]))
store.ask("ASK { ?s ?p ?o }")
print("open", flush=True)
sys.stdin.readline()
for _ in range(50):
    rows = store.select("SELECT ?x { ns:m.03_r3 ns:location.country.capital ?x }").rows
    print(*rows[0], *store.types("m.03yl7"), len(store.relations("m.03_r3", "out")))
store.close()
"""


def test_many_processes_read_at_once(small_store: Path) -> None:
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", _READER, small_store],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for reader in readers:
        assert reader.stdout is not None and reader.stdout.readline() == "open\n"
    # Each has the store open, in two processes; now all begin.
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("go\n")
        reader.stdin.flush()
    outputs = [reader.communicate()[0] for reader in readers]
    assert [reader.returncode for reader in readers] == [0] * 4
    assert outputs == ["m.03yl7 location.citytown 5\n" * 50] * 4


NS = "http://rdf.freebase.com/ns/"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
RELATIONS = {"film.film.country": 300, "people.person.nationality": 20, LABEL: 7}
TYPES = [("film.film", 100), ("people.person", 20)]
HUBS = [
    Hub("m.country", "in", 30),
    Hub("m.country", "out", 3),
    Hub("http://example.org/page", "in", 1),
    Hub("m.country|odd", "in", 9),
]


@pytest.fixture
def store() -> pyoxigraph.Store:
    lines = [f"<{NS}m.p{n}> <{NS}people.person.nationality> <{NS}m.country> ." for n in range(10)]
    lines += [f"<{NS}m.f{n}> <{NS}film.film.country> <{NS}m.country> ." for n in range(20)]
    lines += [f"<{NS}m.z{n}> <{NS}base.zoo.country> <{NS}m.country> ." for n in range(10)]
    lines += [f"<{NS}m.country> <{NS}type.object.name> {name} ." for name in ('"A"', '"B"@de')]
    lines += [f'<{NS}m.country> <{LABEL}> "A" .']
    lines += [f"<{NS}m.f1> <{NS}common.topic.webpage> <http://example.org/page> ."]
    made = pyoxigraph.Store()
    made.load("\n".join(lines), pyoxigraph.RdfFormat.N_TRIPLES)
    return made


@pytest.fixture
def path(store: pyoxigraph.Store, tmp_path: Path) -> Path:
    made = tmp_path / "statistics.sqlite"
    write_statistics(made, RELATIONS, TYPES)
    add_hub_relations(made, count_hub_relations(store, HUBS, threads=2))
    return made


@pytest.fixture
def statistics(path: Path) -> Iterator[Statistics]:
    opened = Statistics.open(path)
    yield opened
    opened.close()


def test_counts(statistics: Statistics) -> None:
    assert statistics.relations() == RELATIONS
    assert statistics.types() == dict(TYPES)


@pytest.mark.parametrize(
    ("node", "direction", "limit", "relations"),
    [
        pytest.param(
            "m.country",
            "in",
            10,
            ["film.film.country", "base.zoo.country", "people.person.nationality"],
            id="most edges first, ties by name",
        ),
        pytest.param("m.country", "in", 1, ["film.film.country"], id="limit"),
        pytest.param("m.country", "out", 10, ["type.object.name", LABEL], id="literals count"),
        pytest.param(NS + "m.country", "in", 1, ["film.film.country"], id="written in full"),
        pytest.param("http://example.org/page", "in", 9, ["common.topic.webpage"], id="foreign"),
        pytest.param("http://example.org/page", "out", 9, None, id="no hub in this direction"),
        pytest.param("m.f1", "out", 10, None, id="no hub"),
        pytest.param("m.country|odd", "in", 10, None, id="no query can name it"),
    ],
)
def test_hub_relations(
    statistics: Statistics,
    node: str,
    direction: Direction,
    limit: int,
    relations: list[str] | None,
) -> None:
    assert statistics.hub_relations(node, direction, limit) == relations


def test_edges_of_a_hub(statistics: Statistics) -> None:
    films = {"film.film.country": 20, "base.zoo.country": 10, "people.person.nationality": 10}
    assert statistics.hub_edges("m.country", "in") == films
    assert statistics.hub_edges("m.f1", "out") == {}


def test_a_hub_that_no_query_can_name_is_left_out(path: Path) -> None:
    add_hub_relations(path, [("m.a|b", "in", 5, "a.b.c"), ("m.ab", "in", 5, "a.b.c")])
    with closing(Statistics.open(path)) as statistics:
        assert statistics.hub_relations("m.a|b", "in", 10) is None
        assert statistics.hub_relations("m.ab", "in", 10) == ["a.b.c"]


def test_rows_that_fail_leave_the_file_as_it_was(path: Path) -> None:
    twice = [("m.f1", "out", 2, "a.b.c")] * 2
    with pytest.raises(sqlite3.IntegrityError):
        add_hub_relations(path, twice)
    with closing(Statistics.open(path)) as statistics:
        assert statistics.hub_relations("m.country", "in", 1) == ["film.film.country"]
        assert statistics.hub_relations("m.f1", "out", 1) is None


def test_statistics_are_written_anew(path: Path) -> None:
    write_statistics(path, {"a.b.c": 1}, [])
    with closing(Statistics.open(path)) as statistics:
        assert statistics.relations() == {"a.b.c": 1}
        assert statistics.types() == {}
        assert statistics.hub_relations("m.country", "in", 10) is None


def test_threads_share_statistics(statistics: Statistics) -> None:
    answers: list[list[str] | None] = []

    def ask() -> None:
        for _ in range(200):
            answers.append(statistics.hub_relations("m.country", "in", 1))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [["film.film.country"]] * 800


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no file of statistics at"):
        Statistics.open(tmp_path / "none.sqlite")


@pytest.mark.parametrize("content", [b"", b"not SQLite" * 100], ids=["empty", "other"])
def test_file_of_another_kind(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(StoreError, match="is no file of statistics"):
        Statistics.open(tmp_path / "other")
