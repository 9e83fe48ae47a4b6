"""LIMIT and OFFSET at the end of queries."""

import pyoxigraph
import pytest

from kbqa.sparql.queries.row_limits import cap_rows, row_beyond, row_limit


@pytest.mark.parametrize(
    ("query", "is_capped"),
    [
        ("SELECT ?x { ?x ?y ?z }", True),
        ("SELECT ?x { ?x ?y ?z } # end", True),
        ("SELECT ?x { { SELECT ?x { ?x ?y ?z } LIMIT 3 } } OFFSET 2", True),
        ("SELECT ?x { ?x ?y ?z } limit 3", False),
        ("SELECT ?x { ?x ?y ?z } VALUES ?x { <a:a> }", False),
    ],
)
def test_cap_rows(query: str, is_capped: bool) -> None:
    capped = cap_rows(query, 7)
    assert (capped != query) == is_capped
    pyoxigraph.Store().query(capped)


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("SELECT ?x { ?x ?y ?z }", None),
        ("SELECT ?x { ?x ?y ?z } OFFSET 8", None),
        ("SELECT ?x { ?x ?y ?z } OFFSET 8 LIMIT #seven\n 7", 7),
        ("SELECT ?LIMIT { ?x ?y 'LIMIT 5' } limit 12", 12),
    ],
)
def test_row_limit(query: str, limit: int | None) -> None:
    assert row_limit(query) == limit


@pytest.mark.parametrize(
    "end",
    [
        "",
        " # end",
        " ORDER BY DESC(?x)",
        " LIMIT 9",
        " OFFSET 2 LIMIT 9",
        " GROUP BY ?x HAVING (COUNT(*) > 0) ORDER BY ?x LIMIT 4",
        " LIMIT 9 VALUES ?n { 1 2 3 }",
    ],
)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_there_is_a_row_beyond_where_the_query_has_more(end: str, count: int) -> None:
    query = f"SELECT ?x {{ VALUES ?x {{ 'a' 'b' 'c' }} }}{end}"
    store = pyoxigraph.Store()

    def rows(text: str) -> int:
        solutions = store.query(text)
        assert isinstance(solutions, pyoxigraph.QuerySolutions)
        return len(list(solutions))

    has_more = rows(query) > count
    assert rows(row_beyond(query, count)) == has_more
