import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.engine.cli import COMMANDS, Stopped, main
from kbqa.engine.commands.ask import Prompt
from kbqa.engine.engine import Engine
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import ModelError

MONEY = [("Main Path:\n Jamaica -[location , country , currency used]-> ?x", -0.5)]
QUESTION = "what jamaican money called?"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def typed(small_store: Path, scripted, monkeypatch, capsys):
    """Type lines at a prompt whose model gives some replies; return what it printed."""

    def typed(*lines: str, replies=(), topics=(), as_json=False):
        text = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text), "utf-8"))
        settings = {"judge": "confidence"}
        with (
            open_graph(small_store) as graph,
            Engine(graph, scripted(*replies), settings=settings) as engine,
        ):
            Prompt(engine, topics, None, as_json).run()
        return capsys.readouterr()

    return typed


def test_questions_are_answered_one_after_the_other(typed) -> None:
    printed = typed(QUESTION, "", QUESTION, replies=[MONEY, MONEY])
    assert printed.out.startswith("Asking store ")
    assert printed.out.count("kbqa> Jamaican dollar  (m.04xc2m)\n") == 2
    assert printed.err == ""


def test_an_error_ends_one_question_and_not_the_prompt(typed) -> None:
    printed = typed(QUESTION, QUESTION, ":dance", replies=[ModelError("out of memory"), MONEY])
    assert "Jamaican dollar" in printed.out
    assert printed.err.splitlines() == [
        "Error: out of memory",
        "Error: there is no :dance; :help lists what to type",
    ]


def test_sigterm_ends_the_prompt_and_not_only_a_question(typed) -> None:
    with pytest.raises(Stopped):
        typed(QUESTION, replies=[Stopped(signal.SIGTERM)])


def test_bytes_that_are_no_text_do_not_end_the_prompt(typed) -> None:
    # A line that cannot be decoded takes what was read with it, so it is the last here.
    printed = typed("caf\udce9")
    assert printed.err.startswith("Error: that is not text in UTF-8\n")


def test_quit_leaves(typed) -> None:
    assert "Jamaican" not in typed(":quit", QUESTION).out


def test_help_lists_every_command(typed) -> None:
    printed = typed(":help").out
    for name in (":new", ":topic", ":path", ":sparql", ":json", ":help", ":quit"):
        assert f"\n  {name}" in printed


def test_the_last_answer_can_be_looked_at(typed) -> None:
    printed = typed(QUESTION, ":path", ":sparql", ":json", replies=[MONEY]).out
    _, _, path, query, record = printed.split("kbqa> ")[:5]
    assert path == "Jamaica (m.03_r3) -> location.country.currency_used\n"
    assert query.startswith("PREFIX ns: <http://rdf.freebase.com/ns/>\nSELECT DISTINCT ?x")
    assert json.loads(record)["question"] == QUESTION


@pytest.mark.parametrize("command", [":path", ":sparql", ":json"])
def test_before_any_answer_there_is_nothing_to_look_at(typed, command: str) -> None:
    assert typed(command).err == "Error: nothing has been asked yet\n"


def test_without_an_answer_there_is_no_path_and_no_query(typed) -> None:
    printed = typed("money of Atlantis?", ":path", ":sparql", replies=[[("nonsense", -1.0)]])
    assert "No answer: " in printed.out
    assert printed.err.splitlines() == [
        "Error: no path answered the last question",
        "Error: no query answered the last question",
    ]


def test_json_prints_each_answer_as_a_line(typed) -> None:
    printed = typed(QUESTION, replies=[MONEY], as_json=True).out
    record = json.loads(printed.splitlines()[1].removeprefix("kbqa> "))
    assert record["answers"][0]["name"] == "Jamaican dollar"


SEAT = [("Main Path:\n Jamaica -[location , country , capital]-> ?x", -0.5)]
AREA = [("Main Path:\n Kingston -[location , location , area]-> ?x", -0.5)]
CAPITAL = "capital of jamaica?"


def test_a_question_at_the_prompt_goes_on_from_the_one_before(typed) -> None:
    printed = typed(CAPITAL, "how large is it?", replies=[SEAT, AREA]).out
    assert "kbqa> Understood as: how large is Kingston?\n480\n" in printed


def test_after_new_a_question_stands_alone(typed) -> None:
    printed = typed(CAPITAL, ":new", "how large is it?", replies=[SEAT, AREA]).out
    assert "Understood as" not in printed


def test_a_chosen_topic_is_not_mixed_with_the_questions_before(typed) -> None:
    printed = typed(CAPITAL, ":topic Jamaica", "how large is it?", replies=[SEAT, []]).out
    assert "Kingston?" not in printed


def test_paths_queries_and_topics_of_all_parts_can_be_looked_at(typed) -> None:
    both = "what is jamaican money called? And how large is kingston?"
    printed = typed(both, ":path", ":sparql", ":topic", replies=[MONEY, AREA]).out
    _, _, paths, queries, topics = printed.split("kbqa> ")[:5]
    assert paths.splitlines() == [
        "Jamaica (m.03_r3) -> location.country.currency_used",
        "",
        "Kingston (m.03yl7) -> location.location.area",
    ]
    assert queries.count("SELECT DISTINCT ?x") == 2
    assert topics == "1  Jamaica  (m.03_r3)\n2  Kingston  (m.03yl7)\n"


@pytest.mark.parametrize("topic", ["m.03_r3", "jamaica", "1"])
def test_a_topic_holds_until_another_is_chosen(typed, topic: str) -> None:
    printed = typed(QUESTION, ":topic", f":topic {topic}", ":topic none", replies=[MONEY]).out
    assert "kbqa> 1  Jamaica  (m.03_r3)\n" in printed
    assert "kbqa> kbqa (Jamaica)> kbqa> " in printed


def test_the_chosen_topic_is_what_the_question_is_about(typed) -> None:
    printed = typed(":topic Kingston", QUESTION, ":json", replies=[MONEY]).out
    assert '"m.03yl7"' not in printed.partition("{")[0]
    assert typed("x?", ":topic", topics=[Entity(mid="m.03yl7")], replies=[MONEY]).out.endswith(
        "1  Kingston  (m.03yl7)\nkbqa (Kingston)> \n"
    )


def test_a_topic_that_is_not_there_is_told(typed) -> None:
    assert typed(":topic", ":topic Zorblax").err.splitlines() == [
        "Error: no question has had a topic yet; :topic NAME chooses one",
        "Error: no entity in the graph has a name like 'Zorblax'",
    ]


def test_a_path_of_several_lines_is_run(typed) -> None:
    path = "Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling"
    male = "?x -> people.person.gender = Male"
    printed = typed(f":path {path}", male, "", ":path", f":path {path}")
    brother, shown, both = printed.out.split("kbqa> ")[1:4]
    assert "Jaxon Bieber" in brother
    assert "Jazmyn Bieber" not in brother
    assert shown.splitlines()[1].startswith("?x -> people.person.gender = Male")
    assert "Jazmyn Bieber" in both
    assert "[sibling relationship m.0gxnnwd]" not in both


def test_a_path_that_cannot_be_read_is_told(typed) -> None:
    printed = typed(":path nonsense", "", ":help")
    assert printed.err.startswith("Error: ")
    assert ":quit" in printed.out


def test_without_a_terminal_a_question_is_needed() -> None:
    result = CliRunner().invoke(main, ["ask"])
    assert result.exit_code == 2
    assert "Missing argument 'QUESTION'." in result.stderr


TESTS = Path(__file__).parents[2]
CHILD = f"""
import os, sys, time
sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent)!r}]
os.close(os.open(os.ttyname(0), os.O_RDWR))  # so that Ctrl-C is a signal
from conftest import ScriptedGenerator
from kbqa.engine.cli import main
from kbqa.engine.writing.generate import ModelChoice

class Slow(ScriptedGenerator):
    def generate(self, requests, *rest, **settings):
        if "wait" in requests[0].question:
            time.sleep(60)
        return super().generate(requests, *rest, **settings)

money = [("Main Path:\\n Jamaica -[location , country , currency used]-> ?x", -0.5)]
ModelChoice.load = lambda *_: Slow(money, money)
main(["ask", "--store", sys.argv[1]], prog_name="kbqa")
"""


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *command: str, folder: Path) -> None:
        self._ours, theirs = os.openpty()
        self.shown = ""
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            cwd=folder,
            env=environment,
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def expect(self, text: str, timeout_s: float = 120) -> str:
        """Wait until a text is shown, and return what was shown before it."""
        ends_at = time.monotonic() + timeout_s
        while text not in self.shown:
            ready, _, _ = select.select([self._ours], [], [], max(ends_at - time.monotonic(), 0))
            assert ready, f"no {text!r} in {self.shown!r}"
            self.shown += os.read(self._ours, 4096).decode("utf-8", "replace")
        before, _, self.shown = self.shown.partition(text)
        return before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a Unix terminal")
def test_a_terminal_is_asked_until_ctrl_d(small_store: Path, tmp_path: Path) -> None:
    terminal = Terminal(sys.executable, "-c", CHILD, str(small_store), folder=tmp_path)
    try:
        terminal.expect("Opening the graph …")
        terminal.expect("Loading the model …")
        terminal.expect(f"\r{' ' * len('Loading the model …')}\r")
        terminal.expect("kbqa> ")
        terminal.type(f"{QUESTION}\n")
        terminal.expect("\x1b[1mJamaican dollar")
        terminal.expect("kbqa> ")
        terminal.type("please wait\n")
        terminal.expect("Answering …")
        time.sleep(0.5)
        terminal.type("\x03")
        terminal.expect("Stopped.")
        terminal.expect("kbqa> ")
        terminal.type("half a ques")
        terminal.expect("half a ques")
        time.sleep(0.5)  # Until the program waits again: Python's readline misses a signal before.
        terminal.type("\x03")
        terminal.expect("kbqa> ")
        terminal.type(f"{QUESTION}\n")
        terminal.expect("Jamaican dollar")
        terminal.expect("kbqa> ")
        terminal.type("\x04")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.close()
    history = tmp_path / "state" / "kbqa" / "history"
    assert QUESTION in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o077 == 0


KBQA = "from kbqa.engine.cli import main; main(prog_name='kbqa')"
LISTS_MODULES = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
HEAVY = {
    "SPARQLWrapper",
    "fastapi",
    "mcp",
    "numpy",
    "openai",
    "polars",
    "pydantic",
    "pyoxigraph",
    "rdflib",
    "torch",
    "transformers",
    "uvicorn",
}


def _complete(*words: str) -> "subprocess.CompletedProcess[str]":
    asked = {
        "_KBQA_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("kbqa", *words)),
        "COMP_CWORD": str(len(words)),
    }
    return subprocess.run(
        [sys.executable, "-c", f"{LISTS_MODULES}\n{KBQA}"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )


def _completed(run: "subprocess.CompletedProcess[str]") -> list[str]:
    return [line.partition(",")[2] for line in run.stdout.splitlines()]


def test_tab_after_kbqa_imports_no_command() -> None:
    run = _complete("")
    assert _completed(run) == list(COMMANDS)
    modules = set(run.stderr.split())
    assert not {command.place.partition(":")[0] for command in COMMANDS.values()} & modules
    assert not {name.split(".")[0] for name in modules} & HEAVY


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["--v"], ["--version", "--verbose"]),
        (["re"], ["report", "retrieve", "relations"]),
        (["ask", "--call"], ["--call-budget"]),
        (["ask", "--method", "kn"], ["knowpath"]),
        (["methods", "kn"], ["knowpath"]),
        (["crp", "comp"], ["compile"]),
    ],
    ids=" ".join,
)
def test_tab_completes_commands_and_options_without_heavy_packages(
    words: list[str], completed: list[str]
) -> None:
    run = _complete(*words)
    assert _completed(run) == completed
    assert not {name.split(".")[0] for name in run.stderr.split()} & HEAVY


def test_tab_is_silent_where_the_settings_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kbqa.toml").write_text("store = ", encoding="utf-8")
    monkeypatch.setenv("KBQA_STOER", "x")
    run = _complete("ask", "--js")
    assert _completed(run) == ["--json"]
    assert "Warning" not in run.stderr


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o nosort -F _kbqa_completion kbqa"),
        ("zsh", "#compdef kbqa"),
        ("fish", "complete --no-files --command kbqa"),
    ],
)
def test_each_shell_has_a_script(shell: str, line: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert any(each.strip().startswith(line) for each in result.stdout.splitlines())


def test_help_shows_no_sign_of_how_its_lines_are_kept() -> None:
    lines = CliRunner().invoke(main, ["completion", "--help"]).stdout.splitlines()
    assert "  kbqa completion zsh > ~/.zfunc/_kbqa    # a folder of your fpath" in lines
    assert not any("\\b" in line for line in lines)


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    program = tmp_path / "kbqa"
    program.write_text(f"#!{sys.executable}\n{KBQA}\n", encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "script").write_text(
        CliRunner().invoke(main, ["completion", "bash"]).stdout, encoding="utf-8"
    )
    line = "source script; COMP_WORDS=(kbqa comp); COMP_CWORD=1; _kbqa_completion kbqa"
    run = subprocess.run(
        [bash, "--norc", "-c", f"{line}; echo ${{COMPREPLY[@]}}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout.split(), run.stderr) == (["compare", "completion"], "")
