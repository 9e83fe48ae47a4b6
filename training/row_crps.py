"""Read the CRPs of question records, with the names of their entities.

A record's CRP is the published RouterKGQA text where there is one, else the conversion of its
SPARQL. Names come from the record, else from a graph, else from the comments in its SPARQL.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kbqa.engine.conversion import Unconverted, convert_queries
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.routerkgqa import parse_routerkgqa
from kbqa.sparql.terms import is_mid
from kbqa.training.entity_names import NameSource, noted_names, row_names
from kbqa.training.unusable import Unusable

Row = Mapping[str, Any]


def row_crps(rows: Sequence[Row], names: NameSource | None = None) -> list[Crp | Unusable]:
    """Read the CRP of each record, or why there is none.

    Args:
        rows: Records of question sets.
        names: Looks up the names of entities that a record does not name.

    Raises:
        GraphError: The names cannot be looked up.
    """
    converted = convert_queries(
        _text(row, "sparql")
        for row in rows
        if _text(row, "sparql") and not _text(row, "crp_routerkgqa")
    )
    found = [_row_crp(row, converted) for row in rows]
    unnamed = {
        entity.mid
        for crp in found
        if isinstance(crp, Crp)
        for entity in crp.entities()
        if not entity.name and entity.mid and is_mid(entity.mid)
    }
    looked_up = {} if names is None else names(sorted(unnamed))
    return [
        _with_names(crp, {**noted_names(_text(row, "sparql")), **looked_up})
        if isinstance(crp, Crp)
        else crp
        for row, crp in zip(rows, found, strict=True)
    ]


def _row_crp(row: Row, converted: Mapping[str, Crp | Unconverted]) -> Crp | Unusable:
    """Read a record's CRP, with the names that the record itself gives."""
    try:
        names = row_names(row)
        crp = _published(row) or converted.get(_text(row, "sparql"))
    except ValueError as error:
        return Unusable(str(error))
    if crp is None:
        complete = "no complete parse of a good question"
        return Unusable(complete if row.get("parses") else "neither CRP nor SPARQL")
    return _with_names(crp, names) if isinstance(crp, Crp) else Unusable(crp.reason)


def _published(row: Row) -> Crp | None:
    text = _text(row, "crp_routerkgqa")
    if not text:
        return None
    try:
        crp, problems = parse_routerkgqa(text)
    except CrpSyntaxError:
        raise ValueError("published CRP that cannot be read") from None
    if problems:
        raise ValueError("published CRP with problems")
    return crp


def _with_names(crp: Crp, names: Mapping[str, str]) -> Crp:
    return crp.with_entities(lambda e: e if e.name else Entity(names.get(e.mid or ""), e.mid))


def _text(row: Row, field: str) -> str:
    """Take a text from a record; empty where it has none."""
    return text if isinstance(text := row.get(field), str) else ""
