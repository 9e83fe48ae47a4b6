r"""Read and change which rows a SELECT query asks for: DISTINCT, and LIMIT and OFFSET at its end.

Those of sub-queries do not count. Nothing else of the query is read.
"""

import re
from typing import NamedTuple

from kbqa.sparql.queries.dialect import tokens

_NUMBER = re.compile(r"(?:\s|#[^\n\r]*+)*(\d++)")


def cap_rows(query: str, limit: int) -> str:
    r"""Add a LIMIT to a SELECT query that has none, if that is safe.

    A query with a LIMIT, or with VALUES after its pattern, is returned unchanged: the caller must
    cut its rows.

    >>> cap_rows("SELECT ?x { { SELECT ?x { ?x ?y ?z } LIMIT 9 } }", 5)
    'SELECT ?x { { SELECT ?x { ?x ?y ?z } LIMIT 9 } }\nLIMIT 5'
    """
    end = _read_end(query)
    if end.limit is not None or end.values_at < len(query):
        return query
    return f"{query}\nLIMIT {limit}"


def row_limit(query: str) -> int | None:
    """Return how many rows a SELECT query asks for at most; None for all.

    >>> row_limit("SELECT ?x { { SELECT ?x { ?x ?y ?z } LIMIT 9 } } LIMIT 5")
    5
    """
    return _read_end(query).limit


def is_distinct(query: str) -> bool:
    """Return whether a SELECT query asks for each row once.

    >>> is_distinct("SELECT DISTINCT * {}"), is_distinct("SELECT * { { SELECT DISTINCT * {} } }")
    (True, False)
    """
    words = (token.text.upper() for token in tokens(query) if token.kind == "word")
    return "SELECT" in words and next(words, "") == "DISTINCT"


def row_beyond(query: str, count: int) -> str:
    r"""Rewrite a SELECT query to ask for one row beyond its first `count` ones, in any order.

    It has a row exactly if the query without its LIMIT has more than `count`.

    >>> row_beyond("SELECT ?x { ?x ?y ?z } ORDER BY ?x LIMIT 900 OFFSET 5", 100)
    'SELECT ?x { ?x ?y ?z } \nLIMIT 1 OFFSET 105\n'
    """
    end = _read_end(query)
    body, values = query[: end.body_ends_at], query[end.values_at :]
    return f"{body}\nLIMIT 1 OFFSET {end.offset + count}\n{values}"


class _End(NamedTuple):
    """What follows a query's pattern and its groups.

    Attributes:
        body_ends_at: Where ORDER BY, LIMIT, OFFSET or VALUES begin.
        values_at: Where VALUES begins; the query's end if there is none.
        limit: The number after LIMIT, if any.
        offset: The number after OFFSET; 0 if there is none.
    """

    body_ends_at: int
    values_at: int
    limit: int | None
    offset: int


def _read_end(query: str) -> _End:
    depth = at = offset = 0
    body_ends_at = values_at = len(query)
    limit: int | None = None
    for token in tokens(query):
        start, at = at, at + len(token.text)
        if token.text in ("{", "}"):
            depth += 1 if token.text == "{" else -1
        if depth > 0 or token.kind != "word":
            continue
        word = token.text.upper()
        if word in ("ORDER", "LIMIT", "OFFSET", "VALUES"):
            body_ends_at = min(body_ends_at, start)
        if word == "VALUES":
            values_at = start
        elif word in ("LIMIT", "OFFSET") and (number := _NUMBER.match(query, at)) is not None:
            if word == "LIMIT":
                limit = int(number[1])
            else:
                offset = int(number[1])
    return _End(body_ends_at, values_at, limit, offset)
