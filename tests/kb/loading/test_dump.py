import bz2
import gzip
import hashlib
import io
import lzma
import re
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from kbqa.kb.loading.dump import BLOCK_BYTES, Block, DumpReader, dump_size_bytes
from kbqa.sparql.errors import DumpError, InputError

LINE = b"<http://rdf.freebase.com/ns/m.0%d>\t<a:p>\t<a:o>\t.\n"
TEXT = b"".join(LINE % number for number in range(50_000))


def blocks_of(
    dump: Path, block_bytes: int = BLOCK_BYTES, skip_bytes: int = 0, skip_lines: int = 0
) -> list[Block]:
    with closing(DumpReader(str(dump))) as reader:
        blocks = reader.blocks(
            block_bytes=block_bytes, skip_bytes=skip_bytes, skip_lines=skip_lines
        )
        return list(blocks)


def lines_in(block: Block) -> list[bytes]:
    return io.BytesIO(block.data).readlines()


def lines_of(dump: Path) -> list[bytes]:
    return [line for block in blocks_of(dump) for line in lines_in(block)]


def in_two(pack: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda text: pack(text[:999]) + pack(text[999:])


def zstd_long(text: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    # Its size is not told in advance, so that the frame states the whole window.
    return compressor.compress(text) + compressor.flush()


def zstd_checked(text: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(text)


SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00size"
PACKED = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "gzips": in_two(gzip.compress)(TEXT),
    "padded gzip": gzip.compress(TEXT) + bytes(512),
    "bzip2": bz2.compress(TEXT),
    "bzip2s": in_two(bz2.compress)(TEXT),
    "xz": lzma.compress(TEXT),
    "padded xzs": lzma.compress(TEXT[:999]) + bytes(8) + lzma.compress(TEXT[999:]),
    "Zstandard": zstandard.compress(TEXT),
    "Zstandards": in_two(zstandard.compress)(TEXT),
    "Zstandard with a long window": zstd_long(TEXT),
    "Zstandard with a skippable frame": SKIPPABLE + zstandard.compress(TEXT),
}
SMALL_BYTES = 1 << 18


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_every_compression_gives_the_same_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bytes
) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(packed)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    for name in (str(dump), "-"):
        with closing(DumpReader(name)) as reader:
            assert b"".join(block.data for block in reader.blocks()) == TEXT
            assert reader.sha256 == hashlib.sha256(packed).hexdigest()
            assert reader.size_bytes == len(packed)


def test_blocks_say_where_they_stand(tmp_path: Path) -> None:
    dump = tmp_path / "dump.gz"
    dump.write_bytes(gzip.compress(TEXT))
    blocks = blocks_of(dump, SMALL_BYTES)
    assert len(blocks) == len(TEXT) // SMALL_BYTES + 1
    line, end = 1, 0
    for block in blocks:
        assert block.first_line == line
        line += len(lines_in(block))
        end += len(block.data)
        assert block.end == end
        assert block.data.endswith(b"\n")
        assert len(block.data) < SMALL_BYTES + len(LINE)
    assert blocks[-1].bytes_read == dump.stat().st_size == dump_size_bytes(str(dump))
    with closing(DumpReader(str(dump))) as reader:
        [whole] = reader.blocks()
    assert (whole.first_line, whole.data, whole.end) == (1, TEXT, len(TEXT))


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_reading_resumes_after_any_block(tmp_path: Path, packed: bytes) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(packed)
    blocks = blocks_of(dump, SMALL_BYTES)
    for index, block in enumerate(blocks):
        next_line = block.first_line + len(lines_in(block))
        with closing(DumpReader(str(dump))) as reader:
            rest = reader.blocks(
                block_bytes=SMALL_BYTES, skip_bytes=block.end, skip_lines=next_line - 1
            )
            assert [(b.first_line, b.end) for b in rest] == [
                (b.first_line, b.end) for b in blocks[index + 1 :]
            ]
            assert reader.sha256 == hashlib.sha256(packed).hexdigest()


def test_a_dump_that_became_shorter_is_another_dump(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(TEXT)
    with pytest.raises(DumpError, match=r"ends 1 bytes before .* it changed since"):
        blocks_of(dump, skip_bytes=len(TEXT) + 1, skip_lines=50_000)


def test_a_block_ends_with_a_line_however_long(tmp_path: Path) -> None:
    long_line = b'<a:s>\t<a:p>\t"' + b"x" * 3_000_000 + b'"\t.\n'
    dump = tmp_path / "dump"
    dump.write_bytes(LINE % 1 + long_line + LINE % 2)
    blocks = blocks_of(dump, 1000)
    assert [lines_in(block) for block in blocks] == [[LINE % 1, long_line], [LINE % 2]]


@pytest.mark.parametrize(("size", "lines"), [(-1, [1, 1, 1]), (0, [1, 1, 1]), (1, [2, 1])])
def test_a_block_ends_with_the_line_that_reaches_its_size(
    tmp_path: Path, size: int, lines: list[int]
) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(b"".join(LINE % number for number in range(3)))
    blocks = blocks_of(dump, len(LINE % 0) + size)
    assert [len(lines_in(block)) for block in blocks] == lines


def test_what_has_no_lines_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    dump = tmp_path / "dump.zst"
    dump.write_bytes(zstandard.compress(LINE % 1 + bytes(100 << 20)))
    with pytest.raises(DumpError, match="line 2: no line ends here"):
        lines_of(dump)


def test_a_reader_given_up_leaves_no_thread(tmp_path: Path) -> None:
    dump = tmp_path / "dump.gz"
    dump.write_bytes(gzip.compress(TEXT))
    before = threading.active_count()
    with closing(DumpReader(str(dump))) as reader:
        next(reader.blocks(block_bytes=1000))
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'ns:m.02\tns:type.object.name\t"x"@en.', id="Turtle of 2012"),
        pytest.param(b'<http://rdf.freebase.com/ns/m.0a>   <a:p>   "x" .', id="runs of spaces"),
        pytest.param(b"<a:s>\t<http://rdf.freebase.com/ns/a.p>\t<a:o>", id="no final dot"),
        pytest.param(b"@prefix ns: <http://rdf.freebase.com/ns/>.", id="prefixes alone"),
    ],
)
def test_a_dump_of_repairable_lines_is_not_refused(tmp_path: Path, line: bytes) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(b"\n# a comment\n" + line + b"\n")
    assert len(lines_of(dump)) == 3


def test_a_last_line_without_end_is_read(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(TEXT.rstrip(b"\n"))
    assert lines_of(dump)[-1] == (LINE % 49_999).rstrip(b"\n")


def test_a_carriage_return_does_not_end_a_line(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(b'<a:s>\t<a:p>\t"one\rtwo"\t.\n' + LINE % 1)
    assert len(lines_of(dump)) == 2


TURTLE = b"""@prefix ns: <http://rdf.freebase.com/ns/> .
ns:m.0345h
    a ns:location.country ;
    ns:type.object.name "Germany"@en , "Deutschland"@de .
ns:m.0156q ns:type.object.name "Berlin"@en .
"""
DBPEDIA = b"""<http://dbpedia.org/resource/Kenya> <http://dbpedia.org/property/name> "Kenya"@en .
<http://dbpedia.org/resource/Kenya> <http://dbpedia.org/ontology/areaTotal> "581309" .
"""
COMPANY = b"".join(
    b"<http://company.org/%d> <http://www.w3.org/2002/07/owl#sameAs> <http://%b> .\n" % (n, other)
    for n, other in enumerate([b"dbpedia.org/resource/X", b"rdf.freebase.com/ns/m.01x"] * 2, 1)
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(TURTLE, r"line 2: not N-Triples .* It seems to be Turtle", id="Turtle"),
        pytest.param(
            DBPEDIA,
            "is not a Freebase dump: 0 of its first 2 triples .* It seems to be DBpedia",
            id="DBpedia",
        ),
        pytest.param(
            LINE % 1 + DBPEDIA,
            "is not a Freebase dump: 1 of its first 3 triples .* It seems to be DBpedia",
            id="one line of Freebase before DBpedia",
        ),
        pytest.param(
            COMPANY + LINE % 1,
            r"It seems to be RDF about something else \(<http://company\.org/1>\)\. kbqa loads",
            id="a company, with links to DBpedia and Freebase",
        ),
        pytest.param(
            b"@prefix : <http://company.org/> .\n:one a :Product ;\n  :price 3 .\n",
            r"It seems to be Turtle, and nothing .* is of Freebase\. kbqa loads only Freebase",
            id="Turtle of a company",
        ),
        pytest.param(
            b'<http://company.org/1> <http://company.org/p> "x" <http://company.org/g> .\n',
            r"It may be N-Quads, and nothing .* is of Freebase\. kbqa loads only Freebase",
            id="N-Quads of a company",
        ),
        pytest.param(
            b"<http://example.org/s> <http://example.org/p> <http://example.org/o> .\n",
            r"not a Freebase dump: .* RDF about something else \(<http://example.org/s>\)",
            id="other",
        ),
    ],
)
def test_rdf_that_is_not_a_freebase_dump_is_not_loaded_in_silence(
    tmp_path: Path, content: bytes, message: str
) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(content)
    with pytest.raises(DumpError, match=message):
        lines_of(dump)


OTHER = b"<http://example.org/s>\t<http://example.org/p>\t<http://example.org/o>\t.\n"


@pytest.mark.parametrize("number", [1, 500])
def test_a_dump_of_which_half_is_of_freebase_is_loaded(tmp_path: Path, number: int) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(OTHER * number + LINE % 1 * number)
    assert len(lines_of(dump)) == 2 * number


@pytest.mark.parametrize("own", [499, 5000])
def test_the_first_thousand_lines_decide_whether_it_is_a_dump(tmp_path: Path, own: int) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(OTHER * 501 + LINE % 1 * own)
    with pytest.raises(DumpError, match="499 of its first 1,000 triples"):
        lines_of(dump)


def test_a_dump_with_as_many_triples_as_turtle_lists_is_loaded(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    a_list = b"ns:m.0a ns:b ns:c;\n"
    dump.write_bytes(LINE % 1 + a_list)
    assert len(lines_of(dump)) == 2
    dump.write_bytes(LINE % 1 + a_list * 2)
    with pytest.raises(DumpError, match=r"line 2: not N-Triples .* It seems to be Turtle"):
        lines_of(dump)


def test_a_data_set_is_named_if_most_subjects_are_its_own(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(OTHER + DBPEDIA)
    with pytest.raises(DumpError, match="It seems to be DBpedia"):
        lines_of(dump)
    dump.write_bytes(OTHER * 2 + DBPEDIA)
    with pytest.raises(DumpError, match="It seems to be RDF about something else"):
        lines_of(dump)


def test_a_dump_with_a_name_too_long_for_the_disk_is_named() -> None:
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        dump_size_bytes("x" * 300)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"<!DOCTYPE html>\n<html>\n", "line 1: .*web page", id="HTML"),
        pytest.param(b'{"id": 1}\n', "line 1: .*JSON", id="JSON"),
        pytest.param(
            b"m.03_bjc\ttype.object.name\tAkrotiri and Dhekelia\n",
            "line 1: .*It is rows of ids without IRIs, as in the subset of FreebaseQA",
            id="ids without IRIs",
        ),
        pytest.param(b'<?xml version="1.0"?>\n<rdf:RDF>\n', "line 1: .*XML", id="RDF/XML"),
        pytest.param(
            b"\n# old\nns:a ns:b ns:c;\n  ns:d ns:e.\n", "line 3: .*Turtle", id="Turtle lists"
        ),
        pytest.param(
            b"/m/0abc\t/people/person/name\tx\t\n", "line 1: .*quad TSV", id="quads of 2012"
        ),
        pytest.param(
            b"www.freebase.com/m/04whkz5\twww.freebase.com/book/subject\twww.freebase.com/m/01cj3p\n",
            "line 1: .*FB2M",
            id="SimpleQuestions",
        ),
        pytest.param(
            b"/m/027rn\t/location/country/form_of_government\t/m/06cx9\n",
            "line 1: .*FB15k",
            id="link prediction",
        ),
        pytest.param(b"<a:s> <a:p> <a:o> <a:g> .\n", "line 1: .*N-Quads", id="N-Quads"),
        pytest.param(b"PK\x03\x04zip", "archive", id="zip"),
        pytest.param(gzip.compress(TEXT)[:-9999], "damaged or cut short after line", id="cut gzip"),
        pytest.param(bz2.compress(TEXT)[:-99], "damaged or cut short", id="cut bzip2"),
        pytest.param(lzma.compress(TEXT)[:-99], "damaged or cut short", id="cut xz"),
        pytest.param(b"\x1f\x8b\x08\x00not gzip at all", "damaged or cut short", id="bad gzip"),
        pytest.param(b"\x28\xb5\x2f\xfd1234", "damaged or cut short", id="bad Zstandard"),
    ],
)
def test_a_file_that_is_not_a_dump_is_refused_with_advice(
    tmp_path: Path, content: bytes, message: str
) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(content)
    with pytest.raises(DumpError, match=message) as caught:
        lines_of(dump)
    assert str(dump) in str(caught.value)


@pytest.mark.parametrize("name", ["gzip", "gzips", "bzip2", "bzip2s", "xz", "Zstandard"])
@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda packed: packed[:-1], id="last byte gone"),
        pytest.param(lambda packed: packed[:-9999], id="cut"),
        pytest.param(lambda packed: packed + packed[:3], id="second member cut"),
        pytest.param(lambda packed: packed + b"garbage", id="garbage after the end"),
        pytest.param(
            lambda packed: (
                packed[:9000] + bytes(b ^ 0x55 for b in packed[9000:9040]) + packed[9040:]
            ),
            id="bytes changed",
        ),
    ],
)
def test_damage_is_never_passed_over(
    tmp_path: Path, name: str, harm: Callable[[bytes], bytes]
) -> None:
    dump = tmp_path / "dump"
    packed = harm(zstd_checked(TEXT) if name == "Zstandard" else PACKED[name])
    dump.write_bytes(packed)
    with pytest.raises(DumpError, match=r"damaged or cut short after line \d+: "):
        lines_of(dump)
    with pytest.raises(DumpError, match="damaged or cut short before line 50001"):
        blocks_of(dump, skip_bytes=len(TEXT), skip_lines=50_000)


def test_lines_before_the_damage_are_told_to_a_megabyte(tmp_path: Path) -> None:
    dump = tmp_path / "dump.gz"
    dump.write_bytes(PACKED["gzip"][:-8])
    with pytest.raises(DumpError, match=r"after line \d+: ") as caught:
        lines_of(dump)
    (line,) = re.findall(r"after line (\d+)", str(caught.value))
    assert 50_000 - (1 << 20) // len(LINE) < int(line) <= 50_000


def test_a_missing_dump_is_a_wrong_argument(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dump at"):
        lines_of(tmp_path / "nothing.gz")
    with pytest.raises(InputError, match="is a folder"):
        lines_of(tmp_path)
