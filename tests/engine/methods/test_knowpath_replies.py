"""Paths as prompts show them, and the readers of replies."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.graph_walk import Walk
from kbqa.engine.methods.knowpath import (
    MAX_HINT_LETTERS,
    MAX_HINTS,
    paths_prompt,
    read_judgement,
    read_thought,
    written_path,
)
from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.terms import LiteralTerm, Term

_NAMES = st.text(min_size=1, max_size=9).filter(lambda name: "->" not in name and "<-" not in name)
_RELATIONS = st.sampled_from(["a.b", "a.b.c", "people.person.parents"])
_NODES = st.one_of(st.integers(0, 99).map("m.0{}".format), st.builds(LiteralTerm, _NAMES))


@st.composite
def walks(draw: st.DrawFn) -> Walk:
    walk = Walk(Entity("topic", "m.topic"))
    for _ in range(draw(st.integers(0, 4))):
        walk = walk.then(Hop(draw(_RELATIONS), draw(st.booleans())), draw(_NODES))
    return walk


def triples(path: str) -> list[tuple[str, str, str]]:
    """Read a written path: an arrow always points at the object."""
    parts = re.split(r" (->|<-) ", path)
    found = []
    for at in range(0, len(parts) - 1, 4):
        left, way, relation, same_way, right = parts[at : at + 5]
        assert way == same_way
        found.append((left, relation, right) if way == "->" else (right, relation, left))
    return found


@given(walks(), st.dictionaries(_NODES, _NAMES))
def test_written_paths_read_back_as_the_triples_walked(walk: Walk, names: dict[Term, str]) -> None:
    def name(node: Term) -> str:
        return f"[{names.get(node, node)}]".replace(" ", "_")

    path = written_path(walk, name)
    stored = [(name(step.subject), step.relation, name(step.object)) for step in walk.steps]
    grows_left = bool(walk.steps) and walk.steps[0].inverse
    assert triples(path) == (stored[::-1] if grows_left else stored)
    assert path.endswith("[m.topic]") if grows_left else path.startswith("[m.topic]")


def test_no_triples_are_asked_for_at_0() -> None:
    assert "15 facts" in paths_prompt("who?", 15)[-1].content
    assert not re.search("facts|triples", paths_prompt("who?", 0)[-1].content)


@pytest.mark.parametrize(
    ("reply", "hint", "names"),
    [
        ('```json\n{"path": "A -> r -> B", "answers": "B"}\n```', ["A -> r -> B"], ["B"]),
        (
            '{"triples": [["A", "r", "B"]], "path": ["A →\\n r → B"], "answers": ["B"]}',
            ["A -> r -> B"],
            ["B"],
        ),
        (
            "Facts: (A, r, B)\nA -> r -> B\nThe final answer is: B",
            ["A -> r -> B"],
            ["B"],
        ),
        (
            '{reasoning_path : ["A→r→B"], "response": "based on the knowledge, the answer to the '
            'question what is B to A is B" }',
            ["A -> r -> B"],
            ["B"],
        ),
        ('{"path": ["no arrows"], "answers": ["unknown"]}', [], []),
        ('{"path": [], "answers": ["Washington, D.C.", "B"]}', [], ["Washington, D.C.", "B"]),
        ('{"triples": [["A", "r", "B"], ["A", "r', [], []),
        ("", [], []),
    ],
)
def test_paths_and_answers_from_memory_are_read(
    reply: str, hint: list[str], names: list[str]
) -> None:
    thought = read_thought(reply, "what is B to A?")
    assert (list(thought.hint), list(thought.names)) == (hint, names)
    assert bool(thought.unread) == (reply != "" and not names)


def test_hints_beyond_the_limits_are_recorded_as_unread() -> None:
    paths = ["A -> r -> " + "x" * MAX_HINT_LETTERS, *("A -> r -> B" for _ in range(MAX_HINTS))]
    thought = read_thought(str({"path": paths, "answers": ["B"]}), "?")
    assert len(thought.hint) == MAX_HINTS
    assert max(map(len, thought.hint)) == MAX_HINT_LETTERS
    assert thought.unread == ("x" * 10, "A -> r -> B")


@pytest.mark.parametrize(
    ("reply", "names"),
    [
        ('{"Answerable": True, "Response": "r", "Answers": ["Nairobi"]}', ["Nairobi"]),
        ('{"answerable": "yes", "answers": "D.C., Washington, Nairobi"}', ["Nairobi"]),
        ('{"Answerable": "True", "Response": "Nairobi is the capital of Kenya."}', ["Nairobi"]),
        (
            '{"Answerable": true, "Response": "the answer to the question What is the capital of '
            'Kenya? is Nairobi and Mombasa."}',
            ["Nairobi", "Mombasa"],
        ),
        ('Answerable: True\nResponse: the answer is "Nairobi".', ["Nairobi"]),
        ('{"Answerable": false, "Response": "", "Answers": []}', []),
        ('{"Answerable": false, "Response": "Nairobi", "Answers": ["Nairobi"]}', []),
        ('{"Answerable": true, "Answers": []}', []),
        ("Answerable: no", []),
        ("Nairobi", []),
    ],
)
def test_judgements_are_read(reply: str, names: list[str]) -> None:
    question = "what is the capital of Kenya?"
    verdict = read_judgement(reply, question, ["Kenya", "Nairobi", "Mombasa"])
    assert list(verdict.names) == names
    is_no = re.search(r"\b(false|no)\b", reply) is not None
    assert bool(verdict.unread) == (not names and not is_no)


@given(st.text(max_size=60))
def test_readers_never_fail(reply: str) -> None:
    for text in (reply, f'{{"path": {reply}', f'{{"Answerable": true, "Answers": [{reply}]}}'):
        read_thought(text, reply)
        read_judgement(text, reply, [reply, "Kenya"])
