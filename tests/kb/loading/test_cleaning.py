"""The known defects of Freebase's dumps, by number, each with its line.

Without a line to test: 1 (size and hash of the final dump), 21 (benchmarks of other
dumps), 22 (artefacts of stores in gold answers; tests/sparql/test_values.py has dates).
Triples that are left out on purpose (15, 16, 18, 20) are also in tests/kb/loading/test_rules.py.
"""

from collections import Counter
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode, RdfFormat, Store, Triple, parse

from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.loading.cleaning import Rejected, Repaired, Skipped, clean_line
from kbqa.sparql import terms
from tools.graph_servers import MissingServer, virtuoso_server

NS = "http://rdf.freebase.com/ns/"
XSD = "http://www.w3.org/2001/XMLSchema#"
S = f"<{NS}m.0tc7>"
P = f"<{NS}film.film.x>"
O = f"<{NS}m.0hwpz>"  # noqa: E741
LONG_TEXT = '"' + "Ünïcode 😀 " * 5_105 + '"@en'


def triple(object_: str = O, subject: str = S, predicate: str = P) -> str:
    return f"{subject}\t{predicate}\t{object_}\t."


def kept(object_: str, id: str) -> ParameterSet:  # noqa: A002
    """A line in the usual form that stays as it is."""
    return pytest.param(triple(object_), triple(object_), (), id=id)


def mended(object_: str, mended_object: str, defect: str, id: str) -> ParameterSet:  # noqa: A002
    """A line in the usual form with one defect in its object."""
    return pytest.param(triple(object_), triple(mended_object), (defect,), id=id)


REPAIRED = [
    # Spacing that N-Triples allows is no defect.
    pytest.param(f"{S}    {P}  {O}  .", triple(), (), id="defect-02-runs-of-blanks"),
    pytest.param(f"{S} \t{P}\t{O}.", triple(), (), id="defect-02-glued-dot"),
    pytest.param(f"{S}{P}{O}.\r\n", triple(), (), id="defect-02-no-space-and-crlf"),
    pytest.param(f" {triple()} # note", triple(), (), id="defect-02-comment-behind"),
    pytest.param(f"{S}\t{P}\t{O}", triple(), ("missing final dot",), id="defect-02-no-dot"),
    pytest.param(
        f'{S}\t{P}\t"Young Patrick"@en',
        triple('"Young Patrick"@en'),
        ("missing final dot",),
        id="defect-02-no-dot-after-language",
    ),
    pytest.param("\ufeff" + triple(), triple(), ("byte order mark",), id="defect-02-bom"),
    pytest.param(
        "ns:m.0tc7\tns:award.award_nominee.award_nominations\tns:m.0hwpz.",
        triple(predicate=f"<{NS}award.award_nominee.award_nominations>"),
        ("prefixed name",),
        id="defect-03-turtle",
    ),
    pytest.param(
        "ns:m.0tc7\tns:film.film.x\ttrue.",
        triple('"true"'),
        ("prefixed name", "bare value"),
        id="defect-03-turtle-boolean",
    ),
    pytest.param(
        'fb:m.0tc7\tkey:wikipedia.en\t"Arnold"@en.',
        triple('"Arnold"@en', predicate="<http://rdf.freebase.com/key/wikipedia.en>"),
        ("prefixed name",),
        id="defect-03-turtle-key",
    ),
    pytest.param(
        "ns:m.0tc7\tns:a.b..c.d\tns:m.0hwpz.",
        triple(predicate=f"<{NS}a.b..c.d>"),
        ("prefixed name",),
        id="defect-03-turtle-joined-predicate",
    ),
    pytest.param(
        r"ns:m.0tc7 ns:a\-b\$ ns:m.0hwpz .",
        triple(predicate=f"<{NS}a-b$>"),
        ("prefixed name",),
        id="defect-03-turtle-escaped-name",
    ),
    pytest.param(
        "ns:m.0tc7\trdf:type\towl:Thing.",
        triple(
            "<http://www.w3.org/2002/07/owl#Thing>",
            predicate="<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>",
        ),
        ("prefixed name",),
        id="defect-03-turtle-w3c",
    ),
    mended('"1"^^xsd:int', f'"1"^^<{XSD}int>', "prefixed name", id="defect-03-prefixed-datatype"),
    pytest.param(
        triple(predicate=f"<{NS}award.award_winner.awards_won..award.award_honor.year>"),
        triple(predicate=f"<{NS}award.award_winner.awards_won..award.award_honor.year>"),
        (),
        id="defect-03-joined-predicate",
    ),
    pytest.param(
        triple('"x"', predicate="<http://rdf.freebase.com/key/key.wikipedia.en>"),
        triple('"x"', predicate="<http://rdf.freebase.com/key/key.wikipedia.en>"),
        (),
        id="defect-03-key-of-2013",
    ),
    kept("<http://rdf.basekb.com/ns/m.0tc7>", id="defect-03-basekb"),
    kept(f"<{NS}g.11b6t1scwz>", id="defect-04-g-id"),
    pytest.param(
        triple(subject=f"<{NS}people.person>", predicate=f"<{NS}m.0106fvn0>"),
        triple(subject=f"<{NS}people.person>", predicate=f"<{NS}m.0106fvn0>"),
        (),
        id="defect-04-mid-as-predicate",
    ),
    kept('"1.73"', id="defect-05-untyped-number"),
    kept('"true"', id="defect-05-untyped-boolean"),
    mended("4.5", '"4.5"', "bare value", id="defect-05-bare-number"),
    mended("-1e-07", '"-1e-07"', "bare value", id="defect-05-bare-float"),
    mended("false", '"false"', "bare value", id="defect-05-bare-boolean"),
    *(
        kept(f'"{text}"^^<{XSD}{datatype}>', id=f"defect-06-{name}")
        for text, datatype, name in (
            ("1973", "gYear", "year"),
            ("2001-02", "gYearMonth", "month"),
            ("T00:00", "dateTime", "time-without-date"),
            ("T12:00", "dateTime", "noon-without-date"),
            ("-0410-09", "gYear", "month-in-a-year"),
            ("0000-08-27", "date", "year-zero"),
            ("2001-06", "dateTime", "month-as-datetime"),
            ("-0044", "gYear", "before-christ"),
            ("1999-02-30", "date", "no-such-day"),
            ("--02-30", "gMonthDay", "no-such-month-day"),
        )
    ),
    kept(r'"a\nb \"c\" \\d"@en', id="defect-07-legal-escapes"),
    kept('"José María 파이어폭스"@es', id="defect-07-raw-utf-8"),
    kept(r'"\ud30c\uc774\U0001F600"@ko', id="defect-07-unicode-escapes"),
    mended(
        r'"Webov\xfd prohl\xed\u017ee\u010d"@cs',
        r'"Webový prohlí\u017ee\u010d"@cs',
        "Python escape",
        id="defect-07-python-escape",
    ),
    mended(
        r'"\x22\x5c\x0a\x0d\x09\xe9\xe8"',
        r'"\"\\\n\r\téè"',
        "Python escape",
        id="defect-07-python-escape-of-a-quote",
    ),
    mended(r'"\uD83D\uDE00"', '"😀"', "surrogate pair", id="defect-07-surrogate-pair"),
    mended('"a\rb"', r'"a\rb"', "raw carriage return", id="defect-07-raw-carriage-return"),
    pytest.param(triple('"a\tb"'), triple(r'"a\tb"'), (), id="defect-07-raw-tab"),
    kept('"a\u2028b\u0085"', id="defect-07-line-ends-of-unicode"),
    kept('"a\x1ab"', id="defect-08-control-character"),
    # Both stores take a raw NUL and give it back; N-Triples allows it.
    kept('"a\x00b"', id="defect-08-nul"),
    pytest.param(triple(LONG_TEXT), triple(LONG_TEXT), (), id="defect-09-long-text-beyond-bmp"),
    kept(f"<http://www.example.org/{'a' * 536}>", id="defect-09-long-iri"),
    pytest.param(
        triple(predicate=f"<{NS}user.a.$b>"),
        triple(predicate=f"<{NS}user.a.$b>"),
        (),
        id="defect-10-dollar-in-predicate",
    ),
    pytest.param(
        "ns:m.0tc7\tns:user.a.$b\tns:m.0hwpz.",
        triple(predicate=f"<{NS}user.a.$b>"),
        ("prefixed name",),
        id="defect-10-dollar-in-turtle",
    ),
    kept('"Mine_G$00FCng$00F6r"', id="defect-11-key-escapes"),
    kept('"A$AP_Rocky"', id="defect-11-dollar-alone"),
    kept("<http://www.ranker.com/x$002F493404>", id="defect-11-key-escape-in-iri"),
    kept("<http://en.wikipedia.org/wiki/Mine_G%FCng%F6r>", id="defect-12-latin-1-percent"),
    kept("<http://en.wikipedia.org/wiki/Round_%2526_Round>", id="defect-12-double-encoding"),
    kept("<http://example.org/100%>", id="defect-12-percent-alone"),
    kept("<http://www.michaelnugent.comhttp://twitter.com/micknugent>", id="defect-13-two-iris"),
    kept("<http://81.173.3.20:80>", id="defect-13-ip"),
    kept("<http://example.org/é#a#b[0]>", id="defect-13-raw-non-ascii-and-brackets"),
    mended(
        '<http://example.org/a b|c"{d}^`e\\f\x01\\u0020\\u003Cg>',
        "<http://example.org/a%20b%7Cc%22%7Bd%7D%5E%60e%5Cf%01%20%3Cg>",
        "forbidden character in IRI",
        id="defect-13-forbidden-characters",
    ),
    kept(r"<http://example.org/\u00e9>", id="defect-13-escape-in-iri"),
    pytest.param(
        triple(predicate=f"<{NS}book.book_edition.ISBN>"),
        triple(predicate=f"<{NS}book.book_edition.ISBN>"),
        (),
        id="defect-14-upper-case-id",
    ),
    pytest.param(
        triple(predicate=f"<{NS}dataworld.gardening_hint.replaced_by>"),
        triple(predicate=f"<{NS}dataworld.gardening_hint.replaced_by>"),
        (),
        id="defect-15-merged-topic",
    ),
    pytest.param(
        triple(predicate=f"<{NS}film.performance.film>", subject=f"<{NS}m.0vpd23v>"),
        triple(predicate=f"<{NS}film.performance.film>", subject=f"<{NS}m.0vpd23v>"),
        (),
        id="defect-17-mediator-without-name",
    ),
    kept('"火狐"@zh-Hant', id="defect-19-script-in-tag"),
    kept('"Colour"@en-US', id="defect-19-region-in-tag"),
    mended('"火狐"@zh_TW', '"火狐"@zh-TW', "language tag with _", id="defect-19-underscore-in-tag"),
    kept('"8 + [144420981,144430475]"@en', id="defect-19-odd-name"),
    kept('""@en', id="defect-19-empty-name"),
    # The edges of what an escape may stand for, alone and beside another defect.
    *(
        pytest.param(
            triple(f'"{escape}{fault}"'), triple(f'"{escape}{mended_to}"'), defects, id=id_
        )
        for escape in (r"\uD7FF", r"\uE000", r"\U0010FFFF")
        for fault, mended_to, defects, id_ in (
            ("", "", (), f"defect-07-{escape[1:]}"),
            (r"\xe9", "é", ("Python escape",), f"defect-07-{escape[1:]}-beside-a-fault"),
        )
    ),
    kept(r'"\U00010000\U000FFFFF"', id="defect-07-first-and-last-long-escapes-of-a-plane"),
    mended(
        r'"\uD800\uDC00"', '"\U00010000"', "surrogate pair", id="defect-07-first-surrogate-pair"
    ),
    mended(r'"\udbff\udfff"', '"\U0010ffff"', "surrogate pair", id="defect-07-last-surrogate-pair"),
    mended(
        r"<http://a/\uD83D\uDE00>",
        "<http://a/😀>",
        "surrogate pair",
        id="defect-13-surrogate-pair-in-iri",
    ),
    kept(r"<http://a/\u0021>", id="defect-13-escaped-exclamation-mark-in-iri"),
    mended(
        r"<http://a/\u0020>",
        "<http://a/%20>",
        "forbidden character in IRI",
        id="defect-13-escaped-blank-in-iri",
    ),
    pytest.param(
        triple(predicate=f"<{NS}people.person.spouse_s./people.marriage.spouse>"),
        triple(predicate=f"<{NS}people.person.spouse_s./people.marriage.spouse>"),
        (),
        id="defect-23-joined-by-slash",
    ),
]

REJECTED = [
    pytest.param(f"{S}\t{P}\tns:m.0hw", "no final dot", id="defect-02-cut-name"),
    pytest.param(f"{S}\t{P}\t4.5", "no final dot", id="defect-02-cut-number"),
    pytest.param(f"{S}\t{P}\t<{NS}m.0h", "unterminated IRI", id="defect-02-cut-iri"),
    pytest.param(f'{S}\t{P}\t"Young', "unterminated literal", id="defect-02-cut-literal"),
    pytest.param(f"{S}\t{P[:-1]}", "unterminated IRI", id="defect-02-cut-predicate"),
    pytest.param("ns:m.0tc7 basekb:x ns:m.0 .", "unknown prefix basekb:", id="defect-03-prefix"),
    pytest.param("ns:m.0tc7\tns:x\tns:m.0;", "Turtle list", id="defect-03-turtle-list"),
    pytest.param(
        "@prefix ns: <http://rdf.basekb.com/ns/>.",
        "prefix ns: with another namespace",
        id="defect-03-prefix-bound-anew",
    ),
    pytest.param(
        "/m/0tc7\t/type/object/name\t/lang/en\tArnold",
        "quad TSV row, not RDF",
        id="defect-03-quad-tsv",
    ),
    pytest.param(
        "/m/0tc7\t/people/person/gender\t/m/05zppz\t",
        "quad TSV row, not RDF",
        id="defect-03-quad-tsv-without-value",
    ),
    pytest.param(triple("2001-02-03"), "not a triple", id="defect-06-bare-date"),
    pytest.param(triple(r'"a\qb"'), "bad escape", id="defect-07-unknown-escape"),
    pytest.param(triple(r'"\u12"'), "bad escape", id="defect-07-short-escape"),
    pytest.param(triple(r'"\U00110000"'), "bad escape", id="defect-07-no-character"),
    pytest.param(triple(r'"\ud83d"'), "lone surrogate", id="defect-07-lone-surrogate"),
    pytest.param(triple(r'"\uD800"'), "lone surrogate", id="defect-07-first-surrogate"),
    pytest.param(triple(r'"\uDFFF"'), "lone surrogate", id="defect-07-last-surrogate"),
    pytest.param(triple(r'"\U0000D800"'), "lone surrogate", id="defect-07-long-first-surrogate"),
    pytest.param(triple(r'"\U0000DFFF"'), "lone surrogate", id="defect-07-long-last-surrogate"),
    pytest.param(triple(r'"\uDBFF\uDBFF"'), "lone surrogate", id="defect-07-two-high-surrogates"),
    pytest.param(triple(r'"\uDC00\uD800"'), "lone surrogate", id="defect-07-low-surrogate-first"),
    pytest.param(triple(r'"\uDBFF\uE000"'), "lone surrogate", id="defect-07-high-and-no-surrogate"),
    pytest.param(triple(r"<http://a/\udc00>"), "lone surrogate", id="defect-07-surrogate-in-iri"),
    pytest.param(triple(r'"Jos\xc3\xa9"'), "ambiguous escape", id="defect-07-python-bytes"),
    pytest.param(triple('"say "hi" there"'), "text after a literal", id="defect-07-raw-quote"),
    pytest.param(f'{S}\t{P}\t"first line', "unterminated literal", id="defect-07-raw-newline"),
    pytest.param('second line"@en\t.', "not a triple", id="defect-07-after-raw-newline"),
    pytest.param(r"ns:m.0\u00e9 ns:x ns:m.0 .", "bad escape", id="defect-07-escape-in-name"),
    pytest.param(f"{S}\t{P}\t\t.", "empty object", id="defect-10-empty-object"),
    pytest.param("ns:m.0tc7\tns:x\t.", "empty object", id="defect-10-empty-object-in-turtle"),
    pytest.param(f"{S}\t.", "too few terms", id="defect-10-one-term"),
    pytest.param(f"{S}\t{P}", "too few terms", id="defect-10-two-terms-without-dot"),
    pytest.param(f"{S}\t{P}\t{O}\t.\t.", "not a triple", id="defect-10-two-dots"),
    pytest.param(triple(subject="4"), "not a triple", id="defect-10-number-as-subject"),
    pytest.param(f"{S}\t{P}\t{O}\t{O}\t.", "more than three terms", id="defect-10-quad"),
    pytest.param(
        f'{S}\t{P}\t"x"\t{O}\t.', "more than three terms", id="defect-10-quad-of-a-literal"
    ),
    pytest.param(triple(subject='"x"'), "literal as subject", id="defect-10-literal-subject"),
    pytest.param(triple(predicate='"x"'), "literal as predicate", id="defect-10-literal-predicate"),
    # A blank node of a shard that is loaded again would come in a second time.
    pytest.param(triple("_:b1"), "blank node", id="defect-10-blank-node"),
    pytest.param(triple("<>"), "empty IRI", id="defect-13-empty-iri"),
    pytest.param(triple("<m.0hwpz>"), "relative IRI", id="defect-13-relative-iri"),
    pytest.param(triple("http://a/b"), "IRI without brackets", id="defect-13-no-brackets"),
    pytest.param(triple(f"<{NS}m.0<b>"), "unterminated IRI", id="defect-13-bracket-in-iri"),
    pytest.param(triple('"x"@'), "bad language tag", id="defect-19-empty-tag"),
    pytest.param(triple('"x"@12'), "bad language tag", id="defect-19-number-as-tag"),
    pytest.param(triple('"x"^^'), "bad datatype", id="defect-19-empty-datatype"),
    pytest.param(
        "www.freebase.com/m/04whkz5\twww.freebase.com/book/x\twww.freebase.com/m/01cj3p",
        "FB2M row, not RDF",
        id="defect-23-fb2m",
    ),
    pytest.param(
        "/m/027rn\t/people/person/spouse_s./people/marriage/spouse\t/m/06cx9",
        "FB15k row, not RDF",
        id="defect-23-fb15k",
    ),
]

SKIPPED = [
    pytest.param("", "blank line", id="empty"),
    pytest.param(" \t\r\n", "blank line", id="blank"),
    pytest.param("# RDF dump", "comment", id="comment"),
    pytest.param("\ufeff# RDF dump", "comment", id="comment-after-bom"),
    pytest.param(f"@prefix ns: <{NS}>.", "Turtle directive", id="defect-03-prefix"),
    pytest.param("@prefix x: <http://x/>.", "Turtle directive", id="defect-03-other-prefix"),
    pytest.param("@base <http://x/>.", "Turtle directive", id="defect-03-base"),
    pytest.param(f"PREFIX ns: <{NS}>", "Turtle directive", id="defect-03-sparql-prefix"),
]

# What a strict parser refuses though the line is right: IRIs beyond RFC 3987.
ONLY_LENIENT = {"defect-12-percent-alone", "defect-13-raw-non-ascii-and-brackets"}


@pytest.mark.parametrize(("line", "result", "defects"), REPAIRED)
def test_a_mended_line_is_in_the_usual_form(
    line: str, result: str, defects: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    cleaned = clean_line(line.encode() + b"\n")
    assert cleaned == Repaired(result.encode(), defects)
    assert clean_line(cleaned.line) == Repaired(cleaned.line, ())
    assert cleaned.line.count(b"\t") == 3
    is_strict = not any(f"[{name}]" in request.node.name for name in ONLY_LENIENT)
    store = Store()
    store.bulk_load(cleaned.line + b"\n", RdfFormat.N_TRIPLES, lenient=not is_strict)
    assert len(store) == 1


@pytest.mark.parametrize(("line", "reason"), REJECTED)
def test_a_rejected_line_has_a_reason(line: str, reason: str) -> None:
    assert clean_line(line.encode() + b"\n") == Rejected(reason)


def test_a_line_in_another_encoding_is_rejected() -> None:
    assert clean_line(triple('"Güngör"').encode("latin-1")) == Rejected("not UTF-8")


@pytest.mark.parametrize(("line", "reason"), SKIPPED)
def test_a_line_that_states_nothing_is_skipped(line: str, reason: str) -> None:
    assert clean_line(line.encode()) == Skipped(reason)


def test_ids_in_other_case_stay_apart() -> None:
    lines = [f"ns:m.0x ns:book.book_edition.{name} ns:m.0y." for name in ("ISBN", "isbn")]
    assert len({clean_line(line.encode()) for line in lines}) == 2


def test_every_numbered_defect_is_here_or_said_not_to_be() -> None:
    ids = [str(case.id) for table in (REPAIRED, REJECTED, SKIPPED) for case in table]
    here = {int(name.split("-")[1]) for name in ids if name.startswith("defect-")}
    nothing_to_test = {1, 21, 22}
    in_test_rules = {16, 18, 20}
    assert here | nothing_to_test | in_test_rules == set(range(1, 24))


def test_the_excerpts_are_accounted_for_line_by_line(shared: Path) -> None:
    counts: Counter[str] = Counter()
    store = Store()
    with (shared / "data" / "dump-excerpts.nt").open("rb") as lines:
        for line in lines:
            cleaned = clean_line(line)
            assert isinstance(cleaned, Repaired)
            unchanged = cleaned.line == line.rstrip(b"\n")
            counts["unchanged" if unchanged else ", ".join(cleaned.defects) or "spacing"] += 1
            store.bulk_load(cleaned.line + b"\n", RdfFormat.N_TRIPLES, lenient=False)
    assert counts == {
        "unchanged": 28,
        "spacing": 210,
        "Python escape": 2,
        "missing final dot": 2,
        "prefixed name": 1,
    }
    # Four triples stand in the file twice.
    assert len(store) == 239


def test_virtuoso_takes_every_repaired_line(tmp_path: Path) -> None:
    graph = tmp_path / "mended.nt"
    lines = {result for case in REPAIRED for result in case.values[1:2]}
    graph.write_text("".join(f"{line}\n" for line in sorted(map(str, lines))), encoding="utf-8")
    try:
        with virtuoso_server([graph]) as url:
            count = SparqlEndpoint(url).select("SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }")
    except MissingServer as error:
        pytest.skip(str(error))
    assert count.rows == ((terms.LiteralTerm(str(len(lines)), "integer"),),)


_SCRAPS = (
    *('<a:s>', "<a b>", "<", ">", "<>", '"x"', '"', "@en", "@zh_TW", "^^", "ns:m.0x", "x:y", "_:b"),
    *(" ", "\t", ".", "\r", ",", ";", "4.5", "true", "#", "\\", r"\u00e9", r"\ud83d", r"\ude00"),
    *(r"\xe9", r"\x22", r"\x09", r"\U0010FFFF", "\ufeff", "\x00", "é", "😀", "/m/0x", "@prefix "),
)  # fmt: skip


@given(st.lists(st.sampled_from(_SCRAPS), max_size=14).map("".join))
def test_any_line_comes_out_loadable_or_not_at_all(line: str) -> None:
    cleaned = clean_line(line.encode())
    if isinstance(cleaned, Repaired):
        assert len(list(parse(cleaned.line, RdfFormat.N_TRIPLES, lenient=True))) == 1
        assert clean_line(cleaned.line) == Repaired(cleaned.line, ())
        assert cleaned.line.count(b"\t") == 3


@given(st.binary(max_size=60))
def test_no_bytes_crash_it(line: bytes) -> None:
    assert isinstance(clean_line(line), Repaired | Rejected | Skipped)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from([None, "en", "pt-BR"]))
def test_legal_lines_keep_their_meaning(text: str, language: str | None) -> None:
    stated = Triple(NamedNode(NS + "m.0x"), NamedNode(NS + "a.b"), Literal(text, language=language))
    cleaned = clean_line(f"{stated} .\n".encode())
    assert isinstance(cleaned, Repaired)
    assert cleaned.defects == ()
    (read,) = parse(cleaned.line, RdfFormat.N_TRIPLES)
    assert read.triple == stated
