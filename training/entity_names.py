"""Find the names of the entities of question records, by mid."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from kbqa.engine.question_mentions import mend_mojibake

NameSource: TypeAlias = Callable[[Iterable[str]], Mapping[str, str]]
"""Looks up the names of mids, as `Graph.labels` does."""

_MID = re.compile(r"\b(?:ns|fb):([mg]\.[0-9a-z_]+)")
# Annotators noted names behind lines; their other notes, such as "#player", begin otherwise.
_NOTED_NAME = re.compile(r"#\s+([A-Z].*\S)")


def row_names(row: Mapping[str, Any]) -> dict[str, str]:
    """Collect the names that a record gives its entities.

    Raises:
        ValueError: They are not records of entities.
    """
    try:
        entities = [*(row.get("entities_in_sparql") or ()), *(row.get("topic_entities") or ())]
        return {e["mid"]: mend_mojibake(e["name"]) for e in entities if e.get("name")}
    except (AttributeError, KeyError, TypeError):
        raise ValueError("malformed entities") from None


def noted_names(sparql: str) -> dict[str, str]:
    """Collect the names in a query's comments, where one line speaks of one entity alone.

    They serve where nothing better is known: of 111 in the rows at hand, 104 are the graph's own.

    >>> noted_names("ns:m.042f1 ns:people.person.children ?x . # James K. Polk")
    {'m.042f1': 'James K. Polk'}
    """
    names: dict[str, str] = {}
    for line in sparql.splitlines():
        mids = set(_MID.findall(line))
        if len(mids) == 1 and (match := _NOTED_NAME.search(line)):
            names.setdefault(mids.pop(), match[1])
    return names
