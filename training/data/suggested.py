"""Give training examples the relations that would be suggested for their questions.

They are found from the linked entities, as they are when a question is asked.
"""

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace

from kbqa.engine.linking.starts import likely_topics
from kbqa.engine.resources import Resources
from kbqa.engine.retrieval.suggesting import RelationSuggester
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.training.data.training_set import DEMO_SOURCE, Example, Split

Report = Callable[[int], object]
"""Called with the number of questions that were looked up since the last call."""


def suggest_relations(
    split: Split, graph: Graph, count: int, report: Report = lambda done: None
) -> Split:
    """Find relations for the examples that are trained on and those that are held out.

    Args:
        split: The examples.
        graph: What they are about; those on the demo graph are looked up there.
        count: How many relations a question gets, at most.
        report: Follows the search.

    Raises:
        ModelError: The retriever is missing or broken.
        GraphError: The graph does not answer.
    """
    examples = (*split.train, *split.valid)
    on_demo = {each.question for each in examples if each.source == DEMO_SOURCE}
    found = _find({e.question for e in examples if e.source != DEMO_SOURCE}, graph, count, report)
    found_on_demo = {}
    if on_demo:
        with closing(open_graph()) as demo:
            found_on_demo = _find(on_demo, demo, count, report)

    def suggest(some: Iterable[Example]) -> tuple[Example, ...]:
        return tuple(
            replace(e, relations=(found_on_demo if e.source == DEMO_SOURCE else found)[e.question])
            for e in some
        )

    return split._replace(train=suggest(split.train), valid=suggest(split.valid))


def _find(
    questions: Iterable[str], graph: Graph, count: int, report: Report
) -> dict[str, tuple[str, ...]]:
    found = {}
    suggester = RelationSuggester(graph, count)
    with closing(Resources(graph)) as resources:
        for question in sorted(questions):
            topics = likely_topics(resources.linker.link(question))
            found[question] = suggester.suggest(question, topics)
            report(1)
    return found
