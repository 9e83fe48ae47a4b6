import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from made_runs import make_row, write_run

from kbqa.engine.cli import COMMANDS, main


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def _kbqa(*arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "kbqa.engine.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **settings},
        check=False,
    )


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys; from kbqa.engine.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print(*sorted(sys.modules), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name, command in COMMANDS.items():
        assert f"  {name} " in run.stdout
        assert command.place.partition(":")[0] not in run.stderr.split()


@pytest.mark.parametrize("name", ["sparql", "relations", "entities", "load-freebase"])
def test_each_line_of_help_is_a_command(name: str) -> None:
    result = _run(name, "-h")
    assert result.exit_code == 0
    assert f"Usage: kbqa {name}" in result.output


def test_version() -> None:
    assert _run("--version").output.split()[1][0].isdigit()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["sparql", "ASK {}", "--store", "none"], 1, "Error: there is no store at none."),
        (["sparql", "hello", "--store", "none"], 2, "Error: not a SPARQL query"),
        (["sparql", "CLEAR ALL"], 2, "Error: CLEAR would write"),
        (["relations", "Justin Bieber"], 2, "Error: 'Justin Bieber' is not an id"),
        (["sparql", "ASK {}", "--store", "a", "--endpoint", "http://b"], 2, "Error: choose one"),
        (["sparql", "ASK {}", "--endpoint", "b"], 2, "Error: an endpoint is an http"),
        (["sparql", "ASK {}", "--timeout", "0"], 2, "Invalid value for '--timeout'"),
        (["dance"], 2, "No such command 'dance'"),
        (["aks", "who?"], 2, "No such command 'aks'. Did you mean 'ask'?"),
        (["crp", "shwo", "-"], 2, "No such command 'shwo'. Did you mean 'show'?"),
        (["entities", "x", "--limt", "3"], 2, "Did you mean one of: '--limit'"),
    ],
)
def test_mistakes_end_in_one_line(arguments: list[str], code: int, message: str) -> None:
    result = _run(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_debug_shows_the_traceback() -> None:
    run = _kbqa("--debug", "sparql", "ASK {}", "--store", "none")
    assert run.returncode == 1
    assert "Traceback" in run.stderr


@pytest.mark.parametrize(
    ("flags", "shown", "hidden"),
    [
        ((), "", "INFO"),
        (("-v",), "INFO kbqa.kb.open: the graph is store ", "ASK"),
        (("-vv",), "asking store {store}: ", "nothing"),
    ],
)
def test_verbose_shows_the_graph_and_the_queries_of_sparql(
    small_store: Path, flags: tuple[str, ...], shown: str, hidden: str
) -> None:
    query = "ASK { ns:m.03_r3 ?p ?o }"
    run = _kbqa(*flags, "sparql", query, "--store", str(small_store))
    assert shown.replace("{store}", str(small_store)) in run.stderr
    assert hidden not in run.stderr
    assert run.stdout == "true\n"


def test_verbose_shows_the_queries_to_an_endpoint(small_endpoint: str) -> None:
    run = _kbqa("-vv", "relations", "m.03_r3", "--endpoint", small_endpoint)
    assert f"asking endpoint {small_endpoint}: " in run.stderr
    assert "SELECT" in run.stderr


def test_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kbqa.kb.commands.graph.sparql", interrupted)
    assert _run("sparql").exit_code == 130


def test_closed_pipe_is_no_error(small_store: Path) -> None:
    command = [sys.executable, "-m", "kbqa.engine.cli", "sparql", "SELECT * { ?s ?p ?o }"]
    with subprocess.Popen(
        [*command, "--store", str(small_store)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == b""


FULL = Path("/dev/full")
UNWRITTEN = "Error: the output cannot be written: No space left on device\n"
needs_full = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full, a device that is full")


def _fill(*command: str) -> "subprocess.CompletedProcess[str]":
    with FULL.open("w") as full:
        return subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)


@needs_full
@pytest.mark.parametrize(
    "arguments", [("--help",), ("ask", "--help"), ("methods",), ("report", "{run}")], ids=" ".join
)
def test_output_to_a_full_disk_is_an_error_in_one_line(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    run = write_run(tmp_path, [make_row("a", ["m.1"])])
    given = [argument.format(run=run) for argument in arguments]
    done = _fill(sys.executable, "-m", "kbqa.engine.cli", *given)
    assert (done.returncode, done.stderr) == (1, UNWRITTEN)


@needs_full
def test_output_that_is_left_at_exit_of_a_full_disk_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "left.py").write_text(
        "import click\n@click.command()\ndef left(): print('buffered')\n", "utf-8"
    )
    code = (
        "from kbqa.engine.cli import COMMANDS, LazyCommand, main\n"
        "COMMANDS['left'] = LazyCommand('left:left', '')\n"
        "main(['left'])"
    )
    done = _fill(sys.executable, "-c", code)
    assert (done.returncode, done.stderr) == (1, UNWRITTEN)


def test_a_closed_output_is_no_error() -> None:
    command = f"{sys.executable} -m kbqa.engine.cli entities Kenya >&-"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("sparql -", 2, "Error: not a SPARQL query: it contains no SELECT or ASK\n"),
        ("crp show -", 0, ""),
        ("link -", 0, ""),
        ("load-freebase - --store {folder}/new", 1, "Error: - is empty.\n"),
    ],
)
def test_a_closed_input_is_an_empty_one(
    tmp_path: Path, small_store: Path, arguments: str, code: int, message: str
) -> None:
    command = f"{sys.executable} -m kbqa.engine.cli {arguments.format(folder=tmp_path)} <&-"
    done = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        env={**os.environ, "KBQA_STORE": str(small_store)},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


@needs_full
@pytest.mark.parametrize("ending", ["2>/dev/full", "2>&-"], ids=["full", "closed"])
@pytest.mark.parametrize(
    ("arguments", "printed", "code"),
    [
        ("sparql 'ASK { ?s ?p ?o }'", "true\n", 0),
        ("relations m.0none --json", '{"mid": "m.0none", "name": null, "relations": []}\n', 0),
        ("relations m.0none", "", 0),
        ("aks", "", 2),
        ("sparql hello", "", 2),
    ],
)
def test_a_full_or_closed_stderr_ends_no_command(
    small_store: Path, arguments: str, printed: str, code: int, ending: str
) -> None:
    command = f"{sys.executable} -m kbqa.engine.cli -vv {arguments} {ending}"
    done = subprocess.run(
        command,
        shell=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "KBQA_STORE": str(small_store)},
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, printed)


CURRENCY = """SELECT ?x ?name
{ ns:m.03_r3 ns:location.country.currency_used ?x . ?x ns:type.object.name ?name }"""


def test_sparql_prints_a_table(small_store: Path) -> None:
    result = _run("sparql", CURRENCY, "--store", str(small_store), "--format", "table")
    assert result.stdout == (
        "x         name\n────────  ───────────────\nm.04xc2m  Jamaican dollar\n"
    )


@pytest.mark.parametrize("flags", [["--json"], ["--format", "json"]])
def test_sparql_prints_json(small_store: Path, flags: list[str]) -> None:
    result = _run("sparql", "-", "--store", str(small_store), *flags, stdin=CURRENCY)
    assert json.loads(result.stdout)["results"]["bindings"] == [
        {
            "x": {"type": "uri", "value": "http://rdf.freebase.com/ns/m.04xc2m"},
            "name": {"type": "literal", "value": "Jamaican dollar", "xml:lang": "en"},
        }
    ]


def test_sparql_prints_tsv_where_no_terminal_is(small_store: Path) -> None:
    result = _run("sparql", CURRENCY, "--store", str(small_store))
    assert result.stdout == (
        '?x\t?name\n<http://rdf.freebase.com/ns/m.04xc2m>\t"Jamaican dollar"@en\n'
    )


def test_sparql_prints_csv(small_store: Path) -> None:
    query = 'SELECT ?n ("a \\"b\\", c" AS ?t) ?none { ns:m.03yl7 ns:location.location.area ?n }'
    result = _run("sparql", query, "--store", str(small_store), "--format", "csv")
    assert result.stdout == 'n,t,none\n480,"a ""b"", c",\n'


@pytest.mark.parametrize(("flags", "said"), [([], "true\n"), (["--json"], '"boolean": true')])
def test_sparql_answers_ask(small_store: Path, flags: list[str], said: str) -> None:
    assert said in _run("sparql", "ASK { ?s ?p ?o }", "--store", str(small_store), *flags).stdout


def test_sparql_says_that_there_are_more_rows(small_store: Path) -> None:
    result = _run("sparql", "SELECT ?s { ?s ?p ?o }", "--store", str(small_store), "--limit", "2")
    assert len(result.stdout.splitlines()) == 3
    assert "more than 2 rows" in result.stderr


def test_relations(small_store: Path) -> None:
    result = _run("relations", "m.04xc2m", "--store", str(small_store), "--direction", "in")
    assert result.stdout == "in   location.country.currency_used  Currency Used\n"


def test_relations_as_json(small_store: Path, small_endpoint: str) -> None:
    from_store = _run("relations", "m.04xc2m", "--store", str(small_store), "--json")
    record = json.loads(from_store.stdout)
    assert (record["mid"], record["name"]) == ("m.04xc2m", "Jamaican dollar")
    assert {row["direction"] for row in record["relations"]} == {"out", "in"}
    from_endpoint = _run("relations", "m.04xc2m", "--endpoint", small_endpoint, "--json")
    assert json.loads(from_endpoint.stdout) == record


def test_an_entity_without_relations_is_no_error(small_store: Path) -> None:
    result = _run("relations", "m.0nobody", "--store", str(small_store))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no such relations" in result.stderr


def test_graph_from_environment_and_file(
    small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("kbqa.toml").write_text(
        f'store = "{small_store}"\n[sparql]\nformat = "csv"\n[crp.run]\n', encoding="utf-8"
    )
    query = "SELECT ?x { ns:m.03yl7 ns:location.location.area ?x }"
    assert _run("sparql", query).stdout == "x\n480\n"
    assert _run("sparql", query, "--format", "tsv").stdout == '?x\n"480"\n'
    # The environment wins over the file, a flag over both.
    monkeypatch.setenv("KBQA_ENDPOINT", "nonsense")
    assert "an endpoint is" in _run("sparql", query).stderr
    assert _run("sparql", query, "--store", str(small_store)).exit_code == 0
    monkeypatch.setenv("KBQA_SPARQL_LIMIT", "no number")
    assert "Invalid value for '--limit'" in _run("sparql", query).stderr


def test_copies_from_flags_environment_and_file(
    small_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, query = "http://127.0.0.1:9/query", "ASK { ?s ?p ?o }"
    listed = _run("sparql", query, "--endpoint", dead, "--endpoint", small_endpoint)
    assert listed.stdout == "true\n"
    monkeypatch.setenv("KBQA_ENDPOINT", f"{dead} {small_endpoint}")
    assert _run("sparql", query).stdout == "true\n"
    monkeypatch.delenv("KBQA_ENDPOINT")
    Path("kbqa.toml").write_text(f'endpoint = ["{dead}", "{small_endpoint}"]', encoding="utf-8")
    assert _run("sparql", query).stdout == "true\n"
    Path("kbqa.toml").write_text(f'endpoint = "{dead}"', encoding="utf-8")
    assert "does not answer" in _run("sparql", query).stderr


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("KBQA_SPARQL_FORMAT", "csv", "x\n480\n"),
        ("KBQA_SPARQL_LIMIT", "1", '?x\n"480"\n'),
        ("KBQA_SPARQL_JSON", "1", '"bindings"'),
    ],
)
def test_each_option_is_a_variable_by_its_long_name(
    small_store: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    query = "SELECT ?x { ns:m.03yl7 ns:location.location.area ?x }"
    assert said in _run("sparql", query, "--store", str(small_store)).stdout


def test_a_variable_that_nothing_reads_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    unread = ("KBQA_STOER", "KBQA_SPARQL_FROMAT", "KBQA_SPARQL_STORE")
    for name in (*unread, "KBQA_ASK_DEADLINE", "KBQA_TIMEOUT"):
        monkeypatch.setenv(name, "9")
    assert _run("sparql", "ASK {}").stderr.splitlines() == [
        "Warning: nothing reads KBQA_SPARQL_FROMAT; did you mean KBQA_SPARQL_FORMAT?",
        "Warning: nothing reads KBQA_SPARQL_STORE; did you mean KBQA_STORE?",
        "Warning: nothing reads KBQA_STOER; did you mean KBQA_STORE?",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("store = ", "kbqa.toml cannot be read"),
        ("[dance]", "[dance] is not a command"),
        ('[sparql]\nstyle = "csv"', "[sparql] has no option 'style'"),
        ('stroe = "slice"', "no command has an option 'stroe'; did you mean store?"),
        ('[ask]\nmodle = "x"', "[ask] has no option 'modle'"),
        ("store = 2026-01-01", "kbqa.toml: store is datetime.date(2026, 1, 1)"),
        (f"store = {'[' * 5000}", "kbqa.toml cannot be read"),
        ('store = "a\\u0000b"', "kbqa.toml: store holds a NUL character"),
    ],
)
def test_bad_configuration_is_told(text: str, message: str) -> None:
    Path("kbqa.toml").write_text(text, encoding="utf-8")
    result = _run("sparql", "ASK {}")
    assert result.exit_code == 2
    assert message in result.stderr


ASK = ("ask", "what is the capital of Kenya?")


@pytest.mark.parametrize(
    ("text", "variable", "server", "names", "command"),
    [
        ('llm = "{}/v1"', "KBQA_LLM_KEY", "{}/v1", "--llm or KBQA_ASK_LLM", ASK),
        (
            'llm-model = "m"',
            "KBQA_LLM_KEY",
            "OpenAI's own server",
            "--llm-model or KBQA_ASK_LLM_MODEL",
            ASK,
        ),
        ('[ask]\nvia = "{}"', "KBQA_VIA_KEY", "{}", "--via or KBQA_VIA", ASK),
        ('server = "{}/v1"', "KBQA_SERVER_API_KEY", "{}/v1", "--server or KBQA_ASK_SERVER", ASK),
        (
            'server = "{}/v1"',
            "KBQA_SERVER_API_KEY",
            "{}/v1",
            "--server or KBQA_CRP_GENERATE_SERVER",
            ("crp", "generate", "--questions", "kbqa.toml", "--output", "beams.jsonl"),
        ),
    ],
)
def test_a_file_of_the_working_folder_gets_no_key_of_the_environment(
    text: str,
    variable: str,
    server: str,
    names: str,
    command: Sequence[str],
    small_store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as evil:
        evil.setblocking(False)
        url = f"http://127.0.0.1:{evil.getsockname()[1]}"
        Path("kbqa.toml").write_text(text.format(url), encoding="utf-8")
        monkeypatch.setenv(variable, "secret")
        store = () if "via" in text else ("--store", str(small_store))
        result = _run(*command, *store)
        assert (result.exit_code, result.stdout) == (2, "")
        assert (
            f"kbqa.toml in the working folder has the key in {variable} sent to "
            f"{server.format(url)}. If you trust that server, name it by {names}"
        ) in result.stderr
        assert "secret" not in result.stderr
        with pytest.raises(BlockingIOError):  # nobody called
            evil.accept()


def test_a_server_of_the_file_is_asked_without_a_key_and_a_named_one_with_it(
    small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = "http://127.0.0.1:9"
    Path("kbqa.toml").write_text(f'via = "{dead}"', encoding="utf-8")
    assert "no server can be reached" in _run(*ASK).stderr
    monkeypatch.setenv("KBQA_VIA_KEY", "secret")
    assert _run(*ASK).exit_code == 2
    assert "no server can be reached" in _run(*ASK, "--via", dead).stderr
    monkeypatch.setenv("KBQA_VIA", dead)
    assert "no server can be reached" in _run(*ASK).stderr


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('host = "0.0.0.0"\npublic = true', "--host or KBQA_SERVE_HOST"),
        ("public = true", "--public or KBQA_SERVE_PUBLIC"),
        ('allowed-host = "evil.example"', "--allowed-host or KBQA_SERVE_ALLOWED_HOST"),
    ],
)
def test_a_file_of_the_working_folder_opens_no_server_to_others(text: str, names: str) -> None:
    Path("kbqa.toml").write_text(f"[serve]\n{text}", encoding="utf-8")
    result = _run("serve", "--port", "0")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"would open the server to others. Use {names} to do so." in result.stderr


def test_a_byte_order_mark_before_configuration_and_query_is_passed_over(small_store: Path) -> None:
    Path("kbqa.toml").write_text(f'store = "{small_store}"', encoding="utf-8-sig")
    query = "\ufeffASK { ns:m.03yl7 ns:location.location.area ?x }".encode()
    result = CliRunner().invoke(main, ["sparql", "-"], input=query)
    assert (result.exit_code, result.stdout) == (0, "true\n")


def test_a_repeatable_option_of_the_file_is_a_text_or_a_list() -> None:
    for value in ('"width=x"', '["width=x"]'):
        Path("kbqa.toml").write_text(f"[ask]\nset = {value}", encoding="utf-8")
        assert "--set width=x: width is a whole number" in _run("ask", "capital of Kenya").stderr


@pytest.mark.parametrize("option", ["--timeout", "--deadline"])
def test_no_number_of_seconds_is_refused(option: str) -> None:
    result = _run("ask", "capital of Kenya", option, "nan")
    assert result.exit_code == 2
    assert "'nan' is not a number of seconds" in result.stderr


def test_a_variable_that_is_like_none_but_for_the_prefix_is_compared_with_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KBQA_THREADS", "9")
    assert _run("sparql", "ASK {}").stderr == "Warning: nothing reads KBQA_THREADS\n"


def test_a_number_in_the_file_may_stand_for_text() -> None:
    Path("kbqa.toml").write_text("store = 3", encoding="utf-8")
    assert "there is no store at 3" in _run("sparql", "ASK {}").stderr


def test_threads_of_the_model_sleep_while_they_wait() -> None:
    pytest.importorskip("torch", reason="needs the lm extra")
    code = (
        "from kbqa.engine.cli import main; main(['methods'], standalone_mode=False); import torch"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_DISPLAY_ENV": "TRUE"},
        check=True,
    )
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in run.stderr
