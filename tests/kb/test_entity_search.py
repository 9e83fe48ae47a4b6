from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest

from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.graph import Table
from kbqa.kb.open import open_graph
from kbqa.sparql.errors import EndpointError
from kbqa.sparql.terms import FREEBASE_NS as NS
from tools.graph_servers import oxigraph_server


@pytest.mark.parametrize(
    ("text", "name", "matched", "is_alias"),
    [
        pytest.param("Jamaica", "Jamaica", "Jamaica", False, id="own name"),
        pytest.param("jamaica", "Jamaica", "Jamaica", False, id="lower case"),
        pytest.param("jaxon bieber", "Jaxon Bieber", "Jaxon Bieber", False, id="untagged"),
        pytest.param('J. "Biebs" Bieber', "Justin Bieber", 'J. "Biebs" Bieber', True, id="alias"),
    ],
)
def test_a_store_and_an_endpoint_find_the_same(
    small_store: Path,
    small_endpoint: str,
    text: str,
    name: str,
    matched: str,
    is_alias: bool,
) -> None:
    for graph in (open_graph(store=small_store), open_graph(endpoint=small_endpoint)):
        first = graph.names().search(text)[0]
        assert (first.name, first.matched, first.is_alias) == (name, matched, is_alias)
        assert first.score == 1
        # Of a node's own triples and those that lead to it.
        assert first.popularity == {"Jamaica": 10, "Jaxon Bieber": 3, "Justin Bieber": 7}[name]
        graph.close()


def test_spans_of_a_question(small_store: Path, small_endpoint: str) -> None:
    tokens = ["what", "is", "jaxon", "bieber's", "gender", "in", "Jamaica"]
    for graph in (open_graph(store=small_store), open_graph(endpoint=small_endpoint)):
        names = graph.names()
        spans = names.match_spans(tokens)
        assert [(span.start, span.end, span.matches[0].name) for span in spans] == [
            (2, 4, "Jaxon Bieber"),
            (6, 7, "Jamaica"),
        ]
        assert names.match_spans([]) == []
        names.close()
        graph.close()


def test_virtuoso_finds_names_with_and_without_a_language(virtuoso_endpoint: str) -> None:
    graph = open_graph(endpoint=virtuoso_endpoint)
    tokens = ["justin", "bieber", "and", "jaxon", "bieber", "of", "Jamaica"]
    spans = graph.names().match_spans(tokens)
    found = [(span.matches[0].mid, span.matches[0].popularity) for span in spans]
    assert found == [("m.06w2sn5", 7), ("m.0gxnnwq", 3), ("m.03_r3", 10)]
    graph.close()


def test_a_name_of_many_at_an_endpoint(tmp_path: Path) -> None:
    store = pyoxigraph.Store(tmp_path / "many")
    lines = [f'<{NS}m.p{number}> <{NS}type.object.name> "Pilot"@en .' for number in range(120)]
    lines += [f"<{NS}m.e{number}> <{NS}tv.episode.pilot> <{NS}m.p77> ." for number in range(3)]
    lines += [f'<{NS}m.p5> <{NS}common.topic.description> "the second" .']
    store.load("\n".join(lines), pyoxigraph.RdfFormat.N_TRIPLES)
    store.flush()
    with oxigraph_server(tmp_path / "many") as url, closing(open_graph(endpoint=url)) as graph:
        matches = graph.names().lookup("pilot", limit=20)
    assert len(matches) == 20
    found = [(match.mid, match.popularity) for match in matches]
    assert found[:3] == [("m.p77", 4), ("m.p5", 2), ("m.p0", 1)]


def _serve_names(directory: Path, bearers: Mapping[str, int]) -> AbstractContextManager[str]:
    """Serve a graph where so many entities bear each name."""
    store = pyoxigraph.Store(directory)
    lines = [
        f'<{NS}m.{name.lower()}{at}> <{NS}type.object.name> "{name}"@en .'
        for name, count in bearers.items()
        for at in range(count)
    ]
    store.load("\n".join(lines), pyoxigraph.RdfFormat.N_TRIPLES)
    store.flush()
    return oxigraph_server(directory)


def test_a_name_of_thousands_hides_no_other_at_an_endpoint(tmp_path: Path) -> None:
    with _serve_names(tmp_path / "graph", {"Pilot": 2500, "Zorro": 1}) as url:
        spans = open_graph(endpoint=url).names().match_spans(["pilot", "and", "Zorro"])
    assert [(span.start, len(span.matches)) for span in spans] == [(0, 10), (2, 1)]


def test_a_question_of_many_common_names_is_counted_in_few_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"Name{at}x" for at in range(30)]
    asked: list[str] = []
    select = SparqlEndpoint.select

    def note(self: SparqlEndpoint, query: str, **rest: Any) -> Table:
        asked.append(query)
        return select(self, query, **rest)

    monkeypatch.setattr(SparqlEndpoint, "select", note)
    with _serve_names(tmp_path / "graph", dict.fromkeys(names, 120)) as url:
        spans = open_graph(endpoint=url).names().match_spans(names, limit=30)
    found = [len(span.matches) for span in spans]
    assert (len(found), min(found), sum(found)) == (30, 16, 500)
    assert len([query for query in asked if "COUNT" in query]) == 25


def test_a_question_in_capitals_finds_names_at_an_endpoint(small_endpoint: str) -> None:
    tokens = ["WHAT", "IS", "JAXON", "BIEBER'S", "GENDER", "IN", "JAMAICA"]
    spans = open_graph(endpoint=small_endpoint).names().match_spans(tokens)
    assert [(span.start, span.end, span.matches[0].name) for span in spans] == [
        (2, 4, "Jaxon Bieber"),
        (6, 7, "Jamaica"),
    ]


def test_nobody_of_that_name(small_store: Path, small_endpoint: str) -> None:
    for graph in (open_graph(store=small_store), open_graph(endpoint=small_endpoint)):
        assert graph.names().search("Zanzibar") == []
        assert graph.names().search('"} UNION { ?mid ?relation ?matched } #') == []
        graph.close()


def test_an_endpoint_that_is_down_is_not_an_empty_result() -> None:
    graph = open_graph(endpoint="http://127.0.0.1:9/sparql")
    with pytest.raises(EndpointError):
        graph.names().search("Kenya")


def test_names_that_differ_in_symbols_are_told_apart(tmp_path: Path) -> None:
    store = pyoxigraph.Store(tmp_path / "graph")
    written = ["C"] * 120 + ["C++", "Yahoo"]
    lines = [
        f'<{NS}m.0{at}> <{NS}type.object.name> "{name}"@en .' for at, name in enumerate(written)
    ]
    store.load("\n".join(lines), pyoxigraph.RdfFormat.N_TRIPLES)
    store.flush()
    with oxigraph_server(tmp_path / "graph") as url, closing(open_graph(endpoint=url)) as graph:
        names = graph.names()
        assert [match.name for match in names.lookup("C++", 3)] == ["C++", "C", "C"]
        assert [match.name for match in names.lookup("Yahoo!")] == ["Yahoo"]
