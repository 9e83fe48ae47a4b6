"""What `kbqa sparql`, `kbqa relations` and `kbqa entities` do with odd arguments and outputs."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbqa.kb.commands.graph import format_rows
from kbqa.kb.graph import Table
from kbqa.kb.open import open_graph
from kbqa.sparql.terms import LiteralTerm


def _run(
    *arguments: str | bytes, output: str | None = None, **environment: str
) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-P", "-m", "kbqa.engine.cli", *arguments]
    stdout = subprocess.PIPE if output is None else os.open(output, os.O_WRONLY)
    try:
        return subprocess.run(
            command,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            check=False,
            timeout=60,
        )
    finally:
        if output is not None:
            os.close(stdout)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("Kenya", "Find it with `kbqa entities Kenya`."),
        ("New York", "Find it with `kbqa entities 'New York'`."),
        ("ns:m.03_r3", "Write m.03_r3"),
        ("/m/03_r3", "Write m.03_r3"),
    ],
)
def test_what_is_no_id_has_no_relations_but_advice(
    small_store: Path, text: str, advice: str
) -> None:
    ran = _run("relations", text, "--store", str(small_store))
    expected = f"Error: {text!r} is not an id such as m.09c7w0. {advice}\n"
    assert (ran.returncode, ran.stdout, ran.stderr.decode()) == (2, b"", expected)


@pytest.mark.parametrize("identifier", ["location.country", "m.03_r3", "g.11b6t1scwz"])
def test_ids_of_every_kind_have_relations(small_store: Path, identifier: str) -> None:
    assert _run("relations", identifier, "--store", str(small_store)).returncode == 0


def test_a_dump_that_is_given_as_a_store_is_named(small_dump: Path) -> None:
    ran = _run("sparql", "ASK {}", "--store", str(small_dump))
    assert ran.returncode == 1
    assert f"is a dump, not a store. Load it with `kbqa load-freebase {small_dump}" in str(
        ran.stderr
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("sparql", "SELECT * { ?s ?p ?o }"),
        ("sparql", "ASK { ?s ?p ?o }"),
        ("relations", "m.03_r3"),
        ("relations", "m.03_r3", "--json"),
        ("entities", "Jamaica"),
    ],
)
def test_an_output_that_is_full_is_reported_without_a_traceback(
    small_store: Path, arguments: tuple[str, ...]
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full, a device that is always full")
    ran = _run(*arguments, "--store", str(small_store), output="/dev/full")
    expected = "Error: the output cannot be written: No space left on device\n"
    assert (ran.returncode, ran.stderr.decode()) == (1, expected)


C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_arguments_are_read_as_utf_8_in_the_c_locale(small_store: Path) -> None:
    store = ("--store", str(small_store))
    query = 'SELECT ?x { ?x ns:type.object.name "Männlich"@de }'
    ran = _run("sparql", query, "--format", "csv", *store, **C_LOCALE)
    assert ran.stdout.decode() == "x\nhttp://rdf.freebase.com/ns/m.05zppz\n"
    ran = _run("entities", "Männlich", *store, **C_LOCALE)
    assert ran.stderr.decode() == "no entity in the graph has a name like 'Männlich'\n"
    ran = _run("relations", "m.05zppz", "--json", *store, **C_LOCALE)
    assert ran.returncode == 0


def test_letters_that_the_locale_lacks_are_printed_as_escapes(small_store: Path) -> None:
    query = "SELECT ?x { ns:m.05zppz ns:type.object.name ?x FILTER (LANG(?x) = 'de') }"
    ran = _run("sparql", query, "--store", str(small_store), **C_LOCALE)
    assert ran.stdout.decode() == '?x\n"M\\xe4nnlich"@de\n'


def test_an_argument_that_is_no_text_is_refused(small_store: Path) -> None:
    ran = _run("entities", b"M\xe4nnlich", "--store", str(small_store))
    assert ran.returncode == 2
    assert b"it is not text in UTF-8" in ran.stderr


def test_a_store_may_be_a_plain_text(small_store: Path) -> None:
    with open_graph(store=str(small_store)) as graph:
        assert graph.ask("ASK { ?s ?p ?o }")


@pytest.mark.parametrize("full", ["urn:isbn:0451450523", "mailto:ann@x.org", "tag:x.org,2026:a"])
def test_an_iri_without_slashes_is_no_freebase_id(small_store: Path, full: str) -> None:
    with open_graph(small_store) as graph:
        table = graph.select(f'SELECT ?x ?y {{ BIND(<{full}> AS ?x) BIND("1"^^<{full}> AS ?y) }}')
    said = {style: format_rows(table, style).splitlines()[-1] for style in ("table", "csv", "tsv")}
    assert said == {
        "table": f"{full}  1",
        "csv": f'"{full}",1' if "," in full else f"{full},1",
        "tsv": f'<{full}>\t"1"^^<{full}>',
    }
    (row,) = json.loads(format_rows(table, "json"))["results"]["bindings"]
    assert row == {
        "x": {"type": "uri", "value": full},
        "y": {"type": "literal", "value": "1", "datatype": full},
    }


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\r\nb", 'a"b', "a,b", ""])
def test_csv_is_read_as_it_was_written(text: str) -> None:
    rows = ((LiteralTerm(text), "urn:x"), (LiteralTerm(text), None))
    written = format_rows(Table(("x", "y"), rows), "csv")
    read = list(csv.reader(io.StringIO(written, newline="")))
    assert read == [["x", "y"], [text, "urn:x"], [text, ""]]
