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
        ("people.person.p", (0,)),
        ("people.person", ()),
        ("person.", ()),
        ("None of them, not even film.actor.film", ()),
        ("No relation fits.", ()),
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


SHORTENED = [
    "-> people.person.sibling_s",
    "-> people.person.place_of_birth",
    "-> people.person.places_lived",
    "-> people.sibling_relationship.sibling",
    "<- people.sibling_relationship.sibling",
]


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ("sibling", (3,)),  # whole words before cut ones, and the first of two directions
        ("people.person.s", (0,)),
        ("person.place", ()),  # two begin so: neither is nearer
        ("person.places", (2,)),
        ("take -> people.person.places_lived here", (2,)),
    ],
)
def test_a_shortened_relation_is_the_nearest_one_or_none(
    reply: str, chosen: tuple[int, ...]
) -> None:
    assert read_choice(reply, SHORTENED, 3, is_loose=True).chosen == chosen


REFUSALS = [
    "No relevant path",
    "No answer found.",
    "Not enough information",
    "N/A",
    "NONE",
    "Answer: None of the above",
    "I cannot answer this question.",
    "I can't determine who the brother of Paris Hilton is.",
    "I do not know the answer.",
    "I'm sorry, but I cannot help with that.",
    "The paths do not contain the answer.",
    "The provided paths do not mention any brother of Paris Hilton, so nothing can be said of him.",
    "The paths do not contain the answer.\nThey only lead to Paris Hilton's albums.",
    "There is no path that leads to the answer.",
    "The question cannot be answered from the given paths.",
    "It is not possible to answer.",
    "Unable to determine",
    "Sorry, there is no information about it.",
    "I see no relevant relation.",
    "Based on the given facts, it is not known.",
    "The answer is unknown.",
    "It cannot be determined.",
    "There isn't any evidence.",
    "Not applicable",
    "We are not able to clearly identify it.",
    "I don't have access to the graph.",
    "None of these.",
]


@pytest.mark.parametrize("reply", REFUSALS)
def test_a_refusal_names_no_answer(reply: str) -> None:
    assert read_names(reply, NAMES)[0] == []
    assert not read_choice(reply, NAMES, 3).chosen
    assert not read_scores(reply, NAMES, 3).chosen


@pytest.mark.parametrize("name", ["None", "Unknown", "N/A", "No Answer", "Not Found", "Nothing"])
def test_what_was_offered_is_an_answer_whatever_it_is_called(name: str) -> None:
    offered = ["Paris", name]
    assert read_names(name, offered)[0] == [name]
    assert read_names(f"Paris, {name}", offered)[0] == offered
    assert read_choice(name, offered, 3).chosen == (1,)


@pytest.mark.parametrize(
    "name",
    [
        "Sorry",
        "I Can't Help It",
        "No Doubt",
        "Don't Answer Me",
        "Not Ready to Make Nice",
        "The Path",
        "I Don't Know How to Love Him",
        "None Shall Pass",
        "Answers in Genesis",
        "Nothing Else Matters",
    ],
)
def test_names_that_begin_as_refusals_do_are_names(name: str) -> None:
    assert read_names(name, [])[0] == [name]


@pytest.mark.parametrize(
    "reply",
    [
        "There is no direct path, but the answer is Paris Hilton.",
        "I do not know.\nParis Hilton",
        "The answer is Paris Hilton. No path says more.",
    ],
)
def test_an_answer_beside_a_refusal_counts_if_it_was_shown(reply: str) -> None:
    assert read_names(reply, NAMES)[0] == ["Paris Hilton"]


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
