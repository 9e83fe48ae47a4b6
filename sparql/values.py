"""Compare, equate and order the dump's literals by value, in SPARQL that every engine reads alike.

The dump types dates by precision (gYear, gYearMonth, date, dateTime) and numbers not at all, and
Oxigraph and Virtuoso disagree on comparing across those types. Lexical forms of dates sort like the
dates themselves when a date stands for its first instant (1980 = 1980-01-01T00:00:00, Virtuoso's
reading), so dates are compared as strings; numbers are cast from their text.

Two dates before the common era, whose texts sort backwards, are told apart by year alone. Time
zones are not reckoned with.
"""

import re
from decimal import Decimal

from kbqa.sparql.crp import Operator
from kbqa.sparql.terms import XSD_NS, Literal, quote, sparql_term

_DATE_TYPES = ("gYear", "gYearMonth", "date", "dateTime")
_NUMBER_TYPES = ("integer", "int", "decimal", "float", "double")
_DATE = re.compile(r"-?\d{4}(-\d\d(-\d\d(T[\d:.]+)?)?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_YEAR = re.compile(r"\d{4}", re.ASCII)
_YEAR_BCE = re.compile(r"-\d{4}", re.ASCII)
_ZONE = re.compile(r"(Z|[+-]\d\d:\d\d)$", re.ASCII)
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

    Where the variable can be bound by `equal_literals`, that serves ``=`` from the index.

    Args:
        variable: With its question mark.
        operator: Read with the variable on its left.
        value: A date; a number; a year of unknown kind, which is compared as the kind that each
            bound literal has; or a text, which is compared by its letters.
    """
    if is_date(value):
        date = _date_comparison(variable, operator, value.text)
        if not _is_bare_year(value):
            return date
        number = _number_comparison(variable, operator, value.text)
        return f"IF(DATATYPE({variable}) IN ({_DATE_IRIS}), {date}, {number})"
    if is_number(value):
        return _number_comparison(variable, operator, value.text)
    return f"STR({variable}) {operator} {quote(value.text)}"


def compare_variables(left: str, operator: Operator, right: str) -> str:
    """Write the filter expression that compares two bound literals by value."""
    numbers = f"{_DOUBLE}(STR({left})) {operator} {_DOUBLE}(STR({right}))"
    dates = f"STR({left}) {operator} STR({right})"
    return f"IF(DATATYPE({left}) IN ({_DATE_IRIS}), {dates}, {numbers})"


def text_test(variable: str, text: str, language: str | None) -> str:
    """Write the filter expression for a string that reads like this, in a language or in any."""
    same = f"STR({variable}) = {quote(text)}"
    return same if language is None else f"{same} && LCASE(LANG({variable})) = {quote(language)}"


def text_literals(text: str, language: str | None) -> tuple[Literal, ...] | None:
    """List the literals that read like this in a language; None where they cannot be listed."""
    return None if language is None else (Literal(text, language=language or None),)


def language_filter(variable: str, language: str) -> str:
    """Write the benchmarks' filter on answers: entities, and texts in a language or in none."""
    tag = f"LANG({variable})"
    return f'!ISLITERAL({variable}) || {tag} = "" || LANGMATCHES({tag}, {quote(language)})'


def equal_literals(value: Literal) -> tuple[Literal, ...]:
    """List the literals that say the same value, as a dump may have written them.

    >>> sorted({literal.text for literal in equal_literals(Literal("12.0"))})
    ['12', '12.0']
    >>> sorted({literal.text for literal in equal_literals(Literal("1980-01-01"))})
    ['1980', '1980-01', '1980-01-01', '1980-01-01T00:00:00']
    """
    literals = [Literal(value.text)]
    if is_date(value):
        for text in (value.text, *_date_forms(value.text)):
            literals += [Literal(text, datatype) for datatype in _DATE_TYPES]
    if is_number(value) or _is_bare_year(value):
        for text in (value.text, *_number_forms(value.text)):
            literals += [Literal(text, datatype) for datatype in (None, *_NUMBER_TYPES)]
    literals.append(value)
    return tuple(dict.fromkeys(literals))


def values_block(variable: str, literals: tuple[Literal, ...]) -> str:
    """Write a VALUES block that binds a variable to these literals."""
    return f"VALUES {variable} {{ {' '.join(map(sparql_term, literals))} }}"


def order_keys(variable: str, descending: bool) -> str:
    """Write ORDER BY keys that sort numbers and dates by value, and texts by their letters."""
    direction = "DESC" if descending else "ASC"
    number = f"IF(DATATYPE({variable}) IN ({_DATE_IRIS}), {_year(variable)}, STR({variable}))"
    return f"{direction}({_DOUBLE}({number})) {direction}(STR({variable}))"


def _is_bare_year(value: Literal) -> bool:
    return value.datatype is None and _YEAR.fullmatch(value.text) is not None


def _number_comparison(variable: str, operator: Operator, text: str) -> str:
    compared = f"{_DOUBLE}(STR({variable})) {operator} {_DOUBLE}({quote(text)})"
    # What is no number differs from every number.
    return f"COALESCE({compared}, true)" if operator == "!=" else compared


def _date_comparison(variable: str, operator: Operator, text: str) -> str:
    # A text that goes on where another ends is a later instant or the same one. So the shortest
    # form of a value is the least text for its instant, and the longest with a tilde the greatest.
    forms = _date_forms(text)
    least, greatest = quote(forms[-1]), quote(f"{forms[0]}~")
    written = f"STR({variable})"
    if operator in ("=", "!="):
        same = f"{written} >= {least} && {written} <= {greatest}"
        return same if operator == "=" else f"!({same})"
    if _YEAR_BCE.match(text):
        return f"<{XSD_NS}integer>({_year(variable)}) {operator} {int(text[:5])}"
    return f"{written} {operator} {least if operator in ('>=', '<') else greatest}"


def _year(variable: str) -> str:
    length = f'IF(STRSTARTS(STR({variable}), "-"), 5, 4)'
    return f"SUBSTR(STR({variable}), 1, {length})"


def _date_forms(text: str) -> list[str]:
    """Write a date's first instant in every precision that names it, the finest first."""
    text = _ZONE.sub("", text)
    missing = {4: "-01-01T00:00:00", 7: "-01T00:00:00", 10: "T00:00:00"}
    forms = [text + missing.get(len(text.removeprefix("-")), "")]
    for ending in ("T00:00:00", "-01", "-01"):
        if not forms[-1].endswith(ending):
            break
        forms.append(forms[-1].removesuffix(ending))
    return forms


def _number_forms(text: str) -> list[str]:
    """Write a number without exponent and needless zeros, and with ``.0`` where it is whole."""
    if _NUMBER.fullmatch(text) is None or abs((number := Decimal(text)).adjusted()) > 30:
        return []
    plain = f"{number:f}"
    if "." in plain:
        plain = plain.rstrip("0").removesuffix(".")
    return [plain] if "." in plain else [plain, f"{plain}.0"]
