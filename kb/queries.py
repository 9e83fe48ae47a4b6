"""Prepare a query of any origin for a graph, and report where one does not parse."""

import re
from typing import Literal

from kbqa.sparql.errors import QueryRefused, QuerySyntaxError
from kbqa.sparql.queries.dialect import check_read_only, repair_query

_POSITION = re.compile(r"error at (\d+):(\d+)")


def prepare_query(text: str, form: Literal["select", "ask"]) -> str:
    """Repair a query's dialect, and check that it only reads and has the expected form.

    Raises:
        QuerySyntaxError: The text does not begin like a query.
        QueryRefused: It is of another form, an update, or uses SERVICE or FROM.
    """
    found = check_read_only(text)
    if found != form:
        raise QueryRefused(f"expected a {form.upper()} query, got {found.upper()}")
    return repair_query(text)


def syntax_error(query: str, message: str) -> QuerySyntaxError:
    """Return an error that says where a query stops parsing, not all that could follow there.

    >>> print(syntax_error("SELECT ?x {", "error at 1:12: expected one of ..."))
    the query does not parse: line 1, after 'SELECT ?x {'

    Args:
        query: The query as it was parsed.
        message: Oxigraph's message; another message is passed on.
    """
    position = _POSITION.search(message)
    lines = query.split("\n")  # as Oxigraph counts them, not at U+0085 or U+2028
    if position is None or int(position[1]) > len(lines):
        return QuerySyntaxError(f"the query does not parse: {message}")
    before = lines[int(position[1]) - 1][: int(position[2]) - 1]
    shown = before if len(before) <= 60 else "…" + before[-59:]
    where = f"after {shown!r}" if shown.strip() else "at its beginning"
    return QuerySyntaxError(f"the query does not parse: line {position[1]}, {where}")
