"""Compare, equate and order literals by value, in SPARQL that means the same on every engine.

The dump types dates by precision (gYear, gYearMonth, date, dateTime) and numbers not at all, and
Oxigraph and Virtuoso disagree on comparing across those types. So a value is judged by its text,
whatever its datatype or language. What is neither number nor date passes only ``!=``.

Numbers are cast from their text. An untyped number that begins with a zero is a code, such as ISO's
012, and equals only the same text. A year compares with a number as a number; whether a short text
that is typed as a dateTime reads like a year depends on the engine, because Virtuoso completes it.

A text that Virtuoso cannot cast fails the whole query, unless an IF keeps it from the cast (``&&``
and COALESCE do not), and inside an IF Virtuoso takes ``unbound <= 1`` for true. So every cast here
is inside an IF that only numbers pass.

A date of lower precision means its first instant, so 1980 equals 1980-01-01T00:00:00. That is how
Virtuoso 7, which made the benchmarks' answers, reads them. Unlike in Virtuoso, years before the
common era come first. Years beyond 9999 are no dates. Dates are compared by their texts, which sort
alike. A time zone counts only in a comparison with a time of day in the common era other than
midnight. Then values with zones are compared by their instants in UTC, and those without are read
as if in UTC. Otherwise a date is taken as it is written, and a zone that follows no time is read as
letters, so the date is exact only to its year, month or day.
"""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from kbqa.sparql.crp import Operator
from kbqa.sparql.terms import XSD_NS, LiteralTerm, quote, sparql_term

_DATE_TYPES = ("gYear", "gYearMonth", "date", "dateTime")

# What follows a year. Engines compile patterns for each query; those without "." are the cheapest.
_DATE_REST = "[-+Z][-+0-9T:.Z]*"

_DATE_TIME = f"<{XSD_NS}dateTime>"
_DOUBLE = f"<{XSD_NS}double>"
# Virtuoso writes -044 for -0044, and some dumps hold such years as well.
_SHAPE = f"^(-?[0-9]|-)[0-9]{{3}}({_DATE_REST})?$"
_ZONED = "^[0-9][-0-9]*T[0-9:.]+[-+Z]"
_MINUTES = "(T[0-9]{2}:[0-9]{2})([-+Z])"
_DATE = re.compile(
    r"(-?\d{4}|-\d{3})(-\d\d(?:-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?)?)?(Z|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_THREE_DIGITS = re.compile(r"-\d{3}(?!\d)", re.ASCII)
_FIRST_REST = "-01-01T00:00:00"
_MIDNIGHT = "T00:00:00"
_NO_SECONDS = ":00"
# The calendar repeats after 400 years, so dates keep their distances when shifted by this much.
_ERA_SHIFT = 9600

_FRACTION_TYPES = ("decimal", "float", "double")
_NUMBER_TYPES = ("integer", "int", *_FRACTION_TYPES)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
NUMBER_SHAPE = "^[-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?$"
_NUMBER_OR_DATE = f"^[-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+|{_DATE_REST})?$"
_WHOLE = re.compile(r"[-+]?\d+", re.ASCII)
_CODE = re.compile(r"0\d+", re.ASCII)
_STRING = f"<{XSD_NS}string>"
_NO_NUMBER = "-1e308"
_LAST_TEXT = "\U0010ffff"


def is_date(value: LiteralTerm) -> bool:
    """Return whether a literal is a date, by its datatype or else by its shape.

    A bare four-digit number counts as a date: the benchmarks compare years that way.
    """
    if value.datatype is not None:
        return value.datatype in _DATE_TYPES
    return _DATE.fullmatch(value.text) is not None and _THREE_DIGITS.match(value.text) is None


def is_number(value: LiteralTerm) -> bool:
    """Return whether a literal is a number, by its datatype or else by its shape."""
    if value.datatype is not None:
        return value.datatype in _NUMBER_TYPES
    return _NUMBER.fullmatch(value.text) is not None


def comparison(variable: str, operator: Operator, value: LiteralTerm) -> str:
    """Write the filter expression that compares a variable with a value.

    A year of unknown kind is compared as what each bound literal is, a text by its letters. For
    ``=``, binding the variable to `equal_literals` is faster, because it uses the index.
    """
    if operator == "!=" and (is_date(value) or is_number(value)):
        return f"COALESCE(!({comparison(variable, '=', value)}), true)"
    if operator == "=" and _is_code(value):
        return f"STR({variable}) = {quote(value.text)}"
    if not (is_date(value) or is_number(value)):
        return f"STR({variable}) {operator} {quote(value.text)}"
    date = _date_comparison(variable, operator, value.text) if is_date(value) else "false"
    if not is_number(value):
        return date
    is_like_it = f"REGEX(STR({variable}), {quote(NUMBER_SHAPE)})"
    number = f"{_DOUBLE}(STR({variable})) {operator} {_number(value.text)}"
    return f"IF({is_like_it}, {number}, {date})"


def compare_variables(left: str, operator: Operator, right: str) -> str:
    """Write the filter expression that compares two bound literals by value.

    A date is compared with a number by its year, and time zones do not count.
    """
    if operator == "!=":
        return f"COALESCE(!({compare_variables(left, '=', right)}), true)"
    numbers = _leading_number(left), _leading_number(right)
    by_rest = f"{_first_rest(left)} {operator} {_first_rest(right)}"
    by_value = f"IF({' = '.join(numbers)}, {by_rest}, {f' {operator} '.join(numbers)})"
    return f"IF({_has_value(left)} && {_has_value(right)}, {by_value}, false)"


def text_test(variable: str, text: str, language: str | None) -> str:
    """Write the filter expression for a string; `language` is "" for no tag, None for any."""
    same = f"STR({variable}) = {quote(text)}"
    if language is None:
        return same
    if language == "":
        return f"{same} && DATATYPE({variable}) = {_STRING}"
    return f"{same} && LCASE(LANG({variable})) = {quote(language.lower())}"


def language_filter(variable: str, language: str) -> str:
    """Write the benchmarks' filter on answers: entities, and texts in a language or in none."""
    tag = f"LANG({variable})"
    return f'!ISLITERAL({variable}) || {tag} = "" || LANGMATCHES({tag}, {quote(language)})'


def equal_literals(value: LiteralTerm) -> tuple[LiteralTerm, ...]:
    """List the literals with the same value, as a dump may have written them.

    >>> sorted({literal.text for literal in equal_literals(LiteralTerm("1980"))})[:3]
    ['1980', '1980-01', '1980-01-01']
    """
    # Rare ways to write a number, such as +5, pass only `comparison`. So do texts with a language:
    # in a VALUES block with equal numbers, Virtuoso loses them, or fails.
    literals = [LiteralTerm(value.text)]
    if is_date(value):
        literals += _date_literals(value.text)
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
    """Write the keys that rank groups: by their largest or smallest value, or by their number.

    A date counts against a number as its year, and a time zone does not count. Texts are smaller
    than both and ranked by their letters. Groups with equal values rank equal, however these are
    written.
    """
    # It needs groups: of DISTINCT rows that are ordered by a variable with many values, Virtuoso
    # keeps any one. A date without a datatype is a text here, because Virtuoso fails to cast it.
    if counted:
        return (f"COUNT(DISTINCT {variable})",)
    written = f"STR({variable})"
    numeric = f"REGEX({written}, {quote(NUMBER_SHAPE)})"
    is_text = f"DATATYPE({variable}) = {_STRING}"
    has_value = f"COALESCE(IF({is_text}, {numeric}, {_has_value(variable)}), false)"
    date = f"IF({has_value}, {_date_number(variable)}, {_NO_NUMBER})"
    number = f"IF({numeric}, {_DOUBLE}({written}), {date})"
    # Equal for all groups whose best value is a number or date, so that no text of theirs counts.
    text = f"IF({has_value}, {quote(_LAST_TEXT)}, {written})"
    extreme = "MAX" if descending else "MIN"
    return f"{extreme}({number})", f"{extreme}({text})"


def number_of(variable: str) -> tuple[str, str]:
    """Write the test that a variable is a number, and the number as an ``xsd:double``."""
    is_number = f"REGEX(STR({variable}), {quote(NUMBER_SHAPE)})"
    return is_number, f"IF({is_number}, {_DOUBLE}(STR({variable})), 0)"


def order_keys(variable: str, descending: bool, *, counted: bool = False) -> str:
    """Write the ORDER BY keys that sort groups by their `rank_values`."""
    direction = "DESC" if descending else "ASC"
    ranks = rank_values(variable, descending, counted=counted)
    return " ".join(f"{direction}({rank})" for rank in ranks)


def _is_code(value: LiteralTerm) -> bool:
    """Return whether an untyped number is a code whose leading zero matters, as in ISO's 012."""
    return value.datatype is None and _CODE.fullmatch(value.text) is not None


def _has_value(variable: str) -> str:
    """Write the test for a number or date, whose `_leading_number` can be cast."""
    return f"REGEX(STR({variable}), {quote(_NUMBER_OR_DATE)})"


def _number(text: str) -> str:
    """Write a number as in SPARQL if that is sure to mean the same, else as a cast."""
    is_short = _WHOLE.fullmatch(text) is not None and len(text) < 16
    return text if is_short else f"{_DOUBLE}({quote(text)})"


def _number_forms(text: str) -> list[str]:
    """Write a number without exponent and needless zeros, and also with .0 if it is whole."""
    if _NUMBER.fullmatch(text) is None or abs((number := Decimal(text)).adjusted()) > 30:
        return []
    plain = f"{number:f}"
    if "." in plain:
        plain = plain.rstrip("0").removesuffix(".")
    return [plain] if "." in plain else [plain, f"{plain}.0"]


class _Instant(NamedTuple):
    """A date's first instant in UTC."""

    year: int  # negative before the common era
    rest: str  # the text after the year, in full: -05-04T10:30:00

    @property
    def is_day(self) -> bool:
        """Whether it is midnight, so that no zone counts."""
        return self.rest.endswith(_MIDNIGHT)

    @property
    def written_year(self) -> str:
        return f"{'-' if self.year < 0 else ''}{abs(self.year):04}"

    @property
    def text(self) -> str:
        return f"{self.written_year}{self.rest}"

    @property
    def literal(self) -> str:
        return f"{quote(f'{self.text}Z')}^^{_DATE_TIME}"


def _date_comparison(variable: str, operator: Operator, text: str) -> str:
    """Write the filter expression that compares a variable with a date; not for ``!=``."""
    written = f"STR({variable})"
    instant = _parse(text)
    if instant is None:  # a literal may be typed as a date and be none
        return f"{written} {operator} {quote(text)}"
    is_date = f"REGEX({written}, {quote(_SHAPE)})"
    if instant.year < 0:
        year, rest = _leading_number(variable), _after_year(variable)
        same_year = _compare_texts(rest, operator, _bounds(instant, without_year=True))
        # In an IF, as the cast must see nothing but dates.
        compared = f"IF({year} = {instant.year}, {same_year}, {year} {operator} {instant.year})"
        return f"IF({is_date}, {compared}, false)"
    # Texts of dates before the common era sort before all others.
    plain = _compare_texts(written, operator, _bounds(instant))
    if instant.is_day:
        return f"{is_date} && {plain}"
    in_full = f'REPLACE({written}, {quote(_MINUTES)}, "$1{_NO_SECONDS}$2")'
    zoned = f"STRDT({in_full}, {_DATE_TIME}) {operator} {instant.literal}"
    return f"{is_date} && IF(REGEX({written}, {quote(_ZONED)}), {zoned}, {plain})"


def _date_literals(text: str) -> tuple[LiteralTerm, ...]:
    """List the literals that name the same first instant, in UTC or in the text's own zone."""
    literals = [LiteralTerm(text, datatype) for datatype in (None, *_DATE_TYPES)]
    instant = _parse(text)
    if instant is not None:
        to_the_minute = instant.text.removesuffix(_NO_SECONDS)
        for form in (f"{instant.text}Z", to_the_minute, f"{to_the_minute}Z"):
            literals += [LiteralTerm(form, datatype) for datatype in (None, "dateTime")]
        # A short text typed as a dateTime is wrong, and not rare.
        for form, datatype in zip(_forms(instant.text), reversed(_DATE_TYPES), strict=False):
            literals += [
                LiteralTerm(form, datatype),
                LiteralTerm(form, "dateTime"),
                LiteralTerm(form),
            ]
    return tuple(dict.fromkeys(literals))


def _leading_number(variable: str) -> str:
    """Write the expression for a date's year, or for a number, as an ``xsd:double``."""
    # It fails for texts that are neither.
    return f'{_DOUBLE}(REPLACE(STR({variable}), "^([-+]?[0-9.]+){_DATE_REST}", "$1"))'


def _first_rest(variable: str) -> str:
    """Write the expression for what follows a date's year, completed to its first instant."""
    rest = _after_year(variable)
    return f'CONCAT({rest}, SUBSTR("{_FIRST_REST[1:]}Z", STRLEN({rest}) + 1))'


def _date_number(variable: str) -> str:
    """Write the expression for a date as an ``xsd:double`` that sorts as dates do."""
    # The year, plus the digits of what follows as a fraction: 1980-05-04T10:30:00 is
    # 1980 + 0.0504103000 - 0.0101, so that 1980-01-01 is 1980.
    digits = f'REPLACE({_first_rest(variable)}, "[-+Z][0-9:]*$|[^0-9]", "")'
    return f'{_leading_number(variable)} + {_DOUBLE}(CONCAT("0.", {digits})) - 1.01e-2'


def _after_year(variable: str) -> str:
    return f'STRAFTER(SUBSTR(STR({variable}), 2), "-")'


def _parse(text: str) -> _Instant | None:
    """Read a date's first instant; None if the text is not a date."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, rest, zone = int(match[1]), match[2] or "", match[3]
    has_time = "T" in rest
    rest += _FIRST_REST[len(rest) :]
    if zone is None or zone == "Z" or not has_time:
        return _Instant(year, rest)
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:]))
    shift = _ERA_SHIFT if year < 0 else 0
    seconds, fraction = rest[: len(_FIRST_REST)], rest[len(_FIRST_REST) :]
    try:
        local = datetime.fromisoformat(f"{year + shift:04}{seconds}")
        moved = local + offset if zone.startswith("-") else local - offset
    except (ValueError, OverflowError):
        return _Instant(year, rest)  # no day of the calendar, or one at its ends
    return _Instant(moved.year - shift, f"{moved:-%m-%dT%H:%M:%S}{fraction}")


def _forms(full: str) -> list[str]:
    """Write an instant in every precision that names it, the finest first."""
    forms = [full]
    for ending in (_MIDNIGHT, "-01", "-01"):
        if not forms[-1].endswith(ending):
            break
        forms.append(forms[-1].removesuffix(ending))
    return forms


def _bounds(instant: _Instant, *, without_year: bool = False) -> tuple[str, str]:
    """Write the first and the last, by their letters, of all texts that name an instant."""
    forms = _forms(instant.rest)
    first = forms[-1].removesuffix(_NO_SECONDS)
    last = f"{forms[0]}Z" if instant.is_day else forms[0]
    if without_year:
        return first[1:], last[1:]
    return f"{instant.written_year}{first}", f"{instant.written_year}{last}"


def _compare_texts(written: str, operator: Operator, bounds: tuple[str, str]) -> str:
    """Compare a text with all texts that name an instant."""
    first, last = map(quote, bounds)
    if operator == "=":
        return f"{written} >= {first} && {written} <= {last}"
    return f"{written} {operator} {first if operator in ('>=', '<') else last}"
