import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.engine.files import claimed
from kbqa.engine.writing.generate import ModelChoice
from kbqa.sparql.forms import read_crp

MONEY = "Jamaica -> location.country.currency_used"
SIBLINGS = "Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling"
JAXON, JAZMYN = "m.0gxnnwq", "m.0gxnnwd"


def _invoke(*arguments: str | Path, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["crp", "run", *map(str, arguments)], input=stdin)


@pytest.fixture(params=["store", "endpoint"])
def run(request: pytest.FixtureRequest, small_store: Path, small_endpoint: str):
    """Run rows on the small graph, in both ways that it is served."""
    graph = small_store if request.param == "store" else small_endpoint

    def run(*rows: object, options: tuple[str, ...] = ()) -> list[dict[str, object]]:
        stdin = "".join(json.dumps(row) + "\n" for row in rows)
        result = _invoke(f"--{request.param}", graph, *options, stdin=stdin)
        assert (result.exit_code, result.stderr) == (0, "")
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def test_a_path_is_run(run) -> None:
    [row] = run({"id": "q", "crps": [MONEY]})
    assert "location.country.currency_used" in row.pop("sparql")
    assert row == {
        "id": "q",
        "answers": ["m.04xc2m"],
        "boolean": None,
        "count": None,
        "truncated": False,
        "level": "full",
        "dropped": [],
        "beam": 0,
        "problems": [],
        "error": None,
    }


@pytest.mark.parametrize(
    "row",
    [
        {"crp": MONEY},
        {"crps": [MONEY]},
        {"crps": [{"crp": MONEY}]},
        {"crps": [{"crp": None, "routerkgqa": f"Main Path:\n {MONEY}"}, {"crp": MONEY}]},
        {
            "crps": [
                {
                    "routerkgqa": "Main Path:\n Jamaica -[location , country , currency used]-> ?x",
                    "logprob": -0.5,
                    "tokens": 9,
                }
            ]
        },
        {"crp": "m.03_r3 -> location.country.currency_used", "sparql": None, "error": None},
    ],
    ids=["one", "list", "record", "unreadable record", "older record", "of from-sparql"],
)
def test_rows_of_other_commands_are_run(run, row: dict[str, object]) -> None:
    [answered] = run(row)
    assert (answered["answers"], answered["error"]) == (["m.04xc2m"], None)


def test_counts_come_with_their_list_and_yes_and_no_without(run) -> None:
    capital = "Jamaica -> location.country.capital"
    yes, no, count, zero = run(
        {"crp": f"{capital}\n?x = Kingston\nask"},
        {"crp": f"{capital}\n?x = Jamaica\nask"},
        {"crp": f"{SIBLINGS}\ncount"},
        {"crp": f"{SIBLINGS}\n?x = Kingston\ncount"},
    )
    assert (yes["boolean"], yes["count"], yes["answers"]) == (True, None, [])
    assert (no["boolean"], no["count"], no["answers"]) == (False, None, [])
    assert str(no["sparql"]).startswith("ASK")
    assert (count["boolean"], count["count"]) == (None, 2)
    assert sorted(count["answers"]) == [JAZMYN, JAXON]
    assert (zero["count"], zero["answers"], zero["level"], zero["problems"]) == (0, [], "full", [])


def test_a_sum_comes_with_its_list(run) -> None:
    people = "location.statistical_region.population -> measurement_unit.dated_integer.number"
    all_, each, none = run(
        {"crp": f"Jamaica -> {people}\nsum bindings ?x"},
        {"crp": f"Kingston <- location.country.capital\n?x -> {people} ?a\nsum ?a"},
        {"crp": "Kingston <- location.country.capital\nsum ?x"},
    )
    assert (all_["value"], sorted(all_["answers"])) == (2741052 + 2695867, ["2695867", "2741052"])
    assert (each["value"], each["answers"]) == (2741052, ["m.03_r3"])  # its largest number
    assert ("value" in none, none["answers"]) == (False, [])


def test_literals_are_answers(run) -> None:
    [row] = run({"crp": "Kingston -> location.location.area"})
    assert row["answers"] == ["480"]


def test_the_first_path_that_answers_counts(run) -> None:
    crps = ["nonsense", "Zorblax -> a.b", "Jamaica -> a.b", f"{MONEY}\nso it is", SIBLINGS]
    [row] = run({"crps": crps})
    assert (row["answers"], row["beam"], row["error"]) == (["m.04xc2m"], 3, None)
    unreadable, unlinked, unreachable, partly = row["problems"]
    assert unreadable.startswith("path 1, unreadable: ")
    assert unlinked == "path 2, unlinked: no entity for Zorblax"
    assert unreachable.startswith("path 3, unreachable")
    assert partly.startswith("path 4, reachable: ")
    assert "so it is" in partly


def test_constraints_are_relaxed_unless_that_is_refused(run) -> None:
    crp = f"{SIBLINGS}\n?x -> people.person.gender = Male\n?x -> people.person.gender = Jamaica"
    [relaxed] = run({"crp": crp})
    assert (relaxed["answers"], relaxed["level"]) == ([JAXON], "entity")
    [dropped] = relaxed["dropped"]
    assert "Jamaica" in dropped
    [exact] = run({"crp": crp}, options=("--no-relax",))
    assert (exact["answers"], exact["level"], exact["error"]) == ([], None, None)


def test_more_than_routerkgqas_form_can_say_is_run(run) -> None:
    both = (
        "Justin Bieber (-> people.person.gender | -> people.person.sibling_s "
        "-> people.sibling_relationship.sibling {-> people.person.gender = [Male]})"
    )
    [row] = run({"crp": both})
    assert sorted(row["answers"]) == ["m.05zppz", JAXON]


def test_a_row_without_answers_says_where_its_path_breaks(run) -> None:
    [row] = run({"crp": SIBLINGS.replace("relationship.sibling", "relationship.anthem")})
    assert (row["answers"], row["error"]) == ([], None)
    assert row["problems"] == [
        "path 1, unreachable: breaks at hop 2: people.sibling_relationship.anthem "
        "leads nowhere from there"
    ]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"crp": "nonsense"}, "path 1, unreadable: "),
        ({"crps": ["Zorblax -> a.b"]}, "path 1, unlinked: no entity for Zorblax"),
        ({}, 'InputError: the row needs a text "crp", or'),
        ({"crps": MONEY}, 'InputError: the row needs a text "crp", or'),
        ({"crps": [{"text": MONEY}]}, 'InputError: the row needs a text "crp", or'),
    ],
    ids=["unreadable", "unlinked", "nothing", "no list", "no text"],
)
def test_what_cannot_be_run_is_an_error_and_the_next_row_is_run(
    run, row: dict[str, object], error: str
) -> None:
    failed, good = run(row, {"crp": MONEY})
    assert str(failed["error"]).startswith(error)
    assert (failed["answers"], list(failed)) == ([], list(good))
    assert good["answers"] == ["m.04xc2m"]


def test_no_path_has_no_answer(run) -> None:
    [row] = run({"crps": []})
    assert (row["answers"], row["error"]) == ([], None)


def test_given_topics_are_used_only_on_request(run) -> None:
    row = {"crp": MONEY.replace("Jamaica", "Atlantis"), "topic_entities": [{"mid": "m.03_r3"}]}
    assert run(row)[0]["error"] == "path 1, unlinked: no entity for Atlantis"
    assert run(row, options=("--gold-entities",))[0]["answers"] == ["m.04xc2m"]
    [bare] = run({**row, "topic_entities": ["m.03_r3"]}, options=("--gold-entities",))
    assert bare["answers"] == ["m.04xc2m"]
    [wrong] = run({**row, "topic_entities": [7]}, options=("--gold-entities",))
    assert str(wrong["error"]).startswith('InputError: "topic_entities" is not a list')


def test_a_questions_words_help_to_find_a_topic(run) -> None:
    [row] = run({"crp": MONEY.replace("Jamaica", "Atlantis"), "question": "money of Jamaica?"})
    assert row["answers"] == ["m.04xc2m"]


def test_a_query_that_takes_too_long_is_its_rows_error(run) -> None:
    rounds = " <- people.person.gender -> people.person.gender" * 30
    slow = f"m.06w2sn5 -> people.person.gender{rounds}\n?x -> a.b = m.0nobody"
    failed, good = run({"crp": slow}, {"crp": MONEY}, options=("--timeout", "1"))
    assert str(failed["error"]).startswith("path 1, failed: no result from")
    assert good["answers"] == ["m.04xc2m"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--store", "none"), 1, "there is no store at none"),
        (("--endpoint", "http://127.0.0.1:9/"), 1, "127.0.0.1:9"),
        (("--endpoint", "localhost"), 2, "an endpoint is an http"),
    ],
    ids=["no store", "endpoint down", "no URL"],
)
def test_a_graph_that_does_not_answer_fails_the_command(
    options: tuple[str, ...], code: int, message: str
) -> None:
    result = _invoke(*options, stdin=json.dumps({"crp": MONEY}))
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_each_row_is_answered_before_the_next_is_read(small_store: Path) -> None:
    command = [sys.executable, "-m", "kbqa.engine.cli", "crp", "run", "--store", str(small_store)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for id_ in (1, 2):
            process.stdin.write(json.dumps({"id": id_, "crp": MONEY}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == id_


MINE = "m.03_r3 -> location.country.currency_used"
THEIRS = "Main Path:\n m.03_r3 -[location , country , currency used]-> ?x"
QUERY = """PREFIX ns: <http://rdf.freebase.com/ns/>
SELECT DISTINCT ?x WHERE { ns:m.03_r3 ns:location.country.currency_used ?x .
?x ns:finance.currency.currency_code "JMD" . FILTER (?x != ns:m.03_r3) }"""


def _call(command: str, *arguments: str, stdin: str | bytes = b"") -> Result:
    return CliRunner().invoke(main, ["crp", command, *arguments], input=stdin)


def _answers(command: str, *rows: object) -> list[dict[str, object]]:
    """Answer rows: objects as JSON, bytes as they are."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    result = _call(command, stdin=b"\n".join(lines))
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_query_becomes_a_path_and_a_query_again() -> None:
    [row] = _answers("from-sparql", {"id": "q", "sparql": QUERY})
    assert list(row) == ["id", "crp", "sparql", "error"]
    assert (row["id"], row["error"]) == ("q", None)
    assert str(row["crp"]).startswith(MINE)
    assert "currency_code" in str(row["crp"])
    assert str(row["sparql"]).startswith("SELECT DISTINCT ?x WHERE {")


def test_what_is_converted_is_compiled_alike() -> None:
    [converted] = _answers("from-sparql", {"id": 1, "sparql": QUERY})
    [compiled] = _answers("compile", converted)
    assert compiled == {"id": 1, "sparql": converted["sparql"], "problems": [], "error": None}


@pytest.mark.parametrize("text", [MINE, THEIRS], ids=["our form", "RouterKGQA's form"])
def test_both_forms_are_compiled_and_shown(text: str) -> None:
    [compiled] = _answers("compile", {"id": 1, "crp": text})
    assert "<http://rdf.freebase.com/ns/location.country.currency_used> ?x" in str(
        compiled["sparql"]
    )
    [shown] = _answers("show", {"id": 1, "crp": text})
    assert list(shown) == ["id", "text", "problems", "error"]
    assert shown["text"] == "From m.03_r3, follow location.country.currency_used to the answers."


@pytest.mark.parametrize("text", [MINE, THEIRS], ids=["our form", "RouterKGQA's form"])
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
        ("from-sparql", {"sparql": "SELECT (MIN(?x) AS ?n) { ns:m.1 ns:a.b ?x }"}, "Crp"),
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
    good = {"id": "good", key: QUERY if command == "from-sparql" else MINE}
    before, failed, after = _answers(command, good, row, good)
    assert before == after
    assert after["error"] is None
    assert str(failed.pop("error")).startswith(error)
    assert list(failed) == [name for name in after if name != "error"]
    assert failed["id"] == (None if isinstance(row, bytes) else "2")
    assert all(not value for name, value in failed.items() if name != "id")


def test_no_text_is_taken_for_more_than_a_text() -> None:
    injection = '"} } UNION { ?x ?y ?z }'
    path = f"{MINE}\n?x -> type.object.name reads {json.dumps(injection)}"
    [compiled] = _answers("compile", {"crp": path})
    assert json.dumps(injection) in str(compiled["sparql"])
    [converted] = _answers("from-sparql", {"sparql": compiled["sparql"]})
    assert read_crp(str(converted["crp"])).crp == read_crp(path).crp


@pytest.mark.parametrize("id_", ["WebQTest-1", 7, None, ["a", {"b": 1}], "\ud800 é"])
def test_an_id_comes_back_as_it_is(id_: object) -> None:
    assert _answers("show", {"id": id_, "crp": MINE})[0]["id"] == id_


def test_letters_are_written_as_they_are() -> None:
    result = _call("show", stdin=json.dumps({"crp": "São Tomé -> location.country.capital"}))
    assert "From São Tomé, follow" in result.stdout


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_rows_are_read_from_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    rows = b'\n{"crp": "m.0 -> a.b"}\n  \n{"crp": "m.0 -> a.c"}\n'
    path.write_bytes(gzip.compress(rows) if name.endswith(".gz") else rows)
    result = _call("show", str(path))
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["2", "4"]


def test_a_file_that_is_not_there_is_misuse() -> None:
    result = _call("show", "none.jsonl")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'none.jsonl' does not exist" in result.stderr


def test_a_file_that_breaks_off_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"crp": "m.0 -> a.b"}\n' * 1000)[:-9])
    result = _call("show", str(path))
    assert result.exit_code == 2
    assert f"Error: {path} cannot be read: " in result.stderr


def test_nothing_in_is_nothing_out() -> None:
    result = _call("compile")
    assert (result.exit_code, result.output) == (0, "")


TEXT = "Main Path:\n Jamaica -[location , country , capital]-> ?x"
OURS = "Jamaica -> location.country.capital"
KINGSTON = {"mid": "m.03yl7", "name": "Kingston"}
ROW = {"crp": OURS, "routerkgqa": TEXT, "logprob": -0.5, "tokens": 9, "topics": []}


@pytest.fixture
def generate(tmp_path: Path, small_store: Path, monkeypatch: pytest.MonkeyPatch, scripted):
    """Run `kbqa crp generate` over three questions with a scripted model, which is handed back."""
    monkeypatch.chdir(tmp_path)
    rows = [{"id": str(n), "question": f"{'so ' * n}why?"} for n in (3, 1)]
    rows.append({"id": "2", "question": "the money of Jamaica", "topic_entities": [KINGSTON]})
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def generate(*replies, options: tuple[str, ...] = (), output: str = "beams.jsonl"):
        model = scripted(*replies)
        monkeypatch.setattr(ModelChoice, "load", lambda *_: model)
        command = ["crp", "generate", "--questions", "q.jsonl", "--output", output]
        command += ["--store", str(small_store), *options]
        return CliRunner().invoke(main, command), model

    return generate


def _written() -> list[dict[str, object]]:
    rows = [json.loads(line) for line in Path("beams.jsonl").read_text("utf-8").splitlines()]
    assert all(row.pop("seconds") >= 0 for row in rows)
    return rows


def test_each_question_gets_a_row_of_paths(generate) -> None:
    result, model = generate([(TEXT, -0.5)], [], [(TEXT, -0.5), ("nonsense", -2.0)])
    assert (result.exit_code, result.output) == (0, "")
    assert model.questions == ["so why?", "so so so why?", "the money of Jamaica"]
    assert _written()[:2] == [{"id": "1", "crps": [ROW]}, {"id": "3", "crps": []}]
    assert _written()[2]["crps"] == [
        ROW,
        {"crp": None, "routerkgqa": "nonsense", "logprob": -2.0, "tokens": 1, "topics": []},
    ]


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ((), {"m.03_r3"}),
        (("--gold-entities",), {"m.03yl7"}),
        (("--decoding", "schema"), {"m.03_r3"}),
        (("--decoding", "none"), set()),
    ],
    ids=["mentioned", "gold", "schema", "no graph"],
)
def test_paths_may_start_from_the_topics(generate, options, topics) -> None:
    _, model = generate([], [], [], options=options)
    assert {topic.mid for topic in model.requests[-1].topics} == topics


def test_the_questions_are_not_written_to(generate) -> None:
    before = Path("q.jsonl").read_bytes()
    Path("link.jsonl").symlink_to("q.jsonl")
    for output in ("q.jsonl", "link.jsonl"):
        result, _ = generate(output=output)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"--output {output} would overwrite q.jsonl, which is read" in result.stderr
    assert Path("q.jsonl").read_bytes() == before


@pytest.mark.parametrize("end", ["", '{"id": "3", "cr'], ids=["between rows", "within a row"])
def test_a_file_that_is_not_complete_is_gone_on_with(generate, end: str) -> None:
    generate([(TEXT, -0.5)], [], [])
    first, *_ = Path("beams.jsonl").read_text("utf-8").splitlines()
    Path("beams.jsonl").write_text(f"{first}\n{end}", "utf-8")
    result, model = generate([], [])
    assert (result.exit_code, model.questions) == (0, ["so so so why?", "the money of Jamaica"])
    assert [row["id"] for row in _written()] == ["1", "3", "2"]


@pytest.mark.parametrize(
    ("options", "setting"), [(("--n", "2"), "n"), (("--gold-entities",), "gold_entities")]
)
def test_beams_that_were_made_otherwise_are_not_gone_on_with(generate, options, setting) -> None:
    generate([], [], [])
    result, model = generate(options=options)
    assert (result.exit_code, model.questions) == (2, [])
    assert f"beams.jsonl holds a run with other settings ({setting})" in result.stderr


def test_beams_that_another_process_is_writing_are_left_to_it(generate) -> None:
    generate([], [], [])
    with claimed(Path("beams.jsonl"), {}, {}):
        result, _ = generate()
    assert result.exit_code == 2
    assert "another process is writing to beams.jsonl" in result.stderr


def test_a_missing_folder_is_told(generate) -> None:
    result, model = generate(output="none/beams.jsonl")
    assert (result.exit_code, model.questions) == (2, [])
    assert "Error: there is no folder none" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--backend", "server"), "--backend server and --server URL go together"),
        (("--backend", "vllm", "--server", "http://x/v1"), "go together"),
    ],
    ids=["no server", "a server too many"],
)
def test_a_back_end_that_cannot_do_what_is_asked_is_told(generate, options, message) -> None:
    result, _ = generate(options=options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_server_that_does_not_answer_is_told(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="needs the llm extra")
    questions = tmp_path / "q.jsonl"
    questions.write_text(json.dumps({"id": "1", "question": "why?"}))
    arguments = ["--questions", questions, "--output", tmp_path / "beams.jsonl"]
    command = ["crp", "generate", *map(str, arguments), "--server", "http://127.0.0.1:9/v1"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert "http://127.0.0.1:9/v1" in result.stderr
    assert not (tmp_path / "beams.jsonl").exists()
