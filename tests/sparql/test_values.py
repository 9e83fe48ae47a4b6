import pytest

from kbqa.sparql.terms import Literal
from kbqa.sparql.values import comparison, equal_literals, is_date, is_number, values_block


@pytest.mark.parametrize(
    ("literal", "date", "number"),
    [
        (Literal("1980"), True, True),
        (Literal("1980-05"), True, False),
        (Literal("1980-05-04"), True, False),
        (Literal("1980-05-04T10:00:00Z"), True, False),
        (Literal("1883-08:00"), True, False),
        (Literal("-0410"), True, True),
        (Literal("12"), False, True),
        (Literal("-1.5e3"), False, True),
        (Literal(".5"), False, True),
        (Literal("١٩٨٠"), False, False),
        (Literal("twelve"), False, False),
        (Literal("80-05-04"), False, False),
        (Literal("1980", "gYear"), True, False),
        (Literal("1980", "integer"), False, True),
        (Literal("1980", "string"), False, False),
        (Literal("T00:00", "dateTime"), True, False),
    ],
    ids=str,
)
def test_what_a_literal_is(literal: Literal, date: bool, number: bool) -> None:
    assert (is_date(literal), is_number(literal)) == (date, number)


@pytest.mark.parametrize(
    ("literal", "texts"),
    [
        (
            Literal("1980-01"),
            "1980 1980-01 1980-01-01 1980-01-01T00:00:00 1980-01-01T00:00:00Z",
        ),
        (Literal("1980-12-01"), "1980-12 1980-12-01 1980-12-01T00:00:00 1980-12-01T00:00:00Z"),
        (Literal("1980-12-31"), "1980-12-31 1980-12-31T00:00:00 1980-12-31T00:00:00Z"),
        (Literal("1980-12-31T10:00:00"), "1980-12-31T10:00:00 1980-12-31T10:00:00Z"),
        (
            Literal("1968-03-29-08:00", "date"),
            "1968-03-29-08:00 1968-03-29T00:00:00Z 1968-03-29T00:00:00 1968-03-29",
        ),
        (
            Literal("1981-01-01T02:30:00.5+02:30", "dateTime"),
            "1981-01-01T02:30:00.5+02:30 1981-01-01T00:00:00.5 1981-01-01T00:00:00.5Z",
        ),
        (
            Literal("1981-01-01T02:30:00+02:30", "dateTime"),
            "1981-01-01T02:30:00+02:30 1981-01-01T00:00:00Z "
            "1981-01-01T00:00:00 1981-01-01 1981-01 1981",
        ),
        (
            Literal("-0044-03-01-14:00", "date"),
            "-0044-03-01-14:00 -0044-03-01T00:00:00Z -0044-03-01T00:00:00 -0044-03-01 -0044-03",
        ),
        (Literal("1980-02-31Z"), "1980-02-31Z 1980-02-31T00:00:00Z 1980-02-31T00:00:00 1980-02-31"),
        (
            Literal("1980-02-31+01:00"),
            "1980-02-31+01:00 1980-02-31T00:00:00Z 1980-02-31T00:00:00 1980-02-31",
        ),
        (Literal("-0044-03"), "-0044-03 -0044-03-01 -0044-03-01T00:00:00 -0044-03-01T00:00:00Z"),
        (
            Literal("-912", "gYear"),
            "-912 -0912 -0912-01 -0912-01-01 -0912-01-01T00:00:00 -0912-01-01T00:00:00Z",
        ),
        (Literal("T00:00", "dateTime"), "T00:00"),
        (Literal("007"), "007"),
        (Literal("007", "integer"), "007 7 7.0"),
        (Literal("2.50"), "2.50 2.5"),
        (Literal("100"), "100 100.0"),
        (Literal("-1.5e3"), "-1.5e3 -1500 -1500.0"),
        (Literal("1e999999999"), "1e999999999"),
        (Literal("nan", "float"), "nan"),
        (Literal("twelve"), "twelve"),
    ],
    ids=str,
)
def test_equal_literals(literal: Literal, texts: str) -> None:
    equal = equal_literals(literal)
    assert {one.text for one in equal} == set(texts.split())
    assert Literal(literal.text) in equal
    assert literal in equal
    assert len(set(equal)) == len(equal)


def test_a_bare_year_equals_dates_and_numbers() -> None:
    datatypes = {literal.datatype for literal in equal_literals(Literal("1980"))}
    assert datatypes >= {None, "gYear", "dateTime", "integer", "float"}
    assert "gYear" not in {one.datatype for one in equal_literals(Literal("1980", "integer"))}


def test_comparisons_are_short_enough_to_read() -> None:
    assert comparison("?v", "<", Literal("2004-03-26")) == (
        'REGEX(STR(?v), "^(-?[0-9]|-)[0-9]{3}([-+Z][-+0-9T:.Z]*)?$") && STR(?v) < "2004-03-26"'
    )
    assert comparison("?v", ">=", Literal("50000")) == (
        'IF(REGEX(STR(?v), "^[-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?$"), '
        "<http://www.w3.org/2001/XMLSchema#double>(STR(?v)) >= 50000, false)"
    )


def test_values_block() -> None:
    block = values_block("?b1", (Literal('a "b"'), Literal("c", language="en")))
    assert block == 'VALUES ?b1 { "a \\"b\\"" "c"@en }'
