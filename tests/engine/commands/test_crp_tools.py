import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.sparql.forms import read_crp

OURS = "m.03_r3 -> location.country.currency_used"
THEIRS = "Main Path:\n m.03_r3 -[location , country , currency used]-> ?x"
QUERY = """PREFIX ns: <http://rdf.freebase.com/ns/>
SELECT DISTINCT ?x WHERE { ns:m.03_r3 ns:location.country.currency_used ?x .
?x ns:finance.currency.currency_code "JMD" . FILTER (?x != ns:m.03_r3) }"""


def _invoke(command: str, *arguments: str, stdin: str | bytes = b"") -> Result:
    return CliRunner().invoke(main, ["crp", command, *arguments], input=stdin)


def _answers(command: str, *rows: object) -> list[dict[str, object]]:
    """Answer rows: objects as JSON, bytes as they are."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    result = _invoke(command, stdin=b"\n".join(lines))
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_query_becomes_a_path_and_a_query_again() -> None:
    [row] = _answers("from-sparql", {"id": "q", "sparql": QUERY})
    assert list(row) == ["id", "crp", "sparql", "error"]
    assert (row["id"], row["error"]) == ("q", None)
    assert str(row["crp"]).startswith(OURS)
    assert "currency_code" in str(row["crp"])
    assert str(row["sparql"]).startswith("SELECT DISTINCT ?x WHERE {")


def test_what_is_converted_is_compiled_alike() -> None:
    [converted] = _answers("from-sparql", {"id": 1, "sparql": QUERY})
    [compiled] = _answers("compile", converted)
    assert compiled == {"id": 1, "sparql": converted["sparql"], "problems": [], "error": None}


@pytest.mark.parametrize("text", [OURS, THEIRS], ids=["our form", "RouterKGQA's form"])
def test_both_forms_are_compiled_and_shown(text: str) -> None:
    [compiled] = _answers("compile", {"id": 1, "crp": text})
    assert "<http://rdf.freebase.com/ns/location.country.currency_used> ?x" in str(
        compiled["sparql"]
    )
    [shown] = _answers("show", {"id": 1, "crp": text})
    assert list(shown) == ["id", "text", "problems", "error"]
    assert shown["text"] == "From m.03_r3, follow location.country.currency_used to the answers."


@pytest.mark.parametrize("text", [OURS, THEIRS], ids=["our form", "RouterKGQA's form"])
@pytest.mark.parametrize(("command", "key"), [("compile", "sparql"), ("show", "text")])
def test_what_cannot_be_read_of_a_path_is_told_and_the_rest_is_used(
    command: str, key: str, text: str
) -> None:
    [row] = _answers(command, {"crp": f"{text}\nso that all is well"})
    [problem] = row["problems"]
    assert "so that all is well" in problem
    assert row[key] == _answers(command, {"crp": text})[0][key]
    assert row["error"] is None


@pytest.mark.parametrize(
    ("command", "row", "error"),
    [
        ("from-sparql", {"sparql": "SELECT"}, "QuerySyntaxError: "),
        ("from-sparql", {"sparql": "SELECT (SUM(?x) AS ?n) { ns:m.1 ns:a.b ?x }"}, "Crp"),
        ("from-sparql", {"sparql": None}, 'InputError: "sparql" is null, but must be a text'),
        ("compile", {}, 'InputError: "crp" is null, but must be a text'),
        ("compile", {"crp": 7}, 'InputError: "crp" is 7, but must be a text'),
        ("compile", {"crp": "Jamaica -> a.b"}, "UnlinkedName: 'Jamaica' is a name without an id"),
        ("compile", {"crp": ""}, "CrpSyntaxError: "),
        ("show", {"crp": "I do not know."}, "CrpSyntaxError: "),
        ("show", b"{'crp'}", "InputError: line 2: not JSON (Expecting"),
        ("show", b"[1, 2]", "InputError: line 2: not a JSON object"),
        ("show", b'{"id": NaN}', "InputError: line 2: not JSON (JSON has no NaN)"),
        ("show", b"\xff\xfe", "InputError: line 2: not JSON ('utf-8' codec"),
        ("show", b"[" * 100_000, "InputError: line 2: not JSON (maximum recursion depth"),
    ],
    ids=[
        "no query",
        "aggregate",
        "null",
        "no path",
        "number",
        "not grounded",
        "empty",
        "prose",
        "not JSON",
        "not a number",
        "no object",
        "not UTF-8",
        "deep",
    ],
)
def test_what_is_wrong_with_a_row_is_its_error_and_the_next_is_answered(
    command: str, row: object, error: str
) -> None:
    key = "sparql" if command == "from-sparql" else "crp"
    good = {"id": "good", key: QUERY if command == "from-sparql" else OURS}
    before, failed, after = _answers(command, good, row, good)
    assert before == after
    assert after["error"] is None
    assert str(failed.pop("error")).startswith(error)
    assert list(failed) == [name for name in after if name != "error"]
    assert failed["id"] == (None if isinstance(row, bytes) else "2")
    assert all(not value for name, value in failed.items() if name != "id")


def test_no_text_is_taken_for_more_than_a_text() -> None:
    injection = '"} } UNION { ?x ?y ?z }'
    path = f"{OURS}\n?x -> type.object.name reads {json.dumps(injection)}"
    [compiled] = _answers("compile", {"crp": path})
    assert json.dumps(injection) in str(compiled["sparql"])
    [converted] = _answers("from-sparql", {"sparql": compiled["sparql"]})
    assert read_crp(str(converted["crp"])).crp == read_crp(path).crp


@pytest.mark.parametrize("id_", ["WebQTest-1", 7, None, ["a", {"b": 1}], "\ud800 é"])
def test_an_id_comes_back_as_it_is(id_: object) -> None:
    assert _answers("show", {"id": id_, "crp": OURS})[0]["id"] == id_


def test_letters_are_written_as_they_are() -> None:
    result = _invoke("show", stdin=json.dumps({"crp": "São Tomé -> location.country.capital"}))
    assert "From São Tomé, follow" in result.stdout


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_rows_are_read_from_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    rows = b'\n{"crp": "m.0 -> a.b"}\n  \n{"crp": "m.0 -> a.c"}\n'
    path.write_bytes(gzip.compress(rows) if name.endswith(".gz") else rows)
    result = _invoke("show", str(path))
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["2", "4"]


def test_a_file_that_is_not_there_is_misuse() -> None:
    result = _invoke("show", "none.jsonl")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'none.jsonl' does not exist" in result.stderr


def test_a_file_that_breaks_off_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"crp": "m.0 -> a.b"}\n' * 1000)[:-9])
    result = _invoke("show", str(path))
    assert result.exit_code == 2
    assert f"Error: {path} cannot be read: " in result.stderr


def test_nothing_in_is_nothing_out() -> None:
    result = _invoke("compile")
    assert (result.exit_code, result.output) == (0, "")
