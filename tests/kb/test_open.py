import logging
import lzma
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from kbqa.kb import open as open_module
from kbqa.kb.graph import Schema
from kbqa.kb.layout import StoreLayout
from kbqa.kb.names import NameIndex
from kbqa.kb.open import DEMO_DUMP, building_folder, demo_store_directory
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.errors import DumpError, StoreError

CAPITAL = "location.country.capital"
CURRENCY = "location.country.currency_used"
OFFICIAL = "location.country.official_language"
OF_THE_GRAPH_ITSELF = ("type.property.", "freebase.type_hints.")


class RawTriple(NamedTuple):
    subject: bytes
    predicate: bytes
    object: bytes

    @property
    def relation(self) -> str:
        return self.predicate.removeprefix(b"<http://rdf.freebase.com/ns/")[:-1].decode()


@pytest.fixture(scope="module")
def triples() -> list[RawTriple]:
    lines = lzma.decompress(DEMO_DUMP.read_bytes()).splitlines(keepends=True)
    assert all(line.endswith(b"\t.\n") for line in lines)
    return [RawTriple(*line.removesuffix(b"\t.\n").split(b"\t")) for line in lines]


@pytest.fixture(scope="module")
def schema(demo_store: Path) -> Schema:
    return Schema.open(StoreLayout(demo_store).schema)


@pytest.fixture(scope="module")
def graph(demo_store: Path) -> Iterator[OxigraphStore]:
    store = OxigraphStore.open(demo_store)
    yield store
    store.close()


@pytest.fixture(scope="module")
def names(demo_store: Path) -> Iterator[NameIndex]:
    index = NameIndex.open(StoreLayout(demo_store).names)
    yield index
    index.close()


def ends(graph: OxigraphStore, names: NameIndex, name: str, *relations: str) -> set[str]:
    """Follow relations from the entity of this name, and return the names at their end."""
    nodes = {names.lookup(name)[0].mid}
    for relation in relations:
        nodes = {str(end) for node in nodes for end in graph.neighbours(node, relation, "out")}
    return set(graph.labels(nodes).values())


def test_the_graph_is_large_enough_and_ships_small(triples: list[RawTriple]) -> None:
    assert len(triples) == len(set(triples)) >= 100_000
    assert DEMO_DUMP.stat().st_size < 3_000_000


def test_every_line_is_a_triple_that_the_store_holds(
    triples: list[RawTriple], graph: OxigraphStore
) -> None:
    counted = graph.select("SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }").rows[0][0]
    assert getattr(counted, "text", None) == str(len(triples))


def test_every_property_has_a_schema(triples: list[RawTriple], schema: Schema) -> None:
    used = {triple.relation for triple in triples}
    facts = {name for name in used if not name.startswith(OF_THE_GRAPH_ITSELF)}
    assert facts == set(schema.properties)
    for name in facts:
        known = schema.property(name)
        assert known is not None
        assert known.domain == name.rpartition(".")[0]
        assert known.expected_type


def test_pairs_of_properties_say_the_same_in_both_directions(
    triples: list[RawTriple], schema: Schema
) -> None:
    pairs: dict[str, set[tuple[bytes, bytes]]] = defaultdict(set)
    for triple in triples:
        pairs[triple.relation].add((triple.subject, triple.object))
    reversible = {one.id: one.reverse for one in schema.properties.values() if one.reverse}
    assert len(reversible) == 30
    for forward, backward in reversible.items():
        assert {(end, start) for start, end in pairs[forward]} == pairs[backward], forward


def test_unique_properties_have_one_value(triples: list[RawTriple], schema: Schema) -> None:
    unique = {one.id for one in schema.properties.values() if one.is_unique}
    subjects = [
        (triple.subject, triple.predicate) for triple in triples if triple.relation in unique
    ]
    assert len(subjects) == len(set(subjects))


def test_mediators_are_told_from_entities(graph: OxigraphStore, schema: Schema) -> None:
    assert schema.mediators == {
        "location.adjoining_relationship",
        "location.geocode",
        "measurement_unit.dated_integer",
    }
    unnamed = graph.select(
        "SELECT DISTINCT ?t WHERE { ?m ns:type.object.type ?t "
        "FILTER NOT EXISTS { ?m ns:type.object.name ?n } }"
    )
    assert {row[0] for row in unnamed.rows} == schema.mediators | {"type.property"}


@pytest.mark.parametrize(
    ("name", "relations", "expected"),
    [
        ("Kenya", (CAPITAL,), {"Nairobi"}),
        ("Brazil", (CAPITAL,), {"Brasília"}),
        ("Kazakhstan", (CAPITAL,), {"Astana"}),
        ("Jamaica", (CURRENCY,), {"Jamaican Dollar"}),
        ("USA", (CURRENCY,), {"United States Dollar"}),
        ("Kenya", (OFFICIAL,), {"Swahili Language", "English Language"}),
        ("Nairobi", ("location.location.time_zones",), {"East Africa Time Zone"}),
        ("Nairobi", ("location.location.containedby",), {"Kenya"}),
        ("Hindi", ("language.human_language.writing_system",), {"Devanagari script"}),
        ("Tungsten", ("chemistry.chemical_element.chemical_series",), {"Transition metal"}),
        ("Kenya", ("common.topic.notable_types",), {"Country"}),
        ("Kenya", ("base.locations.countries.continent",), {"Africa"}),
        ("Chicago", ("location.location.containedby",), {"Illinois", "United States of America"}),
        ("Saigon", ("location.location.time_zones",), {"Indochina Time Zone"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_facts_are_right(
    graph: OxigraphStore,
    names: NameIndex,
    name: str,
    relations: tuple[str, ...],
    expected: set[str],
) -> None:
    assert ends(graph, names, name, *relations) == expected


def test_germany_has_its_nine_neighbours(graph: OxigraphStore, names: NameIndex) -> None:
    found = ends(
        graph,
        names,
        "Germany",
        "location.location.adjoin_s",
        "location.adjoining_relationship.adjoins",
    )
    assert found - {"Germany"} == {
        "Austria",
        "Belgium",
        "Czechia",
        "Denmark",
        "France",
        "Luxembourg",
        "Netherlands",
        "Poland",
        "Switzerland",
    }


def test_the_euro_is_used_where_it_is_used(graph: OxigraphStore, names: NameIndex) -> None:
    found = ends(graph, names, "Euro", "finance.currency.countries_used")
    assert {"Croatia", "France", "Germany", "Ireland", "Kosovo", "Slovenia"} <= found
    assert not {"Denmark", "Poland", "Sweden", "United Kingdom"} & found
    assert "Germany" in ends(
        graph, names, "German Mark", "finance.currency.countries_formerly_used"
    )


def test_the_largest_city_of_kenya_is_nairobi(graph: OxigraphStore) -> None:
    found = graph.select(
        """SELECT ?name WHERE {
          ?kenya ns:location.country.iso_alpha_3 "KEN" ; ns:location.location.contains ?x .
          ?x ns:type.object.type ns:location.citytown ; ns:type.object.name ?name ;
             ns:location.statistical_region.population/ns:measurement_unit.dated_integer.number ?n
        } ORDER BY DESC(xsd:integer(?n)) LIMIT 1"""
    )
    assert getattr(found.rows[0][0], "text", None) == "Nairobi"


@pytest.fixture
def small_demo(small_dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and a demo graph that builds in no time."""
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(open_module, "DEMO_DUMP", small_dump)
    return tmp_path / "cache"


def test_the_store_is_built_once_and_says_so(
    small_demo: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="kbqa.kb.open"):
        first, second = demo_store_directory(), demo_store_directory()
    assert first == second
    assert first.parent == small_demo
    assert [record.name for record in caplog.records] == ["kbqa.kb.open"]


def test_building_at_the_same_time_does_no_harm(small_demo: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        built = set(pool.map(lambda _: demo_store_directory(), range(4)))
    (directory,) = built
    assert list(small_demo.iterdir()) == [directory]
    assert StoreLayout(directory).is_finished


def test_a_failed_build_leaves_nothing(
    small_demo: Path, small_dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = small_demo.parent / "damaged.nt.gz"
    damaged.write_bytes(b"\x1f\x8b nothing")
    monkeypatch.setattr(open_module, "DEMO_DUMP", damaged)
    with pytest.raises(DumpError):
        demo_store_directory()
    assert list(small_demo.iterdir()) == []


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda store: _cut(store.names), id="names cut short"),
        pytest.param(lambda store: _cut(store.statistics), id="statistics cut short"),
        pytest.param(lambda store: _cut(store.manifest), id="manifest cut short"),
        pytest.param(lambda store: _cut(next(store.graph.glob("*.sst"))), id="triples cut short"),
        pytest.param(lambda store: next(store.graph.glob("*.sst")).unlink(), id="triples missing"),
        pytest.param(lambda store: store.schema.unlink(), id="schema missing"),
        pytest.param(lambda store: (store.directory / "sizes.json").unlink(), id="sizes missing"),
    ],
)
def test_a_damaged_cache_of_the_demo_graph_is_rebuilt(
    small_demo: Path, damage: Callable[[StoreLayout], object]
) -> None:
    directory = demo_store_directory()
    damage(StoreLayout(directory))
    assert demo_store_directory() == directory
    assert list(small_demo.iterdir()) == [directory]
    with OxigraphStore.open(directory) as graph, closing(graph.names()) as names:
        assert graph.ask("ASK { ?s ?p ?o }")
        assert names.lookup("Jamaica")
        assert graph.all_relations()


def test_what_a_killed_cold_start_left_is_removed(small_demo: Path) -> None:
    directory = small_demo / "made"
    left = small_demo / "made.killed"
    (left / "building").mkdir(parents=True)
    os.utime(left, (0, 0))
    with building_folder(directory) as building:
        os.utime(building, (0, 0))
        assert list(small_demo.iterdir()) == [building]
        with building_folder(directory) as other:
            assert set(small_demo.iterdir()) == {building, other}  # the first one is at work
            other.rename(directory)
    assert list(small_demo.iterdir()) == [directory]


def test_a_store_that_was_read_is_not_taken_for_damaged(small_demo: Path) -> None:
    directory = demo_store_directory()
    built = directory.stat().st_ino
    with OxigraphStore.open(directory) as graph, closing(graph.names()) as names:
        assert graph.ask("ASK { ?s ?p ?o }")
        assert names.lookup("Jamaica")
    assert demo_store_directory().stat().st_ino == built


def test_a_cache_that_is_a_file_is_reported(
    small_demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_demo.write_text("no folder")
    with pytest.raises(StoreError, match=r"cannot be built in .*cache \(.*Set KBQA_CACHE"):
        demo_store_directory()
