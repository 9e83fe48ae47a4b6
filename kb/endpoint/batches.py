"""Fetch what is around many entities with few requests.

Entities are asked for together, in a VALUES list. If that gives more rows than may be fetched at
once, those with many are asked for apart, and the others in two halves.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar, cast

from kbqa.kb.graph import Direction, Edges
from kbqa.kb.rows import sorted_edges
from kbqa.kb.schema.telling import KEPT, LEFT_OUT, is_telling
from kbqa.sparql.errors import ResultTruncated
from kbqa.sparql.queries.templates import edges_query
from kbqa.sparql.terms import Term

_BATCH = 50
"""Entities that are asked for together: they seldom have more than one entity may have."""

_ROWS_EACH = 10
"""Rows for each entity that a request may always fetch."""

_Key = TypeVar("_Key", bound=tuple[str, ...])
_Item = TypeVar("_Item")

Rows: TypeAlias = Sequence[tuple[Term | None, ...]]
Fetch: TypeAlias = Callable[[str, int], Rows]
"""Runs a query for so many columns and returns all its rows; raises `ResultTruncated` if the server
keeps some back."""

Search: TypeAlias = Callable[[Sequence[_Key], int], str]
"""Writes the query for some keys and a limit on rows. A row is a key and a term."""


def fetch_each(
    fetch: Fetch, keys: Iterable[_Key], search: Search[_Key], limit: int
) -> dict[_Key, list[Term]]:
    """Fetch the terms of each key, at most `limit` of them.

    Raises:
        ResultTruncated: A server keeps back terms of one key.
        GraphError: It does not answer.
    """
    wanted = list(dict.fromkeys(keys))
    found: dict[_Key, list[Term]] = {}
    for start in range(0, len(wanted), _BATCH):
        found |= _each(fetch, wanted[start : start + _BATCH], search, limit)
    return found


def fetch_edges(
    fetch: Fetch, entities: Iterable[str], direction: Direction, limit: int
) -> dict[str, Edges]:
    """Fetch the edges of entities; those with more than `limit` are missing from the result.

    Raises:
        ResultTruncated: A server keeps back edges of one entity.
        GraphError: It does not answer.
    """
    wanted = list(dict.fromkeys(entities))
    found: dict[str, Edges] = {}
    for start in range(0, len(wanted), _BATCH):
        found |= _edges(fetch, wanted[start : start + _BATCH], direction, limit)
    return found


def once(found: Iterable[_Item]) -> tuple[_Item, ...]:
    """Return what was found, each once: Virtuoso's DISTINCT repeats rows that hold floats."""
    return tuple(dict.fromkeys(found))


def _each(
    fetch: Fetch, keys: Sequence[_Key], search: Search[_Key], limit: int
) -> dict[_Key, list[Term]]:
    most = limit if len(keys) == 1 else max(2 * limit, _ROWS_EACH * len(keys))

    def halves() -> dict[_Key, list[Term]]:
        half = len(keys) // 2
        first = _each(fetch, keys[:half], search, limit)
        return first | _each(fetch, keys[half:], search, limit)

    try:
        rows = fetch(search(keys, most + 1), len(keys[0]) + 1)
    except ResultTruncated:
        if len(keys) == 1:
            raise
        return halves()
    found: dict[_Key, list[Term]] = {key: [] for key in keys}
    for *start, term in rows:
        key = cast(_Key, tuple(map(str, start)))
        if term is not None and key in found:
            found[key].append(term)
    if len(keys) == 1 or len(rows) <= most:
        return {key: list(once(terms))[:limit] for key, terms in found.items()}
    full = {key: list(once(terms))[:limit] for key, terms in found.items() if len(terms) >= limit}
    if not full:
        return halves()
    left = [key for key in keys if key not in full]
    return full | _each(fetch, left, search, limit) if left else full


def _edges(
    fetch: Fetch, entities: Sequence[str], direction: Direction, limit: int
) -> dict[str, Edges]:
    most = limit if len(entities) == 1 else 2 * limit

    def halves() -> dict[str, Edges]:
        half = len(entities) // 2
        first = _edges(fetch, entities[:half], direction, limit)
        return first | _edges(fetch, entities[half:], direction, limit)

    try:
        rows = fetch(edges_query(entities, direction, LEFT_OUT, KEPT, most + 1), 3)
    except ResultTruncated:
        if len(entities) == 1:
            raise
        return halves()
    counts = Counter(str(node) for node, _, _ in rows)
    few = [entity for entity in entities if counts[entity] <= limit]
    if len(rows) > most:
        if len(few) < len(entities):
            return _edges(fetch, few, direction, limit) if few else {}
        return halves()
    found: dict[str, dict[str, list[Term]]] = {entity: {} for entity in few}
    for node, relation, end in once(rows):
        if end is not None and str(node) in found and is_telling(str(relation)):
            found[str(node)].setdefault(str(relation), []).append(end)
    return {entity: sorted_edges(edges) for entity, edges in found.items()}
