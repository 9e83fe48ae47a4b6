"""Compare, equate and order the dump's literals by value, in SPARQL that every engine reads alike.

The dump types dates by precision (gYear, gYearMonth, date, dateTime) and numbers not at all, and
Oxigraph and Virtuoso disagree on comparing across those types. So a value is judged by its text,
whatever its datatype or language; `kbqa.sparql.compiler.dates` describes how dates compare. Numbers
are cast from their text, and a year compares with a number as a number. Whether a short text that
is typed as a dateTime reads like a year depends on the engine, because Virtuoso completes it. A
value that is neither passes only ``!=``. An untyped number that begins with a zero is a code, such
as ISO's 012, and equals only the same text.

A text that Virtuoso cannot cast fails the whole query, unless an IF keeps it from the cast (``&&``
and COALESCE do not), and inside an IF Virtuoso takes ``unbound <= 1`` for true. So every cast here
is inside an IF that only numbers pass.
"""

import re
from decimal import Decimal

from kbqa.sparql.compiler.dates import (
    DATE_REST,
    DATE_TYPES,
    date_comparison,
    date_literals,
    date_number,
    first_rest,
    has_date_shape,
    leading_number,
)
from kbqa.sparql.crp import Operator
from kbqa.sparql.terms import XSD_NS, LiteralTerm, quote, sparql_term

_FRACTION_TYPES = ("decimal", "float", "double")
_NUMBER_TYPES = ("integer", "int", *_FRACTION_TYPES)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_NUMBER_SHAPE = "^[-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?$"
_NUMBER_OR_DATE = f"^[-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+|{DATE_REST})?$"
_WHOLE = re.compile(r"[-+]?\d+", re.ASCII)
_CODE = re.compile(r"0\d+", re.ASCII)
_DOUBLE = f"<{XSD_NS}double>"
_STRING = f"<{XSD_NS}string>"
_NO_NUMBER = "-1e308"
_LAST_TEXT = "\U0010ffff"


def is_date(value: LiteralTerm) -> bool:
    """Return whether a literal is a date, by its datatype or else by its shape.

    A bare four-digit number counts as a date: the benchmarks compare years that way.

    >>> [is_date(LiteralTerm(text)) for text in ("2010-12-31", "17")]
    [True, False]
    >>> is_date(LiteralTerm("1980", "float"))
    False
    """
    if value.datatype is not None:
        return value.datatype in DATE_TYPES
    return has_date_shape(value.text)


def is_number(value: LiteralTerm) -> bool:
    """Return whether a literal is a number, by its datatype or else by its shape."""
    if value.datatype is not None:
        return value.datatype in _NUMBER_TYPES
    return _NUMBER.fullmatch(value.text) is not None


def comparison(variable: str, operator: Operator, value: LiteralTerm) -> str:
    """Write the filter expression that compares a variable with a value.

    A value of another kind passes only ``!=``. If `equal_literals` can bind the variable, that is
    faster for ``=``, because it uses the index.

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
        text: The text of the string.
        language: Its language tag in any case; ``""`` for a string without one, None for any
            literal with this text.
    """
    same = f"STR({variable}) = {quote(text)}"
    if language is None:
        return same
    if language == "":
        return f"{same} && DATATYPE({variable}) = {_STRING}"
    return f"{same} && LCASE(LANG({variable})) = {quote(language.lower())}"


def text_literals(text: str, language: str | None) -> tuple[LiteralTerm, ...] | None:
    """List the literals that pass `text_test`; None if they cannot be listed."""
    return None if language is None else (LiteralTerm(text, language=language or None),)


def language_filter(variable: str, language: str) -> str:
    """Write the benchmarks' filter on answers: entities, and texts in a language or in none."""
    tag = f"LANG({variable})"
    return f'!ISLITERAL({variable}) || {tag} = "" || LANGMATCHES({tag}, {quote(language)})'


def equal_literals(value: LiteralTerm) -> tuple[LiteralTerm, ...]:
    """List the literals with the same value, as a dump may have written them.

    Rare ways to write a number, such as ``+5``, and texts with a language, pass only `comparison`.
    In a VALUES block beside equal numbers, Virtuoso loses a text with a language, or fails.

    >>> sorted({literal.text for literal in equal_literals(LiteralTerm("12.0"))})
    ['12', '12.0']
    >>> sorted({literal.text for literal in equal_literals(LiteralTerm("1980"))})[:3]
    ['1980', '1980-01', '1980-01-01']
    """
    literals = [LiteralTerm(value.text)]
    if is_date(value):
        literals += date_literals(value.text)
    if is_number(value):
        forms = [] if _is_code(value) else _number_forms(value.text)
        for text in (value.text, *forms):
            # Virtuoso reads "12.5" typed as an integer as 12.
            datatypes = _NUMBER_TYPES if _WHOLE.fullmatch(text) else _FRACTION_TYPES
            literals += [LiteralTerm(text, datatype) for datatype in (None, *datatypes)]
    literals.append(value)
    return tuple(dict.fromkeys(literals))


def values_block(variable: str, literals: tuple[LiteralTerm, ...]) -> str:
    """Write a VALUES block that binds a variable to these literals."""
    return f"VALUES {variable} {{ {' '.join(map(sparql_term, literals))} }}"


def rank_values(variable: str, descending: bool, *, counted: bool = False) -> tuple[str, ...]:
    """Write the values that rank groups, the first first: by their largest or smallest value.

    Numbers and dates are ranked by value, each value by one key: a date counts against a number as
    its year, and a time zone does not count. Texts are smaller than both and ranked by their
    letters. A date without a datatype is a text here, because Virtuoso fails to cast it. Groups
    with equal values rank equal, however the values are written.

    It needs groups: of DISTINCT rows that are ordered by a variable with many values, Virtuoso
    keeps any one.

    Args:
        variable: With its question mark.
        descending: Rank by the largest value of a group, not by the smallest.
        counted: Rank by the number of values instead.
    """
    if counted:
        return (f"COUNT(DISTINCT {variable})",)
    written = f"STR({variable})"
    numeric = f"REGEX({written}, {quote(_NUMBER_SHAPE)})"
    is_text = f"DATATYPE({variable}) = {_STRING}"
    has_value = f"COALESCE(IF({is_text}, {numeric}, {_has_value(variable)}), false)"
    date = f"IF({has_value}, {date_number(variable)}, {_NO_NUMBER})"
    number = f"IF({numeric}, {_DOUBLE}({written}), {date})"
    # Equal for all groups whose best value is a number or date, so that no text of theirs counts.
    text = f"IF({has_value}, {quote(_LAST_TEXT)}, {written})"
    extreme = "MAX" if descending else "MIN"
    return f"{extreme}({number})", f"{extreme}({text})"


def order_keys(variable: str, descending: bool, *, counted: bool = False) -> str:
    """Write the ORDER BY keys that sort groups by their `rank_values`."""
    direction = "DESC" if descending else "ASC"
    ranks = rank_values(variable, descending, counted=counted)
    return " ".join(f"{direction}({rank})" for rank in ranks)


def _is_code(value: LiteralTerm) -> bool:
    """Return whether an untyped number is a code: its leading zero matters, as in ISO's 012."""
    return value.datatype is None and _CODE.fullmatch(value.text) is not None


def _has_value(variable: str) -> str:
    """Write the test for a number or date, whose `leading_number` can be cast."""
    return f"REGEX(STR({variable}), {quote(_NUMBER_OR_DATE)})"


def _number(text: str) -> str:
    """Write a number as in SPARQL if that is sure to mean the same, else as a cast."""
    is_short = _WHOLE.fullmatch(text) is not None and len(text) < 16
    return text if is_short else f"{_DOUBLE}({quote(text)})"


def _number_forms(text: str) -> list[str]:
    """Write a number without exponent and needless zeros, and also with ``.0`` if it is whole."""
    if _NUMBER.fullmatch(text) is None or abs((number := Decimal(text)).adjusted()) > 30:
        return []
    plain = f"{number:f}"
    if "." in plain:
        plain = plain.rstrip("0").removesuffix(".")
    return [plain] if "." in plain else [plain, f"{plain}.0"]
