import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbqa.kb.dump import dump_size_bytes, read_blocks
from kbqa.sparql.errors import DumpError, InputError

LINE = b"<http://rdf.freebase.com/ns/m.0%d>\t<a:p>\t<a:o>\t.\n"
TEXT = b"".join(LINE % number for number in range(50_000))


def lines_of(dump: Path | str) -> list[bytes]:
    return [line for block in read_blocks(str(dump)) for line in block.lines]


@pytest.mark.parametrize(
    "pack",
    [
        pytest.param(bytes, id="plain"),
        pytest.param(gzip.compress, id="gzip"),
        pytest.param(
            lambda text: gzip.compress(text[:999]) + gzip.compress(text[999:]), id="gzips"
        ),
        pytest.param(bz2.compress, id="bzip2"),
        pytest.param(lzma.compress, id="xz"),
    ],
)
def test_every_compression_gives_the_same_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(TEXT)
    dump = tmp_path / "dump"
    dump.write_bytes(packed)
    assert b"".join(lines_of(dump)) == TEXT

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert b"".join(lines_of("-")) == TEXT


def test_blocks_say_where_they_stand(tmp_path: Path) -> None:
    dump = tmp_path / "dump.gz"
    dump.write_bytes(gzip.compress(TEXT))
    blocks = list(read_blocks(str(dump)))
    assert len(blocks) > 1
    expected = 1
    for block in blocks:
        assert block.first_line == expected
        expected += len(block.lines)
    assert blocks[-1].bytes_read == dump.stat().st_size == dump_size_bytes(str(dump))


def test_a_last_line_without_end_is_read(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(TEXT.rstrip(b"\n"))
    assert lines_of(dump)[-1] == (LINE % 49_999).rstrip(b"\n")


def test_a_carriage_return_does_not_end_a_line(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(b'<a:s>\t<a:p>\t"one\rtwo"\t.\n<a:s>\t<a:p>\t<a:o>\t.\n')
    assert len(lines_of(dump)) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"<!DOCTYPE html>\n<html>\n", "line 1: .*web page", id="HTML"),
        pytest.param(b'{"id": 1}\n', "line 1: .*JSON", id="JSON"),
        pytest.param(b'<?xml version="1.0"?>\n<rdf:RDF>\n', "line 1: .*XML", id="RDF/XML"),
        pytest.param(
            b"\n# old\n@prefix ns: <a:b> .\nns:a\tns:b\tns:c.\n", "line 3: .*Turtle", id="Turtle"
        ),
        pytest.param(
            b"/m/0abc\t/people/person/name\tx\n", "line 1: not N-Triples", id="quads of 2012"
        ),
        pytest.param(b"\x28\xb5\x2f\xfd1234", "zstd -dc", id="Zstandard"),
        pytest.param(b"PK\x03\x04zip", "archive", id="zip"),
        pytest.param(gzip.compress(TEXT)[:-9999], "damaged or cut short after line", id="cut gzip"),
        pytest.param(bz2.compress(TEXT)[:-99], "damaged or cut short", id="cut bzip2"),
        pytest.param(lzma.compress(TEXT)[:-99], "damaged or cut short", id="cut xz"),
        pytest.param(b"\x1f\x8b\x08\x00not gzip at all", "damaged or cut short", id="bad gzip"),
    ],
)
def test_what_is_no_dump_is_refused_with_advice(
    tmp_path: Path, content: bytes, message: str
) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(content)
    with pytest.raises(DumpError, match=message) as caught:
        lines_of(dump)
    assert str(dump) in str(caught.value)


def test_a_missing_dump_is_a_wrong_argument(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dump at"):
        lines_of(tmp_path / "nothing.gz")
    with pytest.raises(InputError, match="is a folder"):
        lines_of(tmp_path)
