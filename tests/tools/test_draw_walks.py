"""Drawings of walks: every triple once, names kept from markup, and plain errors."""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
from click.testing import CliRunner

from tools.make.draw_walks import main

ANSWER: dict[str, Any] = {
    "id": "q1",
    "answers": [
        {"mid": "m.1", "name": 'The "A" [x] | y', "origin": "graph"},
        {"mid": "m.2", "name": "B", "origin": "named"},
    ],
    "trace": {
        "walks": [
            {"topic": "m.t", "steps": [["m.0", "a.b", "m.t", True], ["m.0", "c.d", "m.1", False]]},
            {"topic": "m.t", "steps": [["m.0", "a.b", "m.t", True], ["m.0", "c.d", "1990", False]]},
        ],
        "dead_ends": [{"topic": "m.t", "steps": [["m.t", "e.f", "m.2", False]]}],
        "names": {"m.t": "Topic\\", "m.1": 'The "A" [x] | y', "m.2": "B"},
    },
}


def draw(text: str, *arguments: str) -> str:
    drawn = CliRunner().invoke(main, [*arguments, "-"], input=text)
    assert drawn.exit_code == 0, drawn.output
    return drawn.output


@pytest.mark.parametrize("indent", [None, 2])
def test_mermaid_shows_each_triple_once(indent: int | None) -> None:
    drawn = draw(json.dumps(ANSWER, indent=indent))
    assert drawn.splitlines()[:6] == [
        "flowchart LR",
        '    n0["Topic#92;"]',
        '    n1["m.0"]',
        '    n2["The #34;A#34; #91;x#93; #124; y"]',
        '    n3["1990"]',
        '    n4["B"]',
    ]
    assert re.findall(r"n\d -.*", drawn) == [
        'n1 -->|"a.b"| n0',
        'n1 -->|"c.d"| n2',
        'n1 -.->|"c.d"| n3',
        'n0 -.->|"e.f"| n4',
    ]
    assert re.findall("class n.*", drawn) == ["class n0 topic", "class n2 answer"]


def test_dot_draws_the_row_of_an_id() -> None:
    rows = [{"id": "q0", "trace": None}, ANSWER]
    drawn = draw("\n".join(map(json.dumps, rows)), "--format", "dot", "--id", "q1")
    assert 'n2 [label="The \\"A\\" [x] | y", style="rounded,filled,bold"' in drawn
    assert 'n0 -> n4 [label="e.f", style=dashed, color=gray50];' in drawn
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=drawn.encode(), check=True, capture_output=True)


@pytest.mark.parametrize(
    ("text", "arguments", "problem"),
    [
        ('{"id": "q0", "trace": null}', (), "has no walks"),
        ("", (), "there is no answer"),
        ('{"id": "q0"}', ("--id", "q1"), "no row has the id q1"),
        ("{", (), "line 1 cannot be drawn: it is not JSON. Give what `kbqa ask --json` printed"),
        ("[1]", (), "line 1 cannot be drawn"),
        ('{"id": "q0"}\n\n"x"', (), "line 3 cannot be drawn"),
        (
            '{"trace": {"walks": [{"topic": "m.1", "steps": [[1, 2]]}]}}',
            (),
            "trace.walks.0.steps.0",
        ),
        (
            '{"trace": null, "error": "QueryTimeout: 5 s"}',
            (),
            "failed, so there are no walks: Query",
        ),
    ],
)
def test_what_cannot_be_drawn_is_said(text: str, arguments: tuple[str, ...], problem: str) -> None:
    drawn = CliRunner().invoke(main, [*arguments, "-"], input=text)
    assert drawn.exit_code == 1
    assert problem in drawn.output
