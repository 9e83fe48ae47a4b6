import pytest

from kbqa.kb.loading.dump import literal_parts


def test_a_literal_is_taken_apart() -> None:
    assert literal_parts(b"<http://rdf.freebase.com/ns/m.0abc>") is None
    assert literal_parts(rb'"\"A\" \u00e9 \\n"@en-US') == ('"A" é \\n', "en-us")
    assert literal_parts(b'"1980"^^<a:gYear>') == ("1980", None)
    assert literal_parts(b'""') == ("", None)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (rb"\t\b\n\r\f\"\'\\ \u00e9\U0001F600", "\t\b\n\r\f\"'\\ é😀"),
        (rb"\u0000\uFFFF\U00000000\U0010FFFF", "\x00\uffff\x00\U0010ffff"),
        (rb"\\u0041 \\\u0041", r"\u0041 \A"),
    ],
)
def test_escapes_are_read(escaped: bytes, text: str) -> None:
    assert literal_parts(b'"%b"' % escaped) == (text, None)
