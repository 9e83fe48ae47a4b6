"""Write literals for people to read: numbers with separators and units, dates in words.

The schema says what a literal is: the expected type of its relation, such as ``type.int``, else the
literal's own datatype. Texts and codes stay as they are. A unit is what the relation's
``type.property.unit`` says, by its abbreviation or else its name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.terms import LiteralTerm, iri

_NUMBERS = {"type.int", "type.float", "integer", "int", "long", "float", "double", "decimal"}
_DATES = {"type.datetime", "date", "dateTime", "gYear", "gYearMonth"}

# A number with leading zeros is a code, such as 06037.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:[eE][+-]?\d{1,2})?")
_DATE = re.compile(r"(-?\d{4})(?:-(\d\d)(?:-(\d\d)(?:T([\d:.]+))?)?)?(?:Z|[+-]\d\d:\d\d)?")
_MOST_DIGITS = 18
_SEPARATED_FROM = 5
"""Digits: a shorter number, which may be a year or a dialling code, reads well without."""

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


@dataclass(frozen=True, slots=True)
class LiteralForms:
    """How the literals of some relations are written.

    Attributes:
        types: The expected type of each relation, where the graph states it.
        units: The unit of each relation, where the graph states it.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)

    def write(self, literal: LiteralTerm, relation: str | None = None) -> str:
        """Write a literal that a relation leads to.

        >>> forms = LiteralForms({"a.b.area": "type.float"}, {"a.b.area": "km²"})
        >>> forms.write(LiteralTerm("103000.0"), "a.b.area")
        '103,000 km²'
        >>> forms.write(LiteralTerm("1980-05-04", "date"))
        '4 May 1980'
        """
        kind = self.types.get(relation or "", literal.datatype)
        if kind in _NUMBERS:
            unit = self.units.get(relation or "", "")
            return f"{_number(literal.text)} {unit}".rstrip()
        return _date(literal.text) if kind in _DATES else literal.text


def read_literal_forms(
    graph: Graph, relations: Iterable[str], timeout_s: float = DEFAULT_TIMEOUT_S
) -> LiteralForms:
    """Read from a graph how the literals of relations are written.

    Raises:
        GraphError: The graph does not answer.
    """
    wanted = sorted(set(relations))
    if not wanted:
        return LiteralForms()
    schema = GraphSchema(graph, timeout_s).of(wanted)
    stated = filter(None, map(schema.property, wanted))
    types = {each.id: each.expected_type for each in stated if each.expected_type is not None}
    units: dict[str, str] = {}
    for relation, *texts in graph.select(_unit_query(wanted), timeout_s=timeout_s).rows:
        text = next((each.text for each in texts if isinstance(each, LiteralTerm)), None)
        if text is not None:
            units.setdefault(str(relation), text)
    return LiteralForms(types, units)


def _unit_query(relations: Iterable[str]) -> str:
    return (
        f"SELECT ?relation ?short ?name {{ VALUES ?relation {{ {' '.join(map(iri, relations))} }} "
        f"?relation {iri('type.property.unit')} ?unit "
        f"OPTIONAL {{ ?unit {iri('freebase.unit_profile.abbreviation')} ?short }} "
        f"OPTIONAL {{ ?unit {iri('type.object.name')} ?name FILTER (LANG(?name) = 'en') }} }}"
    )


def _number(text: str) -> str:
    if _NUMBER.fullmatch(text) is None:
        return text
    number = Decimal(text)
    if abs(number.adjusted()) > _MOST_DIGITS:
        return text
    whole, point, rest = f"{number:f}".partition(".")
    rest = rest.rstrip("0")
    if len(whole.lstrip("-")) >= _SEPARATED_FROM:
        whole = f"{int(whole):,}"
    return f"{whole}{point}{rest}" if rest else whole


def _date(text: str) -> str:
    match = _DATE.fullmatch(text)
    if match is None:
        return text
    year, month, day, time = match.groups()
    said = str(int(year)) if int(year) > 0 else f"{-int(year)} BC"
    if month is None:
        return said
    if not 1 <= int(month) <= len(MONTHS):
        return text
    said = f"{MONTHS[int(month) - 1]} {said}"
    if day is not None:
        said = f"{int(day)} {said}"
    return said if time is None else f"{said}, {time}"
