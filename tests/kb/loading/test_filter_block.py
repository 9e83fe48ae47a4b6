"""The quick way through a block and the careful one, line by line, must say the same."""

from collections import Counter
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbqa.kb.loading.cleaning import Rejected, Repaired, Skipped, clean_line
from kbqa.kb.loading.dump import Block
from kbqa.kb.loading.filter_block import BlockFilter, FilteredBlock
from kbqa.kb.loading.rules import Drop, FilterRules, profile
from kbqa.sparql.errors import DumpError
from kbqa.sparql.terms import FREEBASE_NS

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
FIRST_LINE = 1001

SUBJECTS = [f"<{FREEBASE_NS}m.0a>".encode(), f"<{FREEBASE_NS}people.person>".encode(), b"<a:s>"]
PREDICATES = [
    f"<{FREEBASE_NS}type.object.type>".encode(),
    f"<{FREEBASE_NS}type.object.name>".encode(),
    f"<{FREEBASE_NS}a.b>".encode(),
    b"<a:p>",
]
OBJECTS = [
    *SUBJECTS,
    *(b'"x"', b'"Kenya"@en', b'"Kenia"@de', b'"colour"@en-GB', b'""', b'"1"^^<a:d>'),
    *(rb'"\"\t\\\u00e9"', rb'"\xe9"', b'"a\tb"', b'"a\rb"', b'"\xff"', b'"x"@zh_TW', b"4.5"),
    *(b"<a b>", b"<>", b"<a>", b"_:b", b"", b"ns:m.0a", b'"x', b'"a\x00"', "<a:é>".encode()),
]
ENDS = [b"\t.\n", b"\t.\r\n", b"\n", b".\n", b"\t.\t\n", b"\t.\tx\n", b"\t.\t\tx\n", b"\t. # x\n"]
ODD_LINES = [
    *(b"\n", b"\r\n", b" \n", b"\t\n", b"\t\t\t\n", b"\t\t\t.\n", b"# note\n", b"\xff\n"),
    *("\ufeff\n".encode(), b"?\n", b".\n", b'"\n', b"\t<a:p>\t<a:o>\t.\n", b"<a:s>\t\t<a:o>\t.\n"),
    *(b"<a:s> <a:p> <a:o> .\n", b"@prefix x: <http://x/>.\n", b"a\tb\tc\td\te\tf\tg\n"),
]

usual = st.tuples(
    st.sampled_from(SUBJECTS),
    st.just(b"\t"),
    st.sampled_from(PREDICATES),
    st.just(b"\t"),
    st.sampled_from(OBJECTS),
    st.one_of(st.just(ENDS[0]), st.sampled_from(ENDS)),
).map(b"".join)
blocks = st.tuples(
    st.sampled_from([b"", b"", "\ufeff".encode()]),
    st.lists(st.one_of(usual, st.sampled_from(ODD_LINES)), min_size=1, max_size=8).map(b"".join),
    st.booleans(),
).map(lambda parts: parts[0] + (parts[1].removesuffix(b"\n") if parts[2] else parts[1]))


class Expected(NamedTuple):
    kept: list[bytes]
    filtered: Counter[str]
    rejected: list[tuple[int, str, bytes]]
    mended: Counter[str]


def lines_of(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n")


def sort_out(
    data: bytes, rules: FilterRules | None = None, *, strict: bool = False
) -> FilteredBlock:
    block = Block("dump.nt", FIRST_LINE, data, len(data), len(data))
    return BlockFilter(rules or profile("full"), strict=strict)(block)


def line_by_line(data: bytes) -> Expected:
    expected = Expected([], Counter(), [], Counter())
    for number, line in enumerate(lines_of(data), start=FIRST_LINE):
        match clean_line(line):
            case Repaired(mended, defects):
                expected.kept.append(mended + b"\n")
                expected.mended.update(defects)
            case Rejected(reason):
                expected.rejected.append((number, reason, line.removesuffix(b"\r")))
            case Skipped(reason):
                expected.filtered[reason] += 1
    return expected


def short(term: bytes) -> str:
    text = term.decode()
    return text[1:-1].removeprefix(FREEBASE_NS)


def nodes_of(filtered: FilteredBlock) -> pl.DataFrame:
    return filtered.tables.nodes.unique("key").select("key", "node")


def as_counter(table: pl.DataFrame) -> Counter[str]:
    return Counter(dict(table.iter_rows()))


@given(blocks.filter(bool))
@example(b'<a:s>\t<a:p>\t"\xff"\t.')
@example(b"\xff\n\n")
@example(b"<a:s>\t<a:p>\t<a:o>\t.\t\tx\n")
@example(b"<a:s>\t<a:p>\t<a:o>\t.\n<a:s>\t<a:p>\t<a:o>\t.\t\tx\n")
@example("\ufeff<a:s>\t<a:p>\t<a:o>\t.\n".encode())
@example("\ufeff".encode())
def test_a_block_says_what_its_lines_say_one_by_one(data: bytes) -> None:
    filtered = sort_out(data)
    expected = line_by_line(data)
    assert sorted(filtered.content.splitlines(keepends=True)) == sorted(expected.kept)
    assert list(filtered.rejected) == expected.rejected
    counts = filtered.counts
    assert counts.read == len(lines_of(data))
    assert counts.kept == len(expected.kept)
    assert (counts.filtered, counts.mended) == (expected.filtered, expected.mended)
    assert counts.rejected == Counter(reason for _, reason, _ in expected.rejected)
    assert counts.read == counts.kept + counts.filtered.total() + counts.rejected.total()


@given(blocks.filter(bool))
def test_nodes_relations_and_types_are_those_of_the_kept_triples(data: bytes) -> None:
    filtered = sort_out(data)
    leaving, entering = Counter[str](), Counter[str]()
    relations, types = Counter[str](), Counter[str]()
    edges = Counter[tuple[str, str]]()
    ours = f"<{FREEBASE_NS}".encode()
    for line in filtered.content.splitlines():
        subject, predicate, object_, _ = line.split(b"\t")
        relations[short(predicate)] += 1
        if short(predicate) == "type.object.type" and object_.startswith(b"<"):
            types[short(object_)] += 1
        if subject.startswith(ours):
            leaving[short(subject)] += 1
        if object_.startswith(ours):
            entering[short(object_)] += 1
            edges[short(object_), short(predicate)] += 1
    nodes = filtered.tables.nodes.group_by("node").agg(
        pl.col("out", "in").sum(), pl.col("key").n_unique()
    )
    assert Counter(dict(nodes.filter(pl.col("out") > 0).select("node", "out").rows())) == leaving
    assert Counter(dict(nodes.filter(pl.col("in") > 0).select("node", "in").rows())) == entering
    assert set(nodes["key"]) <= {1}
    assert filtered.tables.nodes["key"].n_unique() == nodes.height
    named = filtered.tables.edges.join(nodes_of(filtered), on="key").join(
        filtered.tables.relations, on="code"
    )
    entered = named.filter(pl.col("in") > 0).select("node", "id", "in")
    assert Counter({(node, relation): n for node, relation, n in entered.rows()}) == edges
    assert as_counter(filtered.tables.relations.select("id", "count")) == relations
    assert as_counter(filtered.tables.types) == types


def test_relations_of_long_runs_of_a_subject_are_counted() -> None:
    def lines(subject: str, count: int) -> str:
        return "".join(
            f'<{FREEBASE_NS}{subject}>\t<{FREEBASE_NS}a.r{n % 3}>\t"{n}"\t.\n' for n in range(count)
        )

    filtered = sort_out((lines("m.0a", 63) + lines("m.0b", 64) + lines("m.0c", 1)).encode())
    named = filtered.tables.edges.join(nodes_of(filtered), on="key").join(
        filtered.tables.relations, on="code"
    )
    assert sorted(named.select("node", "id", "out").rows()) == [
        ("m.0b", "a.r0", 22),
        ("m.0b", "a.r1", 21),
        ("m.0b", "a.r2", 21),
    ]


def test_names_and_schema_are_noted_in_the_order_of_the_dump() -> None:
    def line(subject: str, predicate: str, object_: str) -> str:
        return f"<{FREEBASE_NS}{subject}>\t<{FREEBASE_NS}{predicate}>\t{object_}\t.\n"

    data = "".join(
        [
            line("m.0b", "type.object.name", '"B"@en'),
            line("m.0a", "common.topic.alias", r'"\"A\""@en'),
            line("m.0a", "a.b.c", "<a:o>"),
            line("a.b", "type.property.schema", f"<{FREEBASE_NS}a>"),
        ]
    )
    noted = sort_out(data.encode()).tables.noted
    assert noted.select("subject", "predicate", "object").rows() == [
        ("m.0b", "type.object.name", '"B"@en'),
        ("m.0a", "common.topic.alias", r'"\"A\""@en'),
        ("a.b", "type.property.schema", f"<{FREEBASE_NS}a>"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(f"<a:s>\t<{RDF_TYPE}>\t<a:o>\t.", "types", id="exact"),
        pytest.param(f"<a:s>\t<{FREEBASE_NS}user.x.y>\t<a:o>\t.", "users", id="family"),
        pytest.param(f"<a:s> <{RDF_TYPE}> <a:o> .", "types", id="of-a-line-in-another-form"),
        pytest.param("ns:m.0\tns:user.x.y\t4.5", "rejected", id="rejected-first"),
        pytest.param('<a:s>\t<a:p>\t"x"@de\t.', "a literal in another language", id="language"),
        pytest.param(
            '<a:s>\t<a:p>\t"x"@zh_TW\t.', "a literal in another language", id="of-a-mended-tag"
        ),
        pytest.param('<a:s>\t<a:p>\t"x"@EN-gb\t.', None, id="language-of-a-region"),
        pytest.param('<a:s>\t<a:p>\t"x"@eng\t.', "a literal in another language", id="no-prefix"),
        pytest.param(r"<a:s>" + '\t<a:p>\t"a \\"@de"\t.', None, id="tag-inside-a-text"),
        pytest.param("<a:s>\t<a:p>\t<http://a/@de>\t.", None, id="tag-inside-an-iri"),
        pytest.param('<a:s>\t<a:p>\t"x"^^<a:d>\t.', None, id="datatype"),
        pytest.param(f"<a:s>\t<{RDF_TYPE}x>\t<a:o>\t.", None, id="only-begins-so"),
    ],
)
def test_rules_leave_out_what_they_say(line: str, reason: str | None) -> None:
    rules = FilterRules(
        "mine", languages=("en",), drops=(Drop(RDF_TYPE, "types"), Drop("user.*", "users"))
    )
    counts = sort_out(line.encode(), rules).counts
    assert counts.read == 1
    assert counts.kept == (reason is None)
    if reason == "rejected":
        assert counts.rejected.total() == 1
    else:
        assert counts.filtered == ({reason: 1} if reason else {})


def test_no_language_means_every_language() -> None:
    rules = FilterRules("mine", drops=(Drop("user.*", "users"),))
    assert sort_out(b'<a:s>\t<a:p>\t"x"@de\t.\n', rules).counts.kept == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(b"<a:s>\t<a:p>\t\t.", "empty object", id="rejected"),
        pytest.param(b"<a:s>\t<a:p>\t<a:o>", "missing final dot", id="mended"),
        pytest.param("\ufeff<a:s>\t<a:p>\t<a:o>\t.".encode(), "byte order mark", id="bom"),
        pytest.param(b'<a:s>\t<a:p>\t"\xff"\t.', "not UTF-8", id="not-utf-8"),
    ],
)
def test_a_strict_filter_names_the_line(line: bytes, message: str) -> None:
    plain = b"<a:s>\t<a:p>\t<a:o>\t.\n"
    before = b"" if line.startswith(b"\xef") else plain * 3
    place = FIRST_LINE + before.count(b"\n")
    with pytest.raises(DumpError, match=rf"^dump\.nt, line {place}: {message}\."):
        sort_out(before + line, strict=True)


def test_a_strict_filter_takes_what_is_legal() -> None:
    data = b"# note\n\n<a:s> <a:p> <a:o> . # note\n<a:s>\t<a:p>\t<a:o>\t.\r\n"
    assert sort_out(data, strict=True).counts.kept == 2


@pytest.mark.parametrize("odd", [b"\xff\n", b"a\tb\tc\td\te\n"], ids=["not-utf-8", "tabs"])
def test_one_odd_line_in_a_large_block_is_found(odd: bytes) -> None:
    plain = f'<{FREEBASE_NS}m.0a>\t<a:p>\t"{"text " * 20}"@en\t.\n'.encode()
    filtered = sort_out(plain * 30_000 + odd + plain * 30_000)
    assert [line.number for line in filtered.rejected] == [FIRST_LINE + 30_000]
    assert (filtered.counts.read, filtered.counts.kept) == (60_001, 60_000)
    assert filtered.tables.nodes["out"].sum() == 60_000
