"""Relations that are suggested with training examples."""

from pathlib import Path

from kbqa.kb.open import open_graph
from kbqa.training.data.suggested import suggest_relations
from kbqa.training.data.training_set import DEMO_SOURCE, Example, Split


def _example(question: str, source: str) -> Example:
    return Example(f"{source} {question}", question, "Jamaica -> location.country.capital", source)


def test_each_example_gets_those_of_its_own_graph(small_store: Path) -> None:
    jamaica, peru = "what is the capital of jamaica?", "what is the capital of peru?"
    split = Split(
        (_example(jamaica, "set"), _example(jamaica, DEMO_SOURCE), _example(peru, "set")),
        (_example(peru, DEMO_SOURCE),),
    )
    done: list[int] = []
    with open_graph(small_store) as graph:
        suggested = suggest_relations(split, graph, 3, done.append)
    (small, demo, unknown), [held_out] = suggested.train, suggested.valid
    assert sum(done) == 4
    assert small.relations[0] == demo.relations[0] == "location.country.capital"
    assert small.relations != demo.relations
    assert (len(demo.relations), unknown.relations) == (3, ())
    assert held_out.relations[0] == "location.country.capital"
    assert [each.target for each in suggested.train] == [each.target for each in split.train]
