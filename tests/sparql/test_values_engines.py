"""Comparing, equating and ordering values on real engines, against an oracle without SPARQL."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from pyoxigraph import RdfFormat, Store

from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.sparql.crp import Operator
from kbqa.sparql.terms import FREEBASE_NS, LiteralTerm, sparql_term
from kbqa.sparql.values import (
    compare_variables,
    comparison,
    equal_literals,
    is_number,
    language_filter,
    order_keys,
    text_test,
    values_block,
)
from tools.graph_servers import MissingServer, oxigraph_server, virtuoso_server

# Every datatype that a text is to be tried with; "-" is none, "@…" a language.
TABLE = """
1980 gYear dateTime - integer
1980-01 gYearMonth dateTime -
1980-01-01 date dateTime -
1980-01-01T00:00:00 dateTime -
1980-01-01T00:00:00Z dateTime -
1980-01-01-08:00 date -
1980-08:00 gYear
1980Z gYear
1980-05-08:00 gYearMonth
1980-05-04 date dateTime -
1980-05-04T10:30:00+01:00 dateTime
1980-05-04T10:30:00.5 dateTime
1980-12-31 date dateTime
1980-12-31T23:30:00-08:00 dateTime
1981-01-01T01:00:00+14:00 dateTime
1981 gYear -
2012-02-29T23:00:00-05:00 dateTime
2012-03-01 date
1999-04-12T20:30:00Z dateTime
1999-04-12T20:30 dateTime -
1999-04-12T20:30Z dateTime
1999-04-12T20:30-07:00 dateTime -
1999-04-12T21:00 dateTime -
T21:00 dateTime
1980-05-04T00:00 dateTime
0001 gYear
0001-01-01 date
0999-05-05 date
-0001-12-31 date
-0043-03-15 date
-0044 gYear dateTime -
-0044-03 gYearMonth
-0044-03-15 date dateTime -
-0044-03-15T12:00:00 dateTime
-0044-03-15T12:00:00-08:00 dateTime
-0100 gYear
-0912 gYear
-912 dateTime
17 - integer
12 - integer float decimal double
12.0 - float
12.5 - float decimal
0012 -
1.2e1 -
-3 - integer
+5 -
2695867 -
abc - @en @en-GB
Abc @EN
true - boolean
10:30:00 time
1980 @en
1980-and-on -
"""

CONSTANTS = [
    LiteralTerm("1980"),
    LiteralTerm("1980", "dateTime"),
    LiteralTerm("1980-01-01", "dateTime"),
    LiteralTerm("1980-01-01-08:00", "date"),
    LiteralTerm("1980-05-04", "date"),
    LiteralTerm("1980-05-04T09:30:00Z", "dateTime"),
    LiteralTerm("1980-12-31"),
    LiteralTerm("1981-01-01T07:30:00", "dateTime"),
    LiteralTerm("2012-03-01T04:00:00", "dateTime"),
    LiteralTerm("1999-04-12T20:30", "dateTime"),
    LiteralTerm("1999-04-12T20:30"),
    LiteralTerm("1999-04-12T20:30Z", "dateTime"),
    LiteralTerm("1999-04-12T21:00:00", "dateTime"),
    LiteralTerm("1999-04-12T20:30-07:00", "dateTime"),
    LiteralTerm("1999-04-12T20:30:30", "dateTime"),
    LiteralTerm("0001", "gYear"),
    LiteralTerm("-0044"),
    LiteralTerm("-0044-03", "gYearMonth"),
    LiteralTerm("-0044-03-15", "dateTime"),
    LiteralTerm("-0044-03-15T20:00:00Z", "dateTime"),
    LiteralTerm("-912", "dateTime"),
    LiteralTerm("12"),
    LiteralTerm("12.5", "float"),
    LiteralTerm("1980", "integer"),
    LiteralTerm("-3"),
]

COMPARE: dict[Operator, Callable[[object, object], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,  # type: ignore[operator]
    "<=": lambda left, right: left <= right,  # type: ignore[operator]
    ">": lambda left, right: left > right,  # type: ignore[operator]
    ">=": lambda left, right: left >= right,  # type: ignore[operator]
}

DATE = re.compile(r"(-?\d{3,})(?:-(\d\d))?(?:-(\d\d))?(?:T([\d:]+)(\.\d+)?)?(Z|[-+]\d\d:\d\d)?")
ZONED_DAY = re.compile(r"(\d{4}(?:-\d\d){0,2})(Z|[-+]\d\d:\d\d)")
DATE_TYPES = ("gYear", "gYearMonth", "date", "dateTime")


def read_table() -> Iterator[LiteralTerm]:
    for line in TABLE.split("\n"):
        text, *kinds = line.split() or [""]
        for kind in kinds:
            if kind.startswith("@"):
                yield LiteralTerm(text, language=kind[1:])
            else:
                yield LiteralTerm(text, None if kind == "-" else kind)


VALUES = list(read_table())
ENTITY = len(VALUES)
"""The place of an entity among the values: no number, date or text."""


class Oracle(NamedTuple):
    """What a literal reads like: an instant in seconds, a number, either or neither."""

    date: Fraction | None
    number: float | None

    @classmethod
    def of(cls, literal: LiteralTerm, *, zoned: bool = False) -> "Oracle":
        """Read a literal, with the zone of its time only where zones count."""
        reads_so = re.match(r"(-?\d|-)\d{3}(-\d\d|[-+Z]|$)", literal.text)
        return cls(_instant(literal.text, zoned) if reads_so else None, _number(literal.text))

    def with_year(self, literal: LiteralTerm) -> "Oracle":
        """Let a date count as the number of its year."""
        year = DATE.fullmatch(literal.text) if self.date is not None else None
        return self if year is None else Oracle(self.date, float(year[1]))

    def holds(self, operator: Operator, other: "Oracle", *, by_kind: bool) -> bool:
        """Compare as dates where both are, else as numbers where `by_kind` lets the kind differ."""
        compared = COMPARE[operator]
        if self.date is not None and other.date is not None:
            return compared(self.date, other.date)
        if by_kind and self.number is not None and other.number is not None:
            return compared(self.number, other.number)
        return operator == "!="


def _instant(text: str, zoned: bool) -> Fraction | None:
    if (match := DATE.fullmatch(text)) is None:
        return None
    year, month, day, time, fraction, zone = match.groups()
    if not zoned or time is None:
        zone = None
    # The calendar repeats after 400 years.
    start = datetime.fromisoformat(
        f"{int(year) + 4000:04}-{month or '01'}-{day or '01'}T{time or '00:00:00'}"
    )
    if zone not in (None, "Z"):
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:]))
        start += offset if zone[0] == "-" else -offset
    seconds = (start - datetime.min) // timedelta(seconds=1)
    return seconds + Fraction(fraction or "0")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def expected(operator: Operator, constant: LiteralTerm) -> set[int]:
    other = Oracle.of(constant, zoned=True)
    of_unknown_kind = constant.datatype is None and other.number is not None
    if constant.datatype == "integer" or other.date is None:
        as_numbers = [Oracle(None, Oracle.of(value).number) for value in VALUES]
        return places(as_numbers, operator, Oracle(None, other.number), by_kind=True)
    is_day = other.date % (24 * 60 * 60) == 0
    zoned = not is_day and not constant.text.startswith("-")
    oracles = [Oracle.of(value, zoned=zoned) for value in VALUES]
    return places(oracles, operator, other, by_kind=of_unknown_kind)


def undecided(constant: LiteralTerm) -> set[int]:
    """List the values that may be on either side of a constant.

    Engines differ on numbers and short texts that are typed as dateTimes, which Virtuoso completes.
    A zone that follows no time is read as letters: it counts where all before it is the same.
    """
    among_numbers = constant.datatype == "integer" or Oracle.of(constant).date is None
    start = constant.text + "-01-01"[len(constant.text) - 4 :]
    return {
        at
        for at, value in enumerate(VALUES)
        if (among_numbers and value.datatype == "dateTime" and "-" not in value.text[1:])
        or ((zoned := ZONED_DAY.fullmatch(value.text)) and start.startswith(zoned[1]))
    }


def places(oracles: list[Oracle], operator: Operator, other: Oracle, *, by_kind: bool) -> set[int]:
    found = {at for at, o in enumerate(oracles) if o.holds(operator, other, by_kind=by_kind)}
    return found | {ENTITY} if operator == "!=" else found


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("values") / "values.nt"
    lines = [
        f"<{FREEBASE_NS}v{at}> <{FREEBASE_NS}value> {sparql_term(value)} .\n"
        for at, value in enumerate(VALUES)
    ]
    lines.append(f"<{FREEBASE_NS}v{ENTITY}> <{FREEBASE_NS}value> <{FREEBASE_NS}m.0a> .\n")
    has = f"<{FREEBASE_NS}all> <{FREEBASE_NS}has>"
    lines += [f"{has} <{FREEBASE_NS}v{at}> .\n" for at in range(ENTITY + 1)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


Find = Callable[[str], list[int]]


@pytest.fixture(scope="module", params=["embedded", "oxigraph", "virtuoso"])
def find(
    request: pytest.FixtureRequest, dump: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Find]:
    """Run a query's ``?x`` and give back the places of its rows in `VALUES`."""
    if request.param == "embedded":
        store = Store()
        store.load(path=dump, format=RdfFormat.N_TRIPLES)
        yield lambda query: [_at(row["x"].value) for row in store.query(query)]  # type: ignore[union-attr,index]
        return
    if request.param == "oxigraph":
        location = tmp_path_factory.mktemp("values") / "store"
        Store(location).bulk_load(path=dump, format=RdfFormat.N_TRIPLES)
        server = oxigraph_server(location)
    else:
        server = virtuoso_server([dump])
    with ExitStack() as stack:
        try:
            graph = SparqlEndpoint(stack.enter_context(server))
        except MissingServer as error:
            pytest.skip(str(error))
        yield lambda query: [_at(str(row[0])) for row in graph.select(query).rows]


def _at(resource: str) -> int:
    return int(resource.removeprefix(FREEBASE_NS).removeprefix("v"))


def where(find: Find, body: str) -> set[int]:
    return set(find(f"SELECT ?x WHERE {{ {body} }}"))


def named(found: set[int]) -> set[str]:
    return {sparql_term([*VALUES, "m.0a"][at]) + f" [{at}]" for at in found}


# Joined, as in real queries: Virtuoso then fails at casts that it gets over elsewhere.
TRIPLE = f"<{FREEBASE_NS}all> <{FREEBASE_NS}has> ?x . ?x <{FREEBASE_NS}value> ?v ."


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda value: f"{value.text}^{value.datatype}")
def test_comparison(find: Find, constant: LiteralTerm) -> None:
    for operator in COMPARE:
        found = where(find, f"{TRIPLE} FILTER ({comparison('?v', operator, constant)})")
        right = expected(operator, constant)
        assert named(found - undecided(constant)) == named(right - undecided(constant)), operator


@pytest.mark.parametrize(
    "constant",
    # Of other zones equality finds none, so none is asked for.
    [one for one in CONSTANTS if "T" not in one.text],
    ids=lambda value: f"{value.text}^{value.datatype}",
)
def test_equality_from_the_index(find: Find, constant: LiteralTerm) -> None:
    found = where(find, f"{values_block('?v', equal_literals(constant))} {TRIPLE}")
    right = expected("=", constant)
    assert named(found) <= named(right | undecided(constant))
    usual = {at for at in right - undecided(constant) if _is_usual(VALUES[at], constant)}
    assert named(found) >= named(usual)


def _is_usual(literal: LiteralTerm, constant: LiteralTerm) -> bool:
    """Leave out what only a comparison finds: odd spellings, and a year that equals a number."""
    odd = literal.text in ("0012", "1.2e1", "-912", "-0912", "1980Z", "1980-08:00")
    # A date is not looked for among typed numbers, nor a typed number among years.
    is_year = (constant.datatype == "integer" and literal.datatype == "gYear") or (
        not is_number(constant) and literal.datatype == "integer"
    )
    return literal.language is None and not odd and not is_year


@pytest.mark.parametrize("operator", COMPARE)
def test_comparison_of_two_values(find: Find, operator: Operator) -> None:
    oracles = [Oracle.of(value).with_year(value) for value in VALUES]
    for at, value in enumerate(VALUES):
        if value.text not in ("1980", "1980-05-04", "-0044-03", "-0001-12-31", "12", "abc"):
            continue
        test = compare_variables("?v", operator, "?w")
        other = f"<{FREEBASE_NS}v{at}> <{FREEBASE_NS}value> ?w ."
        found = where(find, f"{TRIPLE} {other} FILTER ({test})")
        right = places(oracles, operator, oracles[at], by_kind=True)
        either = undecided(value)
        assert named(found - either) == named(right - either), sparql_term(value)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", ["date", "number"])
def test_order(find: Find, kind: str, descending: bool) -> None:
    def key(at: int) -> Fraction | float:
        said = Oracle.of(VALUES[at])
        value = said.date if kind == "date" else said.number
        assert value is not None
        return value

    def belongs(value: LiteralTerm) -> bool:
        if kind == "date":
            is_date = value.datatype in DATE_TYPES and Oracle.of(value).date is not None
            return is_date and not ZONED_DAY.fullmatch(value.text)
        return value.datatype not in DATE_TYPES and Oracle.of(value).number is not None

    ordered = [at for at, value in enumerate(VALUES) if belongs(value)]
    nodes = " ".join(f"<{FREEBASE_NS}v{at}>" for at in ordered)
    by = f"GROUP BY ?x ORDER BY {order_keys('?v', descending)} ?x"
    query = f"SELECT ?x WHERE {{ VALUES ?x {{ {nodes} }} {TRIPLE} }} {by}"
    found = find(query)
    assert sorted(found) == ordered
    assert [key(at) for at in found] == sorted(map(key, ordered), reverse=descending)
    assert find(f"{query} LIMIT 3") == found[:3]


@pytest.mark.parametrize("descending", [False, True])
def test_order_of_what_has_several_values(find: Find, descending: bool) -> None:
    """Each ?x has two of the values; it is ranked by the larger, or smaller, one."""
    at = {value.text: place for place, value in enumerate(VALUES) if value.datatype is None}
    given = [at[text] for text in ("17", "-3", "12.5", "2695867")]
    pairs = list(pairwise(given))
    rows = " ".join(
        f"(<{FREEBASE_NS}v{one}> {sparql_term(VALUES[value])})"
        for one, other in pairs
        for value in (one, other)
    )
    by = f"GROUP BY ?x ORDER BY {order_keys('?v', descending)} ASC(STR(?x)) LIMIT 2"
    extreme = max if descending else min

    def rank(pair: tuple[int, int]) -> Fraction | float:
        numbers = [Oracle.of(VALUES[place]).number for place in pair]
        return extreme(number for number in numbers if number is not None)

    ranked = sorted(pairs, key=lambda pair: (rank(pair) * (-1 if descending else 1), f"v{pair[0]}"))
    found = find(f"SELECT ?x WHERE {{ VALUES (?x ?v) {{ {rows} }} }} {by}")
    assert found == [one for one, _ in ranked[:2]]


DAY, YEAR, MONTH, TIME = "date", "gYear", "gYearMonth", "dateTime"


@pytest.mark.parametrize(
    ("descending", "groups"),
    [
        pytest.param(
            True,
            [
                [("1980-05-04", DAY)],
                [("1980-01-01", DAY), ("unknown", "@en")],
            ],
            id="a date and a text against a later date",
        ),
        pytest.param(
            True,
            [
                [("-0043", YEAR)],
                [("-0044-07", MONTH)],
                [("-0044-03-15", DAY), ("-0100-12-31", DAY)],
            ],
            id="dates before the common era",
        ),
        pytest.param(
            False,
            [
                [("-0100-12-31", DAY), ("-0044-03-15", DAY)],
                [("-0044-03-16", DAY)],
                [("0001", YEAR)],
                [("1980-05-04", DAY)],
                [("1980-05-04T10:30:00", TIME)],
                [("1980-05-04T10:30:00.5+01:00", TIME)],
                [("1980-05-04T10:30:01-14:00", TIME)],
            ],
            id="dates across the eras, to the second",
        ),
        pytest.param(
            True,
            [[("5", None)], [("5.0", None), ("abc", "@en")], [("5", "integer"), ("-7", None)]],
            id="equal numbers, by id",
        ),
        pytest.param(
            True,
            [[("1980-01-01", DAY)], [("1980", YEAR)], [("1980-01-01T00:00:00", TIME)]],
            id="equal dates, by id",
        ),
        pytest.param(
            False,
            [[("1980-01-01", DAY)], [("1980", YEAR)], [("1980-01", MONTH), ("1980-02", MONTH)]],
            id="equal dates, by id, the smallest first",
        ),
        pytest.param(
            True,
            [
                [("9", None), ("10", None)],
                [("9.5", None)],
                [("-1e2", None), ("zebra", None)],
                [("apple", "@en"), ("pear", "@en")],
                [("orange", None)],
            ],
            id="numbers before texts",
        ),
        pytest.param(
            False,
            [
                [("apple", "@en"), ("0", None)],
                [("apple", "@en"), ("pear", "@en")],
                [("\U0001f600", None), ("-9", None)],
                [("-8", None)],
            ],
            id="texts before numbers, the smallest first",
        ),
    ],
)
def test_a_superlative_does_not_mix_the_values_of_an_answer(
    find: Find, descending: bool, groups: list[list[tuple[str, str | None]]]
) -> None:
    rows = []
    for at, group in enumerate(groups):
        for text, kind in group:
            tag = kind[1:] if kind is not None and kind.startswith("@") else None
            value = LiteralTerm(text, None if tag else kind, tag)
            rows.append(f"(<{FREEBASE_NS}v{at}> {sparql_term(value)})")
    by = f"GROUP BY ?x ORDER BY {order_keys('?v', descending)} ASC(STR(?x))"
    found = find(f"SELECT ?x WHERE {{ VALUES (?x ?v) {{ {' '.join(rows)} }} }} {by}")
    assert found == list(range(len(groups)))


@pytest.mark.parametrize(
    ("text", "language", "right"),
    [
        ("abc", None, ['"abc"', '"abc"@en', '"abc"@en-GB']),
        ("abc", "", ['"abc"']),
        ("abc", "EN", ['"abc"@en']),
        ("abc", "en-gb", ['"abc"@en-GB']),
        ("Abc", "en", ['"Abc"@EN']),
        ("1980-05-04", "", ['"1980-05-04"']),
        ("nothing", "en", []),
    ],
)
def test_texts(find: Find, text: str, language: str | None, right: list[str]) -> None:
    found = where(find, f"{TRIPLE} FILTER ({text_test('?v', text, language)})")
    assert sorted(sparql_term(VALUES[at]) for at in found) == right
    if language is not None:
        literal = LiteralTerm(text, language=language or None)
        assert where(find, f"{values_block('?v', (literal,))} {TRIPLE}") == found


def test_language_filter(find: Find) -> None:
    found = where(find, f"{TRIPLE} FILTER ({language_filter('?v', 'en')})")
    assert found == {*range(len(VALUES)), ENTITY}
    found = where(find, f"{TRIPLE} FILTER ({language_filter('?v', 'de')})")
    assert found == {at for at, value in enumerate(VALUES) if value.language is None} | {ENTITY}
