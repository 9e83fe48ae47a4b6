"""What the documents show is what happens.

In README.md and docs/*.md, every `$ kbqa …` of a block of ``console`` is run, with the
here-document that it may have, and every block of ``python`` is a doctest. A line `…` stands for
any lines, and a number of seconds for any other. Blocks of other languages are not run.
"""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

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
    command = [sys.executable, str(ROOT / "tools" / "make_cli_docs.py")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == run.stdout, (
        "run: python tools/make_cli_docs.py > docs/cli.md"
    )


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []
