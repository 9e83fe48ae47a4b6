"""Make a handed-in query fit to run on a graph, and say where one does not parse."""

import re
from typing import Literal as Choice

from kbqa.sparql.dialect import check_read_only, repair_query
from kbqa.sparql.errors import QueryRefused, QuerySyntaxError

_POSITION = re.compile(r"error at (\d+):(\d+)")


def prepare_query(text: str, form: Choice["select", "ask"]) -> str:
    """Repair a query's dialect and check that it only reads, and in the form that is asked for.

    Raises:
        QuerySyntaxError: The text does not begin like a query.
        QueryRefused: It is of another form, an update, or uses SERVICE or FROM.
    """
    found = check_read_only(text)
    if found != form:
        raise QueryRefused(f"a {form.upper()} query is wanted here, and this is {found.upper()}")
    return repair_query(text)


def syntax_error(query: str, message: str) -> QuerySyntaxError:
    """Say where a query stops making sense, in place of the parser's list of what it would take.

    >>> print(syntax_error("SELECT ?x {", "error at 1:12: expected one of ..."))
    the query does not parse: line 1, after 'SELECT ?x {'

    Args:
        query: The query as it was parsed.
        message: Oxigraph's message; another message is passed on.
    """
    position = _POSITION.search(message)
    lines = query.splitlines()
    if position is None or int(position[1]) > len(lines):
        return QuerySyntaxError(f"the query does not parse: {message}")
    before = lines[int(position[1]) - 1][: int(position[2]) - 1]
    shown = before if len(before) <= 60 else "…" + before[-59:]
    where = f"after {shown!r}" if shown.strip() else "at its beginning"
    return QuerySyntaxError(f"the query does not parse: line {position[1]}, {where}")
