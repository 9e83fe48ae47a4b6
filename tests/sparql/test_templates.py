"""The queries that explore a graph, word for word."""

import pytest

from kbqa.sparql import templates
from kbqa.sparql.crp import Hop


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            templates.relations_query("m.0abc", "in", 10),
            "SELECT DISTINCT ?relation WHERE { ?entity ?relation <m.0abc> } LIMIT 10",
        ),
        (
            templates.neighbours_query("m.0a", "film.actor.film", "out", 5),
            "SELECT DISTINCT ?entity WHERE { <m.0a> <film.actor.film> ?entity } LIMIT 5",
        ),
        (
            templates.first_neighbours_query("m.0a", "a.b", "in", 5),
            "SELECT DISTINCT ?entity WHERE { ?entity <a.b> <m.0a> } ORDER BY STR(?entity) LIMIT 5",
        ),
        (
            templates.neighbour_count_query("m.0a", "a.b", "out"),
            "SELECT (COUNT(DISTINCT ?entity) AS ?count) WHERE { <m.0a> <a.b> ?entity }",
        ),
        (
            templates.frontier_relations_query(["m.0a", "m.0b"], "out", 9),
            "SELECT DISTINCT ?relation "
            "WHERE { VALUES ?node { <m.0a> <m.0b> } ?node ?relation ?entity } LIMIT 9",
        ),
        (
            templates.frontier_neighbours_query(["m.0a"], "c.d", "in", 9),
            "SELECT DISTINCT ?entity WHERE { VALUES ?node { <m.0a> } ?entity <c.d> ?node } LIMIT 9",
        ),
        (
            templates.relations_of_each_query(["m.0a"], "out", 9),
            "SELECT DISTINCT ?node ?relation\n"
            "WHERE { VALUES ?node { <m.0a> } ?node ?relation ?entity } LIMIT 9",
        ),
        (
            templates.neighbours_of_each_query([("m.0a", "b.c")], "out", 9),
            "SELECT DISTINCT ?node ?relation ?entity\nWHERE { VALUES (?node ?relation) "
            "{ (<m.0a> <b.c>) } ?node ?relation ?entity } LIMIT 9",
        ),
        (
            templates.edges_query(["m.0a"], "out", ["type.", "c."], ["type.a"], 9),
            "SELECT DISTINCT ?node ?relation ?entity "
            "WHERE { VALUES ?node { <m.0a> } ?node ?relation ?entity\n"
            'FILTER (?relation IN (<type.a>) || !(STRSTARTS(STR(?relation), "type.")'
            ' || STRSTARTS(STR(?relation), "c."))) } LIMIT 9',
        ),
        (
            templates.starts_query((Hop("a.b"), Hop("c.d", inverse=True)), "m.0a", 5),
            "SELECT ?entity WHERE { <m.0a> <c.d> ?n1 . ?entity <a.b> ?n1 } LIMIT 5",
        ),
        (
            templates.labels_query(["m.0a", "m.0b"]),
            "SELECT ?mid ?name WHERE "
            "{ VALUES ?mid { <m.0a> <m.0b> } ?mid <type.object.name> ?name }",
        ),
    ],
)
def test_queries_that_explore(query: str, text: str) -> None:
    assert query.replace("http://rdf.freebase.com/ns/", "") == text
