import re

import pytest

from kbqa.sparql.terms import LiteralTerm
from kbqa.sparql.values import comparison, equal_literals, is_date, is_number, values_block


@pytest.mark.parametrize(
    ("literal", "date", "number"),
    [
        (LiteralTerm("1980"), True, True),
        (LiteralTerm("1980-05"), True, False),
        (LiteralTerm("1980-05-04"), True, False),
        (LiteralTerm("1980-05-04T10:00:00Z"), True, False),
        (LiteralTerm("1883-08:00"), True, False),
        (LiteralTerm("-0410"), True, True),
        (LiteralTerm("12"), False, True),
        (LiteralTerm("-1.5e3"), False, True),
        (LiteralTerm(".5"), False, True),
        (LiteralTerm("١٩٨٠"), False, False),
        (LiteralTerm("twelve"), False, False),
        (LiteralTerm("80-05-04"), False, False),
        (LiteralTerm("1980", "gYear"), True, False),
        (LiteralTerm("1980", "integer"), False, True),
        (LiteralTerm("1980", "string"), False, False),
        (LiteralTerm("T00:00", "dateTime"), True, False),
    ],
    ids=str,
)
def test_what_a_literal_is(literal: LiteralTerm, date: bool, number: bool) -> None:
    assert (is_date(literal), is_number(literal)) == (date, number)


@pytest.mark.parametrize(
    ("literal", "texts"),
    [
        (
            LiteralTerm("1980-01"),
            "1980 1980-01 1980-01-01 1980-01-01T00:00:00 1980-01-01T00:00:00Z",
        ),
        (LiteralTerm("1980-12-01"), "1980-12 1980-12-01 1980-12-01T00:00:00 1980-12-01T00:00:00Z"),
        (LiteralTerm("1980-12-31"), "1980-12-31 1980-12-31T00:00:00 1980-12-31T00:00:00Z"),
        (LiteralTerm("1980-12-31T10:00:00"), "1980-12-31T10:00:00 1980-12-31T10:00:00Z"),
        (
            LiteralTerm("1968-03-29-08:00", "date"),
            "1968-03-29-08:00 1968-03-29T00:00:00Z 1968-03-29T00:00:00 1968-03-29",
        ),
        (
            LiteralTerm("1981-01-01T02:30:00.5+02:30", "dateTime"),
            "1981-01-01T02:30:00.5+02:30 1981-01-01T00:00:00.5 1981-01-01T00:00:00.5Z",
        ),
        (
            LiteralTerm("1981-01-01T02:30:00+02:30", "dateTime"),
            "1981-01-01T02:30:00+02:30 1981-01-01T00:00:00Z "
            "1981-01-01T00:00:00 1981-01-01 1981-01 1981",
        ),
        (
            LiteralTerm("-0044-03-01-14:00", "date"),
            "-0044-03-01-14:00 -0044-03-01T00:00:00Z -0044-03-01T00:00:00 -0044-03-01 -0044-03",
        ),
        (
            LiteralTerm("1980-02-31Z"),
            "1980-02-31Z 1980-02-31T00:00:00Z 1980-02-31T00:00:00 1980-02-31",
        ),
        (
            LiteralTerm("1980-02-31+01:00"),
            "1980-02-31+01:00 1980-02-31T00:00:00Z 1980-02-31T00:00:00 1980-02-31",
        ),
        (
            LiteralTerm("-0044-03"),
            "-0044-03 -0044-03-01 -0044-03-01T00:00:00 -0044-03-01T00:00:00Z",
        ),
        (
            LiteralTerm("-912", "gYear"),
            "-912 -0912 -0912-01 -0912-01-01 -0912-01-01T00:00:00 -0912-01-01T00:00:00Z",
        ),
        (LiteralTerm("T00:00", "dateTime"), "T00:00"),
        (LiteralTerm("007"), "007"),
        (LiteralTerm("007", "integer"), "007 7 7.0"),
        (LiteralTerm("2.50"), "2.50 2.5"),
        (LiteralTerm("100"), "100 100.0"),
        (LiteralTerm("1999-04-12T21:00"), "1999-04-12T21:00:00 1999-04-12T21:00:00Z"),
        (LiteralTerm("-1.5e3"), "-1.5e3 -1500 -1500.0"),
        (LiteralTerm("1e999999999"), "1e999999999"),
        (LiteralTerm("nan", "float"), "nan"),
        (LiteralTerm("twelve"), "twelve"),
    ],
    ids=str,
)
def test_equal_literals(literal: LiteralTerm, texts: str) -> None:
    equal = equal_literals(literal)
    to_the_second = [text for text in texts.split() if re.search(r"T\d\d:\d\d:00Z?$", text)]
    to_the_minute = {re.sub(r":00(Z?)$", r"\1", text) for text in to_the_second}
    assert {one.text for one in equal} == set(texts.split()) | to_the_minute
    assert LiteralTerm(literal.text) in equal
    assert literal in equal
    assert len(set(equal)) == len(equal)


def test_a_bare_year_equals_dates_and_numbers() -> None:
    datatypes = {literal.datatype for literal in equal_literals(LiteralTerm("1980"))}
    assert datatypes >= {None, "gYear", "dateTime", "integer", "float"}
    assert "gYear" not in {one.datatype for one in equal_literals(LiteralTerm("1980", "integer"))}


def test_comparisons_are_short_enough_to_read() -> None:
    assert comparison("?v", "<", LiteralTerm("2004-03-26")) == (
        'REGEX(STR(?v), "^(-?[0-9]|-)[0-9]{3}([-+Z][-+0-9T:.Z]*)?$") && STR(?v) < "2004-03-26"'
    )
    assert comparison("?v", ">=", LiteralTerm("50000")) == (
        'IF(REGEX(STR(?v), "^[-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?$"), '
        "<http://www.w3.org/2001/XMLSchema#double>(STR(?v)) >= 50000, false)"
    )


def test_a_code_is_compared_by_its_letters() -> None:
    assert comparison("?v", "=", LiteralTerm("012")) == 'STR(?v) = "012"'
    assert comparison("?v", "!=", LiteralTerm("012")) == 'COALESCE(!(STR(?v) = "012"), true)'
    assert "(STR(?v)) < 012" in comparison("?v", "<", LiteralTerm("012"))


def test_values_block() -> None:
    block = values_block("?b1", (LiteralTerm('a "b"'), LiteralTerm("c", language="en")))
    assert block == 'VALUES ?b1 { "a \\"b\\"" "c"@en }'
