import json
from pathlib import Path

import pytest

from kbqa.training.data.training_set import Example
from tools.fit.example_statistics import (
    RelationCoverage,
    cover_relations,
    describe_examples,
    statistics_lines,
)

TARGETS = (
    "Kenya -> location.country.capital",
    "Kenya -> people.person.parents -> people.person.parents\n?x -> people.person.gender = Male",
    "Kenya -> film.film.cast\n?x -> film.actor.born > 1990\n?x -> a.b = [A]\nlargest ?x -> a.b",
    "Main Path:\n Kenya -[a , b]-> ?x\nString Restrictions:\n ?x -[a , c]-> ?n\n"
    '  FILTER (str(?n) = "N")',
)
EXAMPLES = [
    Example(str(number), "?", target, "ours" if number else "theirs")
    for number, target in enumerate(TARGETS)
]


def test_examples_are_counted_by_what_is_in_them() -> None:
    statistics = describe_examples(EXAMPLES)
    assert statistics.n == 4
    assert statistics.sources == {"theirs": 1, "ours": 3}
    assert statistics.hops == {1: 3, 2: 1}
    assert statistics.constraints == {"entity": 2, "numeric": 1, "string": 1, "superlative": 1}
    assert statistics.unconstrained == 1
    assert {"location.country.capital", "film.actor.born", "a.b", "a.c"} <= statistics.relations


@pytest.fixture
def test_set(tmp_path: Path) -> Path:
    rows = [
        {"question": "1?", "sparql": "SELECT ?x { ns:m.0k ns:a.b ?y . ?y ns:a.b ?x }"},
        {"question": "2?", "sparql": "SELECT ?x { ns:m.0k ns:a.b ?y . ?y ns:a.new ?x }"},
        {"question": "3?", "crp_routerkgqa": "Main Path:\n Kenya -[a , c]-> ?x"},
        {"question": "4?", "sparql": "what?"},
        {"question": "5?"},
    ]
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_relation_counts_once_a_question(test_set: Path) -> None:
    assert cover_relations(frozenset({"a.b", "a.c"}), test_set) == RelationCoverage(
        "test.jsonl", questions=3, whole_questions=2, occurrences=4, known_occurrences=3
    )


def test_the_tables(test_set: Path) -> None:
    statistics = describe_examples(EXAMPLES)
    lines = list(statistics_lines(statistics, [cover_relations(statistics.relations, test_set)]))
    assert "| from ours | 3 | 75.0 % |" in lines
    assert "| main path of 2 hops | 1 | 25.0 % |" in lines
    assert "| with superlative | 1 | 25.0 % |" in lines
    assert "| with none of these | 1 | 25.0 % |" in lines
    assert lines[-1] == "| test.jsonl | 3 | 3 of 4 | 75.0 % | 2 | 66.7 % |"


def test_no_examples() -> None:
    assert "| with none of these | 0 | – |" in statistics_lines(describe_examples([]))
