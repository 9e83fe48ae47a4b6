"""Compare the dump's dates by the instant at which they begin, in SPARQL that every engine reads.

A date of lower precision stands for its first instant, and so 1980 equals 1980-01-01T00:00:00. That
is how Virtuoso 7, which made the benchmarks' answers, reads them. A date with a time zone stands
for its instant in UTC, one without a zone is read as if in UTC. Beyond Virtuoso, which puts years
before the common era after all others, those come first. Years beyond 9999 are not told apart.

Engines disagree on comparing values of these datatypes, and Virtuoso gives up a query at the first
text that it cannot cast. So dates are compared as texts, which sort like what they say; only those
with a zone become ``xsd:dateTime`` by STRDT, which no text makes fail.
"""

import re
from datetime import datetime, timedelta
from typing import NamedTuple

from kbqa.sparql.crp import Operator
from kbqa.sparql.terms import XSD_NS, Literal, quote

DATE_TYPES = ("gYear", "gYearMonth", "date", "dateTime")

DATE_IRIS = ", ".join(f"<{XSD_NS}{name}>" for name in DATE_TYPES)
_DATE_TIME = f"<{XSD_NS}dateTime>"
_STRING = f"<{XSD_NS}string>"
# What an untyped text must look like to count as a date.
_SHAPE = "^-?[0-9]{4}(-[0-9]{2}){0,2}(T|Z|[-+][0-9]{2}:|$)"
# Engines prepare patterns anew for each query. Short ones that begin with ^ cost the least.
_BEFORE_ZONE = "^([-0-9T:.]+?)"
_ZONE = "(Z|[-+][0-9]+:[0-9]+)"
_DAY = "^(-?[0-9]+-[0-9]{2}-[0-9]{2})"
# Virtuoso writes -044 for -0044, and some dumps hold such years as well.
_DATE = re.compile(
    r"(-?\d{4}|-\d{3})(-\d\d(?:-\d\d(?:T\d\d:\d\d:\d\d(?:\.\d+)?)?)?)?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_FIRST_REST = "-01-01T00:00:00"
# The calendar repeats after 400 years, so that dates keep their distances when moved so far.
_ERA_SHIFT = 9600


class _Instant(NamedTuple):
    """A date's first instant in UTC.

    Attributes:
        year: Negative before the common era.
        rest: Its text after the year, in full: ``-05-04T10:30:00``.
    """

    year: int
    rest: str

    @property
    def text(self) -> str:
        return f"{'-' if self.year < 0 else ''}{abs(self.year):04}{self.rest}"

    @property
    def literal(self) -> str:
        return f"{quote(f'{self.text}Z')}^^{_DATE_TIME}"


def has_date_shape(text: str) -> bool:
    """Tell whether a text without a datatype reads like a date.

    >>> has_date_shape("1980-05"), has_date_shape("80-05"), has_date_shape("2695867")
    (True, False, False)
    """
    return re.match(_SHAPE, text) is not None and _DATE.fullmatch(text) is not None


def date_test(variable: str) -> str:
    """Write the filter expression for a literal that is typed as a date, or reads like one."""
    written = f"STR({variable})"
    return (
        f"IF(DATATYPE({variable}) = {_STRING}, REGEX({written}, {quote(_SHAPE)}), "
        f"DATATYPE({variable}) IN ({DATE_IRIS}))"
    )


def date_comparison(variable: str, operator: Operator, text: str) -> str:
    """Write the filter expression that compares a variable that is a date with a date.

    Args:
        variable: What `date_test` holds for; of others the comparison says nothing.
        operator: Read with the variable on its left; not ``!=``.
        text: A date in any precision, with or without a zone; else the letters are compared.
    """
    written = f"STR({variable})"
    instant = _parse(text)
    if instant is None:
        return f"{written} {operator} {quote(text)}"
    if instant.year < 0:
        return _compare_before(written, operator, instant)
    # Texts of before the common era come before all others, in whatever zone.
    zoned = f"{_instant(written)} {operator} {instant.literal}"
    least, greatest = _forms(instant.text)[-1], instant.text
    plain = _compare_texts(written, operator, least, greatest)
    return f'IF({_has_zone(written)} && !STRSTARTS({written}, "-"), {zoned}, {plain})'


def compare_dates(left: str, operator: Operator, right: str) -> str:
    """Write the filter expression that compares two variables that are dates."""
    left, right = f"STR({left})", f"STR({right})"
    same_era = f'STRSTARTS({left}, "-") = STRSTARTS({right}, "-")'
    first, second = (_instant(_with_four_digits(written)) for written in (left, right))
    return f"IF({same_era}, {first} {operator} {second}, {left} {operator} {right})"


def date_literals(text: str) -> tuple[Literal, ...]:
    """List the literals that name the same first instant, as a dump may have written them.

    Of other zones than UTC only the text's own is listed.

    >>> sorted({literal.text for literal in date_literals("1980-01-01")})[:3]
    ['1980', '1980-01', '1980-01-01']
    """
    literals = [Literal(text, datatype) for datatype in (None, *DATE_TYPES)]
    instant = _parse(text)
    if instant is not None:
        literals += [Literal(f"{instant.text}Z", datatype) for datatype in (None, "dateTime")]
        # A short text typed as a dateTime is wrong, and not rare.
        for form, datatype in zip(_forms(instant.text), reversed(DATE_TYPES), strict=False):
            literals += [Literal(form, datatype), Literal(form, "dateTime"), Literal(form)]
    return tuple(dict.fromkeys(literals))


def date_order_keys(variable: str) -> list[str]:
    """Write what sorts dates: those before the common era by year, then all by instant."""
    written = f"STR({variable})"
    return [
        f'IF(STRSTARTS({written}, "-"), -{_year_before(written)}, 0)',
        _instant(_with_four_digits(written)),
    ]


def _parse(text: str) -> _Instant | None:
    """Read a date's first instant; None where the text is no date."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, rest, zone = int(match[1]), match[2] or "", match[3]
    rest += _FIRST_REST[len(rest) :]
    if zone is None or zone == "Z":
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
    for ending in ("T00:00:00", "-01", "-01"):
        if not forms[-1].endswith(ending):
            break
        forms.append(forms[-1].removesuffix(ending))
    return forms


def _instant(written: str) -> str:
    """Write the expression for the ``xsd:dateTime`` in UTC at which a written date begins."""
    # A zone is added where there is none, and a whole first instant put before it; then what is
    # too much of that is taken out.
    padded = f'REPLACE(CONCAT({written}, "Z"), "{_BEFORE_ZONE}{_ZONE}Z?$", "$1{_FIRST_REST}$2")'
    cut = f'REPLACE({padded}, "{_DAY}[-0-9]*(T[0-9:.]+)({_FIRST_REST})?", "$1$2")'
    return f"STRDT({cut}, {_DATE_TIME})"


def _has_zone(written: str) -> str:
    """Write the expression that tells whether a written date ends in a time zone."""
    sign = f"SUBSTR({written}, STRLEN({written}) - 5, 1)"
    return f'(STRENDS({written}, "Z") || CONTAINS({written}, ":") && {sign} IN ("+", "-"))'


def _with_four_digits(written: str) -> str:
    """Write the expression for a date whose year may lack its fourth digit, as -044 does."""
    return f'REPLACE({written}, "^-([0-9]{{3}}(-|$))", "-0$1")'


def _year_before(written: str) -> str:
    """Write the expression for the year of a date before the common era, as a positive number."""
    return f'<{XSD_NS}integer>(STRBEFORE(CONCAT(SUBSTR({written}, 2), "-"), "-"))'


def _compare_texts(written: str, operator: Operator, least: str, greatest: str) -> str:
    """Compare a text with all texts that name an instant, from the shortest to the longest."""
    if operator == "=":
        return f"{written} >= {quote(least)} && {written} <= {quote(greatest)}"
    return f"{written} {operator} {quote(least if operator in ('>=', '<') else greatest)}"


def _compare_before(written: str, operator: Operator, instant: _Instant) -> str:
    """Compare with a date before the common era: by the year, then by the text that follows it."""
    year, other = _year_before(written), -instant.year
    rest = f'STRAFTER(SUBSTR({written}, 2), "-")'
    least, greatest = _forms(instant.rest)[-1][1:], instant.rest[1:]
    same_year = _compare_texts(rest, operator, least, greatest)
    if operator == "=":
        plain = f"{year} = {other} && {same_year}"
    else:
        plain = f"IF({year} = {other}, {same_year}, {other} {operator} {year})"
    zoned = f"{_instant(_with_four_digits(written))} {operator} {instant.literal}"
    among = f"IF({_has_zone(written)}, {zoned}, {plain})"
    otherwise = "true" if operator in (">", ">=") else "false"
    return f'IF(STRSTARTS({written}, "-"), {among}, {otherwise})'
