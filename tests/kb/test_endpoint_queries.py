"""The queries by which an endpoint is explored, word for word."""

import re
from collections.abc import Callable

import pytest

from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.graph import Graph
from kbqa.kb.protocol import EndpointReply
from kbqa.kb.schema import KEPT, LEFT_OUT
from kbqa.sparql.compile import starts_query
from kbqa.sparql.crp import Hop

FREEBASE = "http://rdf.freebase.com/ns/"
STARTS = " || ".join(f'STRSTARTS(STR(?relation), "{each}")' for each in LEFT_OUT)


class _Recorder(SparqlEndpoint):
    """An endpoint that answers every query with the next number of entities, or with a count."""

    def __init__(self, *sizes: int) -> None:
        super().__init__("http://localhost/sparql")
        self.queries: list[str] = []
        self._sizes = iter(sizes)

    def _post(self, query: str, timeout_s: float) -> EndpointReply:
        self.queries.append(query.replace(FREEBASE, ""))
        names = ["count"] if "COUNT" in query else re.findall(r"\?(\w+)", query.split(" WHERE ")[0])
        value = {"type": "literal", "value": "7"} if names == ["count"] else None
        rows = [
            {name: value or {"type": "uri", "value": f"{FREEBASE}m.{row}"} for name in names}
            for row in range(next(self._sizes, 0))
        ]
        return EndpointReply({"head": {"vars": names}, "results": {"bindings": rows}}, None)


@pytest.mark.parametrize(
    ("ask", "query"),
    [
        (
            lambda graph: graph.relations("m.0abc", "in", 10),
            "SELECT DISTINCT ?relation WHERE { ?entity ?relation <m.0abc> } LIMIT 10",
        ),
        (
            lambda graph: graph.neighbours("m.0a", "film.actor.film", "out", 5),
            "SELECT DISTINCT ?entity WHERE { <m.0a> <film.actor.film> ?entity } LIMIT 5",
        ),
        (
            lambda graph: graph.frontier_relations(["m.0a", "m.0b"], "out", 9),
            "SELECT DISTINCT ?relation "
            "WHERE { VALUES ?node { <m.0a> <m.0b> } ?node ?relation ?entity } LIMIT 9",
        ),
        (
            lambda graph: graph.frontier_neighbours(["m.0a"], "c.d", "in", 9),
            "SELECT DISTINCT ?entity WHERE { VALUES ?node { <m.0a> } ?entity <c.d> ?node } LIMIT 9",
        ),
        (
            lambda graph: graph.relations_of_each(["m.0a", "m.0b"], "out", 50),
            "SELECT DISTINCT ?node ?relation "
            "WHERE { VALUES ?node { <m.0a> <m.0b> } ?node ?relation ?entity } LIMIT 101",
        ),
        (
            lambda graph: graph.neighbours_of_each([("m.0a", "b.c"), ("m.0d", "e.f")], "out", 50),
            "SELECT DISTINCT ?node ?relation ?entity WHERE { VALUES (?node ?relation) "
            "{ (<m.0a> <b.c>) (<m.0d> <e.f>) } ?node ?relation ?entity } LIMIT 101",
        ),
        (
            lambda graph: graph.edges(["m.0a"], "out", 8),
            "SELECT DISTINCT ?node ?relation ?entity "
            "WHERE { VALUES ?node { <m.0a> } ?node ?relation ?entity "
            f"FILTER (?relation IN (<{KEPT[0]}>) || !({STARTS})) }} LIMIT 9",
        ),
        (
            lambda graph: graph.labels(["m.0a", "m.0b"]),
            "SELECT ?mid ?name WHERE "
            "{ VALUES ?mid { <m.0a> <m.0b> } ?mid <type.object.name> ?name }",
        ),
    ],
)
def test_queries_that_explore(ask: Callable[[Graph], object], query: str) -> None:
    graph = _Recorder()
    ask(graph)
    assert graph.queries == [query]


def test_the_first_neighbours_are_sorted_and_counted_by_the_server() -> None:
    graph = _Recorder(6, 5, 1)
    assert graph.first_neighbours("m.0a", "a.b", "in", 5).hidden == 2
    assert graph.queries[1:] == [
        "SELECT DISTINCT ?entity WHERE { ?entity <a.b> <m.0a> } ORDER BY STR(?entity) LIMIT 5",
        "SELECT (COUNT(DISTINCT ?entity) AS ?count) WHERE { ?entity <a.b> <m.0a> }",
    ]


def test_the_starts_of_a_path_are_found_from_its_end() -> None:
    query = starts_query((Hop("a.b"), Hop("c.d", inverse=True)), "m.0a", 5)
    assert query.replace(FREEBASE, "") == (
        "SELECT ?entity WHERE { <m.0a> <c.d> ?n1 . ?entity <a.b> ?n1 . } LIMIT 5"
    )
