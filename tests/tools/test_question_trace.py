"""How many files a question passes on its way, and what counts as handing it on."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbqa.engine.asked import Asked
from kbqa.engine.writing.generate import Candidate, Request
from tools.make.question_trace import holds

VISITED = 54
STOPS = 23
"""Upper limits. A capability that needs more files raises them where it is added: by three files
and one stop, at most."""


def test_a_question_passes_no_more_files_than_before() -> None:
    command = [sys.executable, "-m", "tools.make.question_trace"]
    for _ in range(2):  # at first the demo graph is loaded and the model converted
        run = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
        )
    figures = re.fullmatch(r"visited (\d+), stops (\d+)\n", run.stdout)
    assert figures is not None, run.stdout
    visited, stops = map(int, figures.groups())
    assert 0 < visited <= VISITED
    assert 0 < stops <= STOPS


@pytest.mark.parametrize(
    ("value", "is_handed"),
    [
        ("who?", True),
        ("Answer this: who?", True),
        ("who", False),
        (Asked("another"), True),
        (Candidate("[Kenya] -> [capital]", -1.0, 3), True),
        (Request("who?"), True),
        (Request("another"), False),
        ({"args": [("ask", "who?")]}, True),
        ([Asked], False),
        (lambda: "who?", False),
        (None, False),
    ],
)
def test_what_holds_a_question(value: object, is_handed: bool) -> None:
    assert holds(value, "who?") == is_handed
