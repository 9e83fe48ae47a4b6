import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyoxigraph
import pytest

from kbqa.kb.graph import Direction
from kbqa.kb.store.statistics import (
    Hub,
    Statistics,
    add_hub_relations,
    count_hub_relations,
    write_statistics,
)
from kbqa.sparql.errors import StoreError

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
    assert statistics.relation_count("film.film.country") == 300
    assert statistics.relation_count(NS + "film.film.country") == 300
    assert statistics.relation_count(LABEL) == 7
    assert statistics.relation_count("film.film.none") == 0


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
