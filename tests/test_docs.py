"""What the documents show is what happens.

In README.md and docs/*.md, every `$ kbqa …` of a block of ``console`` is run, with the
here-document that it may have, and every block of ``python`` is a doctest. A line `…` stands for
any lines, and a number of seconds for any other. Blocks of other languages are not run.
"""

import doctest
import json
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from kbqa.engine import methods
from kbqa.engine.cli import main
from kbqa.engine.engine import Engine
from kbqa.kb.open import open_graph

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*sorted(ROOT.glob("*.md")), *DOCUMENTS[1:], ROOT / "tools" / "README.md"]

_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECONDS = re.compile(r"\b\d+(\.\d+)? s\b")
_HERE_DOCUMENT = re.compile(
    r"(?P<command>.*) <<'(?P<end>\w+)'\n(?P<text>.*?\n)(?P=end)\n", re.DOTALL
)


class Snippet(NamedTuple):
    language: str
    text: str
    place: str


def _snippets() -> list[Snippet]:
    found = []
    for path in DOCUMENTS:
        document = path.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(document):
            line = document.count("\n", 0, block.start()) + 1
            place = f"{path.relative_to(ROOT)}:{line}"
            found.append(Snippet(block[1], block[2], place))
    return found


SNIPPETS = _snippets()
CONSOLE = [snippet for snippet in SNIPPETS if snippet.language == "console"]
PYTHON = [snippet for snippet in SNIPPETS if snippet.language == "python"]


class Session(NamedTuple):
    command: str
    stdin: str
    expected: str


def _split_session(session: str) -> Session:
    if (found := _HERE_DOCUMENT.match(session)) is not None:
        return Session(found["command"], found["text"], session[found.end() :])
    command, _, expected = session.partition("\n")
    return Session(command, "", expected)


def _comparable(output: str) -> str:
    return re.sub(r"^…$", "...", _SECONDS.sub("1 s", output), flags=re.MULTILINE)


@pytest.mark.parametrize("snippet", CONSOLE, ids=lambda snippet: snippet.place)
def test_console(snippet: Snippet, tmp_path: Path) -> None:
    before, *sessions = re.split(r"^\$ ", snippet.text, flags=re.MULTILINE)
    assert not before
    for session in sessions:
        command, stdin, expected = _split_session(session)
        program, *arguments = shlex.split(command)
        assert program == "kbqa", f"{command} is not kbqa: write it in a block of sh"
        run = subprocess.run(
            [sys.executable, "-m", "kbqa.engine.cli", *arguments],
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        wanted, got = _comparable(expected), _comparable(run.stdout)
        assert doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS), run.stdout


@pytest.mark.parametrize("snippet", PYTHON, ids=lambda snippet: snippet.place)
def test_python(snippet: Snippet) -> None:
    test = doctest.DocTestParser().get_doctest(snippet.text, {}, snippet.place, snippet.place, 0)
    assert test.examples, "a block of python holds a session with >>>"
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.DocTestRunner(optionflags=flags).run(test).failed == 0


def test_command_reference_is_what_help_says() -> None:
    command = [sys.executable, "-m", "tools.make.cli_docs"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == run.stdout, (
        "run: python -m tools.make.cli_docs > docs/cli.md"
    )


def _ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PAGES, ids=_ids)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", path.read_text(encoding="utf-8"))
    broken = []
    for target, heading in links:
        page = path.parent / target if target else path
        if not page.exists() or (heading and heading not in _headings(page)):
            broken.append(f"{target}#{heading}" if heading else target)
    assert broken == []


def _headings(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


_COMMAND = re.compile(
    r"(?:\bkbqa (?P<kbqa>(?:crp )?[a-z][a-z-]+)|python -m (?P<tool>tools\.[\w.]+))"
    r"(?P<rest>[^\n|;]*)"
)


def _commands(path: Path) -> list[tuple[str, str, set[str]]]:
    """List the commands of a page's shell blocks: program, name, options."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        (
            "tool" if found["tool"] else "kbqa",
            found["tool"] or found["kbqa"],
            set(re.findall(r"(?<!\S)--[a-z][a-z-]*", found["rest"])),
        )
        for block in blocks
        for found in _COMMAND.finditer(re.sub(r"\s# .*", "", block))
    ]


def _source(module: str) -> str | None:
    """Read a tool's module, and the tools' modules that it may have options from."""
    path = ROOT / module.replace(".", "/")
    file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        return None
    text = file.read_text(encoding="utf-8")
    imported = re.findall(r"^from (tools[.\w]+) import", text, re.MULTILINE)
    return text + "".join(_source(each) or "" for each in imported)


@pytest.mark.parametrize("path", PAGES, ids=_ids)
def test_commands_and_their_options_exist(path: Path) -> None:
    reference = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    helps = dict(re.findall(r"^## kbqa ([^\n]+)\n(.*?)(?=^## |\Z)", reference, re.M | re.S))
    unknown = []
    for program, name, options in _commands(path):
        known = helps.get(name) if program == "kbqa" else _source(name)
        if known is None:
            unknown.append(name)
        else:
            unknown += [f"{name} {each}" for each in sorted(options) if each not in known]
    assert unknown == []


@pytest.mark.parametrize("path", PAGES, ids=_ids)
def test_prose_has_no_endless_lines(path: Path) -> None:
    if path.name in ("CHANGELOG.md", "cli.md"):
        return
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert [line for line in text.splitlines() if len(line) > 420 and line[0] != "|"] == []


def test_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in DOCUMENTS[1:]} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_architecture_names_every_room() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {
        path.parent.name
        for folder in ("sparql", "kb", "engine", "training")
        for path in (ROOT / folder).glob("*/__init__.py")
    }
    assert {room for room in rooms if f"{room}/`" not in page} == set()


def test_architecture_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    trace = re.findall(r"^ *(\d+)  (\S+\.py) ", page, re.MULTILINE)
    gone = [file for _, file in trace if not (ROOT / file).is_file()]
    assert gone == [], "run: python -m tools.make.question_trace docs/architecture.md"
    assert [int(number) for number, _ in trace] == list(range(1, len(trace) + 1))
    assert f"visits {len(trace)} files" in page


def test_the_example_of_a_method_answers(
    small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [source] = re.findall(
        r"^```python\n(.*?)^```$",
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    module = types.ModuleType("one_hop")
    monkeypatch.setitem(sys.modules, "one_hop", module)
    exec(compile(source, "CONTRIBUTING.md", "exec"), vars(module))
    monkeypatch.setitem(methods.METHODS, "one-hop", methods.LazyMethod("one_hop", "one hop"))
    with (
        open_graph(small_store) as graph,
        Engine(graph, method="one-hop", settings={"limit": "5"}) as engine,
    ):
        answer = engine.ask("what is the currency used in Jamaica?")
        nothing = engine.ask("how tall is Jamaica?")
    assert [each.name for each in answer.answers] == ["Jamaican dollar"]
    assert answer.trace.describe() == ["From m.03_r3, follow location.country.currency_used."]
    assert (nothing.answers, nothing.problem) == (
        (),
        "no relation shares a word with the question",
    )

    # A server writes for several questions at once, and an evaluation limits the general model.
    with open_graph(small_store) as graph, Engine(graph, method="one-hop") as engine:
        written: list[int] = []
        engine.write_each(
            [engine.prepare("who?")], lambda at, _: written.append(at), lambda at: True
        )
    assert written == [0]
    questions, output = tmp_path / "questions.jsonl", tmp_path / "run.jsonl"
    questions.write_text('{"id": "1", "question": "currency used in Jamaica?", "answers": []}\n')
    command = ["eval", "--questions", str(questions), "--store", str(small_store)]
    command += ["--method", "one-hop", "--output", str(output)]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    [row] = map(json.loads, output.read_text().splitlines())
    assert (row["error"], row["answers"][0]["name"]) == (None, "Jamaican dollar")
