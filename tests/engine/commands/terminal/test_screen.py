import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import pytest

from kbqa.engine.commands.terminal.screen import PAPER, Line, Screen, standard_output, waiting


@contextmanager
def _terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make a real terminal of 40 columns stdout and stderr; yield its other end."""
    monkeypatch.setenv("COLUMNS", "40")
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    ours, theirs = os.openpty()
    with (
        open(theirs, "w", encoding="utf-8") as stream,  # noqa: PTH123 - it is a descriptor
        redirect_stdout(stream),
        redirect_stderr(stream),
    ):
        yield ours
    os.close(ours)


def test_a_terminal_has_a_width_and_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    with _terminal(monkeypatch):
        assert standard_output() == Screen(40, True)
        monkeypatch.setenv("TERM", "dumb")
        assert standard_output() == Screen(40, False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", "1")
        assert standard_output() == Screen(40, False)
        monkeypatch.setenv("NO_COLOR", "")  # as good as unset, says no-color.org
        assert standard_output().has_colours


@pytest.mark.parametrize("stream", [io.StringIO(), None], ids=["file", "closed"])
def test_anything_else_has_neither(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", stream)
    assert standard_output() == PAPER


def test_words_wrap_below_their_line_and_queries_do_not() -> None:
    screen = Screen(30)
    text = "  From Kenya, follow location.country.capital to the answers."
    assert screen.write(Line(text)).splitlines() == [
        "  From Kenya, follow",
        "    location.country.capital",
        "    to the answers.",
    ]
    assert screen.write(Line(text, wraps=False)) == text
    assert PAPER.write(Line(text)) == text
    assert Screen(5).write(Line(text)) == text


def test_only_a_screen_with_colours_gets_escapes() -> None:
    assert Screen(80, True).write(Line("Nairobi", "answer")) == "\x1b[1mNairobi\x1b[0m"
    assert Screen(80, False).write(Line("Nairobi", "answer")) == "Nairobi"
    assert Screen(80, True).write(Line("", "answer")) == ""


@pytest.mark.parametrize("screen", [PAPER, Screen(80), Screen(80, True)])
def test_a_name_cannot_steer_the_terminal(screen: Screen) -> None:
    written = screen.write(Line("a\x1b[2J\x9b31m\u202eb\nc\td\x07"))
    assert written == "a�[2J�31m�b c d�"


def test_the_word_while_one_waits_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    with _terminal(monkeypatch) as terminal:
        with waiting("Loading the model"):
            said = os.read(terminal, 99)
        assert said.decode() == "Loading the model …"
        assert os.read(terminal, 99).decode() == f"\r{' ' * 19}\r"


def test_without_a_terminal_nobody_waits_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("Loading the model"):
        pass
    assert capsys.readouterr() == ("", "")
