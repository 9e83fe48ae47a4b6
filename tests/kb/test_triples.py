import pytest

from kbqa.kb.triples import literal_parts, parse_line, reject_reason, resource_name

SUBJECT = b"<http://rdf.freebase.com/ns/m.0abc>"
PREDICATE = b"<http://rdf.freebase.com/ns/type.object.name>"


def line(object_: bytes, separator: bytes = b"\t", end: bytes = b"\t.\n") -> bytes:
    return SUBJECT + separator + PREDICATE + separator + object_ + end


@pytest.mark.parametrize(
    "object_",
    [
        pytest.param(b"<http://rdf.freebase.com/ns/m.0xyz>", id="resource"),
        pytest.param(b'"Kenya"@en', id="language"),
        pytest.param(b'"1980"^^<http://www.w3.org/2001/XMLSchema#gYear>', id="datatype"),
        pytest.param(b'"1.73"', id="plain"),
        pytest.param(b'""', id="empty text"),
        pytest.param(rb'"say \"hi\"\n"@en', id="escapes"),
        pytest.param(rb'"\u00e9\U0001F600"', id="unicode escapes"),
        pytest.param('"Beyoncé <3 > \u0085"@pt-BR'.encode(), id="brackets in text"),
        pytest.param(b'"raw\rreturn"', id="carriage return in text"),
    ],
)
@pytest.mark.parametrize(
    ("separator", "end"),
    [
        pytest.param(b"\t", b"\t.\n", id="tabs"),
        pytest.param(b" ", b" .\n", id="blanks"),
        pytest.param(b"    ", b"  .\r\n", id="runs of blanks, CRLF"),
        pytest.param(b"\t", b".", id="glued dot, no end of line"),
    ],
)
def test_a_triple_is_read_in_the_bytes_of_the_dump(
    object_: bytes, separator: bytes, end: bytes
) -> None:
    assert parse_line(line(object_, separator, end)) == (SUBJECT, PREDICATE, object_)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(b"\n", "blank line or comment", id="blank"),
        pytest.param(b"# note\n", "blank line or comment", id="comment"),
        pytest.param(line(b'"a\xff"'), "not UTF-8", id="bad UTF-8"),
        pytest.param(line(b'"a"', end=b"\n"), "no final dot", id="no dot"),
        pytest.param(line(rb'"Webov\xfd"@cs'), "bad escape", id="Python's escape"),
        pytest.param(line(rb'"\ud800"'), "bad escape", id="lone surrogate"),
        pytest.param(line(b""), "empty object", id="empty object"),
        pytest.param(line(b'"a" "b"'), "not a triple", id="four terms"),
        pytest.param(b'"a"\t<a:b>\t<a:c>\t.\n', "not a triple", id="literal subject"),
        pytest.param(line(b"4.5"), "not a triple", id="bare number"),
        pytest.param(line(b'"a"@zh_TW'), "not a triple", id="bad language tag"),
        pytest.param(line(b'"open'), "not a triple", id="unterminated"),
        pytest.param(line(b"<>"), "not a triple", id="empty IRI"),
        pytest.param(line(b"<a:b><a:c>"), "not a triple", id="two IRIs in one field"),
    ],
)
def test_a_line_that_is_no_triple_has_a_reason(text: bytes, reason: str) -> None:
    # UTF-8 is checked by the caller, block by block.
    if reason != "not UTF-8":
        assert parse_line(text) is None
    assert reject_reason(text) == reason


def test_terms_are_taken_apart() -> None:
    assert resource_name(SUBJECT) == "m.0abc"
    assert resource_name(b"<http://www.w3.org/2002/07/owl#inverseOf>") is None
    assert literal_parts(SUBJECT) is None
    assert literal_parts(rb'"\"A\" \u00e9 \\n"@en-US') == ('"A" é \\n', "en-US")
    assert literal_parts(b'"1980"^^<a:gYear>') == ("1980", None)
