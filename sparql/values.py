"""Compare, equate and order the dump's literals by value, in SPARQL that every engine reads alike.

The dump types dates by precision (gYear, gYearMonth, date, dateTime) and numbers not at all, and
Oxigraph and Virtuoso disagree on comparing across those types. Lexical forms of dates sort like the
dates themselves when a date stands for its first instant (1980 = 1980-01-01T00:00:00, Virtuoso's
reading), so dates are compared as strings; numbers are cast from their text.

Years before the common era compare by year alone.
"""

import re

from kbqa.sparql.crp import Operator
from kbqa.sparql.terms import XSD_NS, Literal, quote, sparql_term

_DATE_TYPES = ("gYear", "gYearMonth", "date", "dateTime")
_NUMBER_TYPES = ("integer", "int", "decimal", "float", "double")
_DATE = re.compile(r"-?\d{4}(-\d\d(-\d\d(T[\d:.]+)?)?)?(Z|[+-]\d\d:\d\d)?")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_ZONE = re.compile(r"(?<=\d\d:\d\d)(Z|[+-]\d\d:\d\d)$|(?<=-\d\d-\d\d)(Z|[+-]\d\d:\d\d)$|Z$")
_DATE_IRIS = ", ".join(f"<{XSD_NS}{name}>" for name in _DATE_TYPES)
_DOUBLE = f"<{XSD_NS}double>"


def is_date(value: Literal) -> bool:
    """Tell whether a literal is a date, by its datatype or else by its shape.

    A bare four-digit number counts as a date: the benchmarks compare years that way.

    >>> is_date(Literal("2010-12-31")), is_date(Literal("17")), is_date(Literal("1980", "float"))
    (True, False, False)
    """
    if value.datatype is not None:
        return value.datatype in _DATE_TYPES
    return _DATE.fullmatch(value.text) is not None


def is_number(value: Literal) -> bool:
    """Tell whether a literal is a number, by its datatype or else by its shape."""
    if value.datatype is not None:
        return value.datatype in _NUMBER_TYPES
    return _NUMBER.fullmatch(value.text) is not None


def comparison(variable: str, operator: Operator, value: Literal) -> str:
    """Write the filter expression that compares a variable with a value.

    Args:
        variable: With its question mark.
        operator: Anything but ``=``, which `equal_literals` serves from the index.
        value: A date, a number, or a year of unknown kind, which is compared as the kind that
            each bound literal has.
    """
    if operator in ("=", "!="):
        forms = ", ".join(quote(text) for text in sorted({v.text for v in equal_literals(value)}))
        return f"STR({variable}) {'NOT IN' if operator == '!=' else 'IN'} ({forms})"
    if not is_date(value):
        return _number_comparison(variable, operator, value.text)
    date = _date_comparison(variable, operator, value.text)
    if value.datatype is None and value.text.isdigit():
        number = _number_comparison(variable, operator, value.text)
        return f"IF(DATATYPE({variable}) IN ({_DATE_IRIS}), {date}, {number})"
    return date


def equal_literals(value: Literal) -> tuple[Literal, ...]:
    """List the literals that say the same value, as a dump may have written them.

    >>> [literal.datatype for literal in equal_literals(Literal("12"))]
    [None, 'integer', 'int', 'decimal', 'float', 'double']
    """
    forms = [Literal(value.text)]
    if is_date(value):
        for text in dict.fromkeys((value.text, _shortest(value.text), _longest(value.text))):
            forms += [Literal(text, datatype) for datatype in _DATE_TYPES]
    if _NUMBER.fullmatch(value.text) and value.datatype not in _DATE_TYPES:
        forms += [Literal(value.text, datatype) for datatype in _NUMBER_TYPES]
    if value.datatype is not None or value.language is not None:
        forms.append(value)
    return tuple(dict.fromkeys(forms))


def values_block(variable: str, literals: tuple[Literal, ...]) -> str:
    """Write a VALUES block that binds a variable to these literals."""
    return f"VALUES {variable} {{ {' '.join(sparql_term(literal) for literal in literals)} }}"


def order_keys(variable: str, descending: bool) -> str:
    """Write ORDER BY keys that sort numbers by value, and dates and texts by their letters."""
    direction = "DESC" if descending else "ASC"
    number = f'{_DOUBLE}(IF(DATATYPE({variable}) IN ({_DATE_IRIS}), "", STR({variable})))'
    return f"{direction}({number}) {direction}(STR({variable}))"


def _number_comparison(variable: str, operator: Operator, text: str) -> str:
    return f"{_DOUBLE}(STR({variable})) {operator} {_DOUBLE}({quote(text)})"


def _date_comparison(variable: str, operator: Operator, text: str) -> str:
    if text.startswith("-"):
        year = (
            f'<{XSD_NS}integer>(IF(STRSTARTS(STR({variable}), "-"), '
            f"SUBSTR(STR({variable}), 1, 5), SUBSTR(STR({variable}), 1, 4)))"
        )
        return f"{year} {operator} {int(text[:5])}"
    # A longer text with the same beginning is a later instant or the same one: the shortest form
    # of the value is the least text for its instant, the longest with a tilde the greatest.
    bound = _shortest(text) if operator in (">=", "<") else _longest(text) + "~"
    return f"STR({variable}) {operator} {quote(bound)}"


def _shortest(text: str) -> str:
    """Write a date with the lowest precision that names the same first instant."""
    text = _ZONE.sub("", text).removesuffix("T00:00:00")
    for length in (10, 7):
        if len(text.lstrip("-")) == length:
            text = text.removesuffix("-01")
    return text


def _longest(text: str) -> str:
    """Write a date's first instant in full."""
    text = _ZONE.sub("", text)
    missing = {4: "-01-01T00:00:00", 7: "-01T00:00:00", 10: "T00:00:00"}
    return text + missing.get(len(text.lstrip("-")), "")
