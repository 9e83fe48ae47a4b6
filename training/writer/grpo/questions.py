"""Questions to train on by reward: each with its topics and its gold answers in the graph.

The gold answers are what the gold query finds in the graph, read as candidates are: answers, a
count, or yes or no. If a record has no query, they are the mids and values that it states. A
question without either, or whose query finds nothing, can reward no path. It is left out and
counted by reason.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbqa.engine.answer import term_text
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.questions.conversion import Unconverted, convert_queries
from kbqa.engine.questions.gold import gold_boolean, gold_count, gold_sets
from kbqa.engine.questions.official import read_question_rows
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.running.outcome import PathRunner
from kbqa.engine.writing.constraints.decoding import Decoding
from kbqa.engine.writing.constraints.path_walk import PathWalk
from kbqa.engine.writing.generate import Request
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import EndpointDown, GraphError, InputError, KbqaError
from kbqa.sparql.forms import read_crp
from kbqa.training.data.gold_topics import gold_topics
from kbqa.training.data.targets import row_query
from kbqa.training.data.training_set import (
    Example,
    ExampleKey,
    ExampleSet,
    example_key,
    row_id,
    source_name,
)

_REPORTED = 500


class Unrewardable(KbqaError):
    """No path for a question can be rewarded; the message is the reason, the same for all such."""


class GoldFinder:
    """Finds the gold answers of questions in a graph.

    Args:
        graph: The graph.
        decoding: How paths will be constrained, at level ``graph``.
        crp_format: The text form of the paths.
        timeout_s: Seconds for each query.
    """

    def __init__(self, graph: Graph, decoding: Decoding, crp_format: str, timeout_s: float) -> None:
        self._graph, self._decoding, self._crp_format = graph, decoding, crp_format
        self._runner = PathRunner(graph, lambda: timeout_s)

    def find(self, example: Example, row: Mapping[str, Any], query: Crp | None) -> Question:
        """Make a question of an example.

        Args:
            example: The example.
            row: Its record.
            query: Its gold query; None if it has none.

        Raises:
            Unrewardable: No path could be rewarded.
            EndpointDown: Nothing answers at the graph's endpoint.
        """
        try:
            topics = gold_topics(row, query or read_crp(example.target).crp)
            question = Question(
                id=f"{example.source} {example.id}",
                text=example.question,
                topics=tuple(name_topics(self._graph, [each for each in topics if each.mid])),
                golds=gold_sets(row),
                boolean=gold_boolean(row),
                count=gold_count(row),
            )
            if query is not None:
                question = self._with_answers(question, query)
            if question.kind is None:
                raise Unrewardable("neither a gold query nor gold answers by mid")
            steps = self._decoding.steps(as_request(question), self._crp_format)
        except EndpointDown:
            raise
        except (GraphError, InputError) as error:
            raise Unrewardable(f"its gold query fails: {type(error).__name__}") from error
        except (AttributeError, KeyError, TypeError):
            raise Unrewardable("malformed entities or answers") from None
        if not isinstance(steps, PathWalk):
            raise Unrewardable("no topic entity that leads anywhere in the graph")
        return question

    def _with_answers(self, question: Question, query: Crp) -> Question:
        """Replace the gold of a question by what its query finds."""
        outcome = self._runner.run(query)
        if outcome is None:
            raise Unrewardable("its gold query finds nothing in the graph")
        found = tuple(sorted({term_text(row[0]) for row in outcome.table.rows if row[0]}))
        is_list = outcome.boolean is None and outcome.count is None
        return replace(
            question,
            golds=(found,) if is_list else (),
            boolean=outcome.boolean,
            count=outcome.count,
        )


def find_questions(
    examples: Iterable[Example],
    paths: Sequence[Path],
    finder: GoldFinder,
    gathered: ExampleSet,
    report: Callable[[int], None] = lambda done: None,
) -> dict[ExampleKey, Question]:
    """Find the gold of examples, and count those that have none.

    Args:
        examples: The examples.
        paths: The question sets that they were read from.
        finder: Finds their gold.
        gathered: Counts the questions that are left out.
        report: Called now and then with the number of questions looked up.

    Raises:
        InputError: A file is missing or unreadable.
        EndpointDown: Nothing answers at the graph's endpoint.
    """
    rows = {key: row for path in paths for key, row in _rows(path)}
    wanted = {example_key(each): each for each in examples}
    queries = convert_queries(filter(None, (row_query(rows[key]) for key in wanted)))
    found: dict[ExampleKey, Question] = {}
    for done, (key, example) in enumerate(wanted.items(), 1):
        query = queries.get(row_query(rows[key]))
        if isinstance(query, Unconverted):
            gathered.skip(*key, query.reason)
            continue
        try:
            found[key] = finder.find(example, rows[key], query)
        except Unrewardable as error:
            gathered.skip(*key, str(error))
        if done % _REPORTED == 0:
            report(done)
    return found


def as_request(question: Question) -> Request:
    """Ask for paths from the topics of a question."""
    return Request(question.text, question.topics)


def _rows(path: Path) -> Iterator[tuple[ExampleKey, Mapping[str, Any]]]:
    source = source_name(path)
    for number, row in read_question_rows(path, lambda number, problem: None):
        yield (source, row_id(row, number)), row
