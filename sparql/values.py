"""Compare, equate and order the dump's literals by value, in SPARQL that every engine reads alike.

The dump types dates by precision (gYear, gYearMonth, date, dateTime) and numbers not at all, and
Oxigraph and Virtuoso disagree on comparing across those types. So a value is what it reads like,
whatever its datatype or language; `kbqa.sparql.dates` says how dates compare. Numbers are cast from
their text, and a year compares with a number as one; but whether a short text that is typed as a
dateTime reads like a year depends on the engine, as Virtuoso completes it. What is neither passes
no comparison but ``!=``. An untyped number that begins with a zero is a code, as ISO's 012 is, and
equals only what reads the same.

Virtuoso fails the whole query at a text that it cannot cast, unless an IF keeps the cast from it
(``&&`` and COALESCE do not), and inside IF takes ``unbound <= 1`` for true. So every cast here
stands in an IF that lets only numbers through.
"""

import re
from decimal import Decimal

from kbqa.sparql.crp import Operator
from kbqa.sparql.dates import (
    DATE_REST,
    DATE_TYPES,
    date_comparison,
    date_literals,
    first_rest,
    has_date_shape,
    leading_number,
)
from kbqa.sparql.terms import XSD_NS, Literal, quote, sparql_term

_FRACTION_TYPES = ("decimal", "float", "double")
_NUMBER_TYPES = ("integer", "int", *_FRACTION_TYPES)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_NUMBER_SHAPE = "^[-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?$"
_NUMBER_OR_DATE = f"^[-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+|{DATE_REST})?$"
_WHOLE = re.compile(r"[-+]?\d+", re.ASCII)
_CODE = re.compile(r"0\d+", re.ASCII)
_DOUBLE = f"<{XSD_NS}double>"
_STRING = f"<{XSD_NS}string>"


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
    if not (is_date(value) or is_number(value)):
        return f"STR({variable}) {operator} {quote(value.text)}"
    date = date_comparison(variable, operator, value.text) if is_date(value) else "false"
    if not is_number(value):
        return date
    is_like_it = f"REGEX(STR({variable}), {quote(_NUMBER_SHAPE)})"
    number = f"{_DOUBLE}(STR({variable})) {operator} {_number(value.text)}"
    return f"IF({is_like_it}, {number}, {date})"


def compare_variables(left: str, operator: Operator, right: str) -> str:
    """Write the filter expression that compares two bound literals by value.

    A date compares with a number by its year. Time zones do not count.
    """
    if operator == "!=":
        return f"COALESCE(!({compare_variables(left, '=', right)}), true)"
    numbers = leading_number(left), leading_number(right)
    by_rest = f"{first_rest(left)} {operator} {first_rest(right)}"
    by_value = f"IF({' = '.join(numbers)}, {by_rest}, {f' {operator} '.join(numbers)})"
    return f"IF({_has_value(left)} && {_has_value(right)}, {by_value}, false)"


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

    Numbers are sorted by value; what is typed as a date, by its year and then as it is written.
    Texts come before both, sorted by their letters. It takes groups: of DISTINCT rows that are
    ordered by a variable of many values, Virtuoso keeps any one.
    """
    direction, extreme = ("DESC", "MAX") if descending else ("ASC", "MIN")
    # As a cast to a number fails for it, a text that reads like a date is a text here.
    typed = f'COALESCE(IF(DATATYPE({variable}) = {_STRING}, "", STR({variable})), "")'
    numeric = f"REGEX(STR({variable}), {quote(_NUMBER_SHAPE)})"
    dated = f"REGEX({typed}, {quote(_NUMBER_OR_DATE)})"
    number = f"IF({numeric} || {dated}, {leading_number(variable)}, -1e308)"
    return " ".join(f"{direction}({extreme}({key}))" for key in (number, f"STR({variable})"))


def _is_code(value: Literal) -> bool:
    """Tell whether an untyped number is more than its value, as the zeros of ISO's 012 are."""
    return value.datatype is None and _CODE.fullmatch(value.text) is not None


def _has_value(variable: str) -> str:
    """Write the expression that tells a number or a date, whose `leading_number` can be cast."""
    return f"REGEX(STR({variable}), {quote(_NUMBER_OR_DATE)})"


def _number(text: str) -> str:
    """Write a number as SPARQL does, where that is sure to mean the same."""
    is_short = _WHOLE.fullmatch(text) is not None and len(text) < 16
    return text if is_short else f"{_DOUBLE}({quote(text)})"


def _number_forms(text: str) -> list[str]:
    """Write a number without exponent and needless zeros, and with ``.0`` where it is whole."""
    if _NUMBER.fullmatch(text) is None or abs((number := Decimal(text)).adjusted()) > 30:
        return []
    plain = f"{number:f}"
    if "." in plain:
        plain = plain.rstrip("0").removesuffix(".")
    return [plain] if "." in plain else [plain, f"{plain}.0"]
