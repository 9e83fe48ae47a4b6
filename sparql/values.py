"""Compare, equate and order the dump's literals by value, in SPARQL that every engine reads alike.

The dump types dates by precision (gYear, gYearMonth, date, dateTime) and numbers not at all, and
Oxigraph and Virtuoso disagree on comparing across those types; `kbqa.sparql.dates` says how dates
compare. A number is what reads like one and is typed as no date but a year: numbers are cast from
their text, and a year compares with a number as one. Dates compare with dates only. What is neither
passes no comparison but ``!=``. An untyped number that begins with a zero is a code, as ISO's 012
is, and equals only what reads the same.

Virtuoso fails the whole query at a text that it cannot cast, unless an IF keeps the cast from it
(``&&`` and COALESCE do not), and inside IF takes ``unbound <= 1`` for true. So every cast here
stands in an IF that lets only numbers through.
"""

import re
from decimal import Decimal

from kbqa.sparql.crp import Operator
from kbqa.sparql.dates import (
    DATE_IRIS,
    DATE_TYPES,
    compare_dates,
    date_comparison,
    date_literals,
    date_order_keys,
    date_test,
    has_date_shape,
)
from kbqa.sparql.terms import XSD_NS, Literal, quote, sparql_term

_FRACTION_TYPES = ("decimal", "float", "double")
_NUMBER_TYPES = ("integer", "int", *_FRACTION_TYPES)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_NUMBER_SHAPE = "^[-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?$"
_WHOLE = re.compile(r"[-+]?\d+", re.ASCII)
_CODE = re.compile(r"0\d+", re.ASCII)
_DOUBLE = f"<{XSD_NS}double>"
_STRING = f"<{XSD_NS}string>"
# Without this, 1980 typed as a dateTime would be a number where an engine keeps its text as it is.
_NO_NUMBERS = ", ".join(f"<{XSD_NS}{name}>" for name in DATE_TYPES if name != "gYear")


def is_date(value: Literal) -> bool:
    """Tell whether a literal is a date, by its datatype or else by its shape.

    A bare four-digit number counts as a date: the benchmarks compare years that way.

    >>> is_date(Literal("2010-12-31")), is_date(Literal("17")), is_date(Literal("1980", "float"))
    (True, False, False)
    """
    if value.datatype is not None:
        return value.datatype in DATE_TYPES
    return has_date_shape(value.text)


def is_number(value: Literal) -> bool:
    """Tell whether a literal is a number, by its datatype or else by its shape."""
    if value.datatype is not None:
        return value.datatype in _NUMBER_TYPES
    return _NUMBER.fullmatch(value.text) is not None


def comparison(variable: str, operator: Operator, value: Literal) -> str:
    """Write the filter expression that compares a variable with a value.

    What is no value of the same kind passes ``!=`` alone. Where the variable can be bound by
    `equal_literals`, that serves ``=`` from the index.

    Args:
        variable: With its question mark.
        operator: Read with the variable on its left.
        value: A date; a number; a year of unknown kind, which is compared as the kind that each
            bound literal has; or a text, which is compared by its letters.
    """
    if operator == "!=" and (is_date(value) or is_number(value)):
        return f"COALESCE(!({comparison(variable, '=', value)}), true)"
    if operator == "=" and _is_code(value):
        return f"STR({variable}) = {quote(value.text)}"
    number = f"{_number(variable)} {operator} {_DOUBLE}({quote(value.text)})"
    number = f"IF({_number_test(variable)}, {number}, false)"
    if is_date(value):
        date = date_comparison(variable, operator, value.text)
        return f"IF({date_test(variable)}, {date}, {number if is_number(value) else 'false'})"
    return number if is_number(value) else f"STR({variable}) {operator} {quote(value.text)}"


def compare_variables(left: str, operator: Operator, right: str) -> str:
    """Write the filter expression that compares two bound literals by value.

    Two dates are compared as dates. All else is compared as numbers, so also a year with a number.
    """
    if operator == "!=":
        return f"COALESCE(!({compare_variables(left, '=', right)}), true)"
    dates = f"{date_test(left)} && {date_test(right)}"
    numbers = f"{_number_test(left)} && {_number_test(right)}"
    number = f"IF({numbers}, {_number(left)} {operator} {_number(right)}, false)"
    return f"IF({dates}, {compare_dates(left, operator, right)}, {number})"


def text_test(variable: str, text: str, language: str | None) -> str:
    """Write the filter expression for a string that reads exactly like this.

    Args:
        variable: With its question mark.
        text: What the string reads.
        language: Its language tag in any case; ``""`` for a string without one, None for any
            literal that reads so.
    """
    same = f"STR({variable}) = {quote(text)}"
    if language is None:
        return same
    if language == "":
        return f"{same} && DATATYPE({variable}) = {_STRING}"
    return f"{same} && LCASE(LANG({variable})) = {quote(language.lower())}"


def text_literals(text: str, language: str | None) -> tuple[Literal, ...] | None:
    """List the literals that `text_test` holds for; None where they cannot be listed."""
    return None if language is None else (Literal(text, language=language or None),)


def language_filter(variable: str, language: str) -> str:
    """Write the benchmarks' filter on answers: entities, and texts in a language or in none."""
    tag = f"LANG({variable})"
    return f'!ISLITERAL({variable}) || {tag} = "" || LANGMATCHES({tag}, {quote(language)})'


def equal_literals(value: Literal) -> tuple[Literal, ...]:
    """List the literals that say the same value, as a dump may have written them.

    >>> sorted({literal.text for literal in equal_literals(Literal("12.0"))})
    ['12', '12.0']
    >>> sorted({literal.text for literal in equal_literals(Literal("1980"))})[:3]
    ['1980', '1980-01', '1980-01-01']
    """
    literals = [Literal(value.text)]
    if is_date(value):
        literals += date_literals(value.text)
    if is_number(value):
        forms = [] if _is_code(value) else _number_forms(value.text)
        for text in (value.text, *forms):
            # Virtuoso reads "12.5" typed as an integer as 12.
            datatypes = _NUMBER_TYPES if _WHOLE.fullmatch(text) else _FRACTION_TYPES
            literals += [Literal(text, datatype) for datatype in (None, *datatypes)]
    literals.append(value)
    return tuple(dict.fromkeys(literals))


def values_block(variable: str, literals: tuple[Literal, ...]) -> str:
    """Write a VALUES block that binds a variable to these literals."""
    return f"VALUES {variable} {{ {' '.join(map(sparql_term, literals))} }}"


def order_keys(variable: str, descending: bool) -> str:
    """Write ORDER BY keys that sort groups by their largest or smallest value.

    Numbers and dates are sorted by value, texts by their letters. It takes groups: of DISTINCT rows
    that are ordered by a variable of many values, Virtuoso keeps any one.
    """
    direction, extreme = ("DESC", "MAX") if descending else ("ASC", "MIN")
    era, instant = date_order_keys(variable)
    # Only what is typed as a date: among other numbers, 1980 is a number. Texts come before both.
    number = f'IF({_number_test(variable)}, {_number(variable)}, {_DOUBLE}("-INF"))'
    dated = f"DATATYPE({variable}) IN ({DATE_IRIS})"
    first = f"IF({dated}, {era}, {number})"
    second = f"IF({dated}, {instant}, STR({variable}))"
    return " ".join(f"{direction}({extreme}({key}))" for key in (first, second))


def _is_code(value: Literal) -> bool:
    """Tell whether an untyped number is more than its value, as the zeros of ISO's 012 are."""
    return value.datatype is None and _CODE.fullmatch(value.text) is not None


def _number_test(variable: str) -> str:
    """Write the expression that tells a number, by its text; see `_NO_NUMBERS`."""
    written = f'IF(DATATYPE({variable}) IN ({_NO_NUMBERS}), "", STR({variable}))'
    return f"REGEX({written}, {quote(_NUMBER_SHAPE)})"


def _number(variable: str) -> str:
    return f"{_DOUBLE}(STR({variable}))"


def _number_forms(text: str) -> list[str]:
    """Write a number without exponent and needless zeros, and with ``.0`` where it is whole."""
    if _NUMBER.fullmatch(text) is None or abs((number := Decimal(text)).adjusted()) > 30:
        return []
    plain = f"{number:f}"
    if "." in plain:
        plain = plain.rstrip("0").removesuffix(".")
    return [plain] if "." in plain else [plain, f"{plain}.0"]
