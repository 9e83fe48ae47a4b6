from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbqa.engine.linking.linker import Linker
from kbqa.kb.open import open_graph
from kbqa.sparql.errors import InputError
from tools.fit.linker import (
    ChoiceSet,
    LinkingExample,
    fit_weights,
    linking_example,
    read_linking_examples,
    train_linking_model,
)

QUERY = """SELECT ?x {
    ns:m.0a ns:people.person.place_of_birth ?y . ?y ns:location.location.containedby ns:m.0b }"""


@pytest.fixture(scope="module")
def countries(demo_store: Path) -> Iterator[tuple[list[LinkingExample], Linker]]:
    """Made-up questions on the demo graph, and a linker trained on them."""
    with closing(open_graph(demo_store)) as graph, closing(graph.names()) as names:
        found = [names.lookup(name)[0] for name in COUNTRIES]
        examples = [
            LinkingExample("made", text.format(match.name), frozenset({match.mid}), (relation,))
            for match in found
            for text, relation in TEMPLATES
        ]
        yield examples, Linker(graph, names, train_linking_model(examples, graph, names))


# fmt: off
COUNTRIES = [
    "Kenya", "Uganda", "Norway", "Sweden", "Poland", "Chile", "Peru", "Bolivia",
    "Japan", "Nepal", "Oman", "Yemen", "Zambia", "Malawi", "Ghana", "Togo",
    "Benin", "Gabon", "Angola", "Cuba",
]
# fmt: on
TEMPLATES = (
    ("what is the capital city of the country {}?", "location.country.capital"),
    ("which currency do people use in {}?", "location.country.currency_used"),
    ("what language is spoken in the country {}?", "location.country.languages_spoken"),
)


def test_a_model_learns_what_questions_are_about(
    countries: tuple[list[LinkingExample], Linker],
) -> None:
    examples, linker = countries
    hits = [linker.link(e.question)[0].mid in e.topics for e in examples]
    assert sum(hits) / len(hits) > 0.95
    # Neither question nor country was in the training.
    assert linker.link("which currency is the currency of Austria?")[0].name == "Austria"


def test_questions_that_do_not_name_their_topic_teach_nothing(demo_store: Path) -> None:
    example = LinkingExample("made", "who is it?", frozenset({"m.0nobody"}), ())
    with (
        closing(open_graph(demo_store)) as graph,
        closing(graph.names()) as names,
        pytest.raises(InputError, match="only 0 questions contain a name of their topic"),
    ):
        train_linking_model([example], graph, names)


@pytest.mark.parametrize(
    ("row", "topics", "relations"),
    [
        (
            {"topic_entities": [{"mid": "m.0a", "name": "A"}], "sparql": QUERY},
            {"m.0a"},
            {"people.person.place_of_birth", "location.location.containedby"},
        ),
        (
            {"sparql": QUERY},
            {"m.0a", "m.0b"},
            {"people.person.place_of_birth", "location.location.containedby"},
        ),
        (
            {"topic_entities": [{"mid": "m.0a"}], "parses": [{"Sparql": "no query"}]},
            {"m.0a"},
            set(),
        ),
    ],
    ids=["with topics", "entities of the query", "a query that is none"],
)
def test_rows_of_all_sets_are_read(
    row: dict[str, object], topics: set[str], relations: set[str]
) -> None:
    example = linking_example({"question": "what?", **row}, "some")
    assert example is not None
    assert (example.topics, set(example.relations)) == (topics, relations)


def test_a_row_without_a_topic_is_no_example() -> None:
    assert linking_example({"question": "what?"}, "some") is None


def test_no_row_is_trained_on_that_a_test_question_was_made_from(tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    file.write_text(
        '{"question": "a?", "subject": "m.0a", "relation": "r.r.r", "test_parent": true}\n'
        '{"question": "b?", "subject": "m.0b", "relation": "r.r.r"}\n'
    )
    assert [example.question for example in read_linking_examples(file)] == ["b?"]


def test_weights_of_a_choice_that_a_feature_decides() -> None:
    choices = [
        ChoiceSet([{"good": 1.0, "noise": n % 3}, {"noise": n // 3 % 3}], [True, False], 1.0)
        for n in range(200)
    ]
    weights = fit_weights(choices)
    assert weights["good"] > 1
    assert abs(weights["noise"]) < 0.3


def test_nothing_to_choose_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to choose"):
        fit_weights([ChoiceSet([{"a": 1.0}], [True], 1.0)])
