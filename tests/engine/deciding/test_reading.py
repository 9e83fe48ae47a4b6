import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.deciding.reading import (
    MAX_UNREAD,
    is_no_answer,
    names_within,
    plain_lines,
    read_choice,
    read_list,
    read_names,
    read_record,
    read_scores,
    read_yes,
)

RELATIONS = ["people.person.parents", "people.person.children", "film.actor.film"]
NAMES = ["Paris", "Paris Hilton", "Washington, D.C.", 'Say "Hi"', "1990", "Paris"]


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ("people.person.children", (1,)),
        ("1. people.person.children\n2. film.actor.film", (1, 2)),
        ("- **PEOPLE.PERSON.PARENTS**", (0,)),
        ("person.children", (1,)),
        ("I would follow film.actor.film first", (2,)),
        ("3\n1", (2, 0)),
        ("['film.actor.film', 'people.person.parents']", (2, 0)),
        ("film.actor.film\nfilm.actor.film", (2,)),
        ("film.actor.film\nSTOP\npeople.person.parents", (2,)),
        ("stop", ()),
        ("[]", ()),
        ("music.artist.album", ()),
        ("7", ()),
        ("", ()),
    ],
)
def test_relations_as_models_write_them(reply: str, chosen: tuple[int, ...]) -> None:
    assert read_choice(reply, RELATIONS, 3, is_loose=True).chosen == chosen


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ("paris hilton", (1,)),
        ("Paris, France", ()),
        ("1990", (4,)),
        ("3", (2,)),
        ('"Say "Hi""', (3,)),
        ("6. Paris", (0,)),
    ],
)
def test_names_must_be_those_that_were_offered(reply: str, chosen: tuple[int, ...]) -> None:
    assert read_choice(reply, NAMES, 3).chosen == chosen


@given(st.text(max_size=300), st.integers(1, 4))
def test_no_reply_fails_or_chooses_too_much(reply: str, most: int) -> None:
    for is_loose in (False, True):
        picked = read_choice(reply, RELATIONS, most, is_loose=is_loose)
        assert len(picked.chosen) <= most
        assert set(picked.chosen) <= set(range(len(RELATIONS)))
        assert len(picked.unread) <= MAX_UNREAD
    scored = read_scores(reply, RELATIONS, most)
    assert all(0 <= score <= 1 for score in scored.scores)
    assert len(scored.chosen) == len(scored.scores) <= most
    read_names(reply, NAMES)
    read_record(reply)
    read_list(reply)


@given(st.text(alphabet="{}[]\"'\\,:ab1\n", max_size=60))
def test_broken_brackets_never_fail(reply: str) -> None:
    read_record(reply)
    read_list(reply)


def test_deeply_nested_brackets_are_not_read() -> None:
    assert read_list("[" * 5000) is None
    assert read_record("{" * 5000 + "}" * 5000) is None


@pytest.mark.parametrize(
    ("reply", "scored"),
    [
        ('{"film.actor.film": 0.9, "people.person.parents": "0.2"}', {2: 0.9}),
        ("1. film.actor.film (Score: 0.7): it fits\n", {}),
        ("1. film.actor.film (Score: 0.7)\npeople.person.parents: high", {2: 0.7}),
        ("film.actor.film: 0.7\npeople.person.parents - 1.5", {2: 0.7, 0: 1.0}),
        ("{'film.actor.film': nan}", {}),
        ('{"people.person.children": 0.7, "film.actor.film": 2}', {2: 1.0, 1: 0.7}),
        ("film.actor.film: 0.5\nfilm.actor.film: 0.9", {2: 0.5}),
    ],
)
def test_scores(reply: str, scored: dict[int, float]) -> None:
    picked = read_scores(reply, RELATIONS, 3)
    assert dict(zip(picked.chosen, picked.scores, strict=True)) == scored


@pytest.mark.parametrize(
    ("reply", "names"),
    [
        ("Washington, D.C., Paris", ["Washington, D.C.", "Paris"]),
        ("- Paris Hilton\n- Rome", ["Paris Hilton", "Rome"]),
        ("The answer is: Paris", ["Paris"]),
        ("After thinking about all of the paths I am quite sure that it is Paris Hilton.",
         ["Paris Hilton"]),
        ("I am sorry, but I cannot answer this question because nothing is known about it.", []),
        ("None", []),
        ("['Paris', 'Rome']", ["Paris", "Rome"]),
        ("Paris\nparis\nPARIS", ["Paris"]),
    ],
)  # fmt: skip
def test_answers_as_models_write_them(reply: str, names: list[str]) -> None:
    assert read_names(reply, NAMES)[0] == names


def test_an_endless_word_is_no_name() -> None:
    names, unread = read_names("A" * 100_000, NAMES)
    assert names == []
    assert unread == ("A" * 80,)


def test_names_that_differ_in_commas_alone_are_not_broken() -> None:
    known = ["Wine, Women and Songs", "Wine, Women, and Songs"]
    for name in known:
        assert len(read_names(f'["{name}"]', known)[0]) == 1


LOCATED = [
    "-> location.location.contains",
    "-> location.location.contains_major_portion_of",
    "<- location.location.contains",
]


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ("location.location.contains", 0),
        ("-> location.location.contains", 0),
        ("1. -> location.location.contains", 0),
        ("<- location.location.contains", 2),
        ("2", 1),
    ],
)
def test_a_relation_is_not_taken_for_a_longer_one_that_begins_alike(
    reply: str, chosen: int
) -> None:
    assert read_choice(reply, LOCATED, 3, is_loose=True).chosen == (chosen,)
    assert read_scores(f"{reply}: 0.5", LOCATED, 3, is_loose=True).chosen == (chosen,)


@pytest.mark.parametrize(
    "piece", ["{", "[", ": ", "= ", "- ", ", ", "[[]]", "{'a':", "5 ", "a, b\n"]
)
def test_an_endless_reply_is_read_at_once(piece: str) -> None:
    reply = piece * (10_000 // len(piece))
    started = time.process_time()
    read_choice(reply, LOCATED, 3, is_loose=True)
    read_scores(reply, LOCATED, 3, is_loose=True)
    read_names(reply, NAMES)
    assert time.process_time() - started < 1.0


def test_the_first_list_or_record_is_read() -> None:
    assert read_list("My choice: ['a.b', 'c.d']") == ["a.b", "c.d"]
    assert read_list("a.b") is None
    record = {"Sufficient": "Yes", "Answer": ["Paris"]}
    assert read_record('Sure: {"Sufficient": "Yes", "Answer": ["Paris"]}') == record


def test_lines_lose_what_only_lists_them() -> None:
    assert plain_lines("```\n1. Paris\n- **Rome**\n```") == ["Paris", "Rome"]


def test_names_in_a_sentence_come_in_its_order() -> None:
    known = ["Kenya", "Nairobi", "Eve"]
    assert names_within("It is Nairobi, in Kenya.", known) == ["Nairobi", "Kenya"]
    assert is_no_answer("None.")
    assert is_no_answer("not available")
    assert not is_no_answer("Nairobi")


def test_yes_is_read_at_the_beginning_alone() -> None:
    assert read_yes(True)
    assert not read_yes("Not sure")
    assert read_yes("{Yes}. It is Paris.")
    assert read_yes("**YES**")
    assert not read_yes("No, yes would be wrong.")
    assert not read_yes("Yesterday")
    assert not read_yes(None)
