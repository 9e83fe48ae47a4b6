"""What a judge reads of a question."""

from contextlib import closing
from pathlib import Path

from kbqa.engine.methods import Resources
from kbqa.kb.open import open_graph
from kbqa.training.data.training_set import COMPOSED_SOURCE, Example, ExampleSet
from kbqa.training.judge.learning import gather_parts

GOLD = "Nairobi <- location.country.capital -> location.country.currency_used"


def test_near_misses_are_read_beside_the_gold_path(demo_store: Path) -> None:
    question = "which money is used in the country whose capital is Nairobi?"
    examples = ExampleSet()
    examples.add(Example("1", question, GOLD, COMPOSED_SOURCE))
    with closing(open_graph(demo_store)) as graph, closing(Resources(graph)) as resources:
        [part] = gather_parts(examples, [], {}, {}, [resources])
    [(asked, candidates)] = part.read
    assert asked.text == question
    texts = [each.text for each in candidates]
    assert texts == [GOLD, "Nairobi <- location.country.capital"]
