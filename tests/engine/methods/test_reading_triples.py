"""What a language model is shown of triples, and the nodes that its answers name."""

import pytest

from kbqa.engine.methods.retrieval import (
    follow_up,
    in_order,
    match_answers,
    reading_prompt,
    said_answers,
)
from kbqa.engine.retrieval.retrieval import RetrievedTriple
from kbqa.sparql.terms import LiteralTerm, Term

KENYA, NAIROBI, BOOK, YEAR = "m.kenya", "m.nairobi", "m.book", LiteralTerm("1963", "gYear")
NAMES: dict[Term, str] = {
    KENYA: "Kenya",
    NAIROBI: "Nairobi",
    BOOK: "Kenya",
    "m.role": "m.role",
    "m.dc": "Washington, D.C.",
    YEAR: "1963",
}
TRIPLES = [
    RetrievedTriple(KENYA, "location.country.capital", NAIROBI, 0.9, None),
    RetrievedTriple(NAIROBI, "location.location.twin", "m.dc", 0.5, None),
    RetrievedTriple(KENYA, "location.country.founded", YEAR, 0.4, 0.45),
    RetrievedTriple(BOOK, "book.book.role", "m.role", 0.3, None),
]


def last_prompt(form, order) -> str:
    shown = in_order(TRIPLES, order)
    return reading_prompt("Where?", shown, NAMES.__getitem__, form)[-1].content


def test_triples_stand_on_their_own_the_best_first() -> None:
    assert last_prompt("triples", "descending").splitlines() == [
        "Triples:",
        "(Kenya, location.country.capital, Nairobi)",
        "(Nairobi, location.location.twin, Washington, D.C.)",
        "(Kenya, location.country.founded, 1963)",
        "(Kenya, book.book.role, m.role)",
        "",
        "Question: Where?",
    ]


def test_paths_go_on_only_from_the_same_node() -> None:
    """The book has the name of the country, and a triple before it is not a way to it."""
    lines = last_prompt("paths", "descending").splitlines()
    assert lines[1] == (
        "Kenya -> location.country.capital -> Nairobi -> location.location.twin -> Washington, D.C."
    )
    assert len(lines) == 6
    assert last_prompt("paths", "ascending").splitlines()[1].endswith("m.role")


def test_the_best_triples_can_be_at_both_ends() -> None:
    assert [each.score for each in in_order(TRIPLES, "edges")] == [0.9, 0.4, 0.3, 0.5]


def test_a_second_request_does_not_show_the_first_reply() -> None:
    prompt = reading_prompt("Where?", TRIPLES, NAMES.__getitem__, "paths")
    assert [message.role for message in prompt] == ["system", "user", "assistant", "user"]
    assert [message.role for message in follow_up(prompt, "paths")][3:] == ["user", "user"]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("ans: Nairobi", ["Nairobi"]),
        ("It is the capital.\n- **ans: Nairobi**\n2. Ans: Mombasa.", ["Nairobi", "Mombasa"]),
        ("ans: Nairobi ans: Mombasa ans: Nairobi", ["Nairobi", "Mombasa"]),
        ("Answers: Washington, D.C.", ["Washington, D.C"]),
        ("ans: none\nans: not available\nans:", []),
        ("Nairobi, because trans: lations differ", []),
        ("", []),
    ],
)
def test_answers_follow_their_mark(reply: str, said: list[str]) -> None:
    assert said_answers(reply) == said


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        ("nairobi", [NAIROBI]),
        ("Washington, D.C", ["m.dc"]),
        ("1963", [YEAR]),
        ("m.role", ["m.role"]),
        ("the city of Nairobi", [NAIROBI]),
        ("Washington", ["m.dc"]),
        ("Mombasa", []),
        ("Nairobi or 1963", []),  # two names: it could be either
        ("Nair", []),  # no whole word
    ],
)
def test_an_answer_is_a_node_of_the_triples(said: str, answers: list[Term]) -> None:
    found = match_answers([said], TRIPLES, NAMES, {KENYA})
    assert list(found.answers) == answers
    assert list(found.unmatched) == ([] if answers else [said])


def test_of_nodes_of_one_name_the_topic_counts_last_and_then_the_best_triple() -> None:
    assert match_answers(["Kenya"], TRIPLES, NAMES, {KENYA}).answers == (BOOK,)
    assert match_answers(["Kenya"], TRIPLES, NAMES, set()).answers == (KENYA,)
    assert match_answers(["Kenya"], TRIPLES[:1], NAMES, {KENYA}).answers == (KENYA,)
