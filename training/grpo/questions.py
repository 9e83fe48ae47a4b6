"""Questions to train on by reward: each with its topics and its gold answers in the graph.

The gold answers are what the gold query finds in the graph, read as candidates are: answers, a
count, or yes or no. If a record has no query, they are the mids and values that it states. A
question without either, or whose query finds nothing, can reward no path. It is left out and
counted by reason.

The reward of a path: the F1 of what it answers, less a little for relaxation and for length.

Paths are run as `kbqa eval` runs them: their names are grounded, their queries executed, and
constraints relaxed if nothing satisfies all of them. The deductions are shares of the F1, so among
paths that are all wrong none is better than another.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.engine.answer import term_text
from kbqa.engine.asked import Clock
from kbqa.engine.evaluation.scores import candidate_f1
from kbqa.engine.linking.ground import Grounder, name_topics
from kbqa.engine.linking.linker import Linker
from kbqa.engine.questions.official import (
    Unconverted,
    convert_queries,
    gold_boolean,
    gold_count,
    gold_sets,
    read_question_rows,
)
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.running.confidence import Tried
from kbqa.engine.running.run import Executor, PathRunner
from kbqa.engine.writing.generate import Candidate, Request
from kbqa.engine.writing.grammar import PathWalk
from kbqa.engine.writing.steering import Decoding
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import Names
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import DeadlineExceeded, EndpointDown, GraphError, InputError, KbqaError
from kbqa.sparql.forms import read_crp
from kbqa.training.config import GrpoConfig
from kbqa.training.data.targets import gold_topics, row_query
from kbqa.training.data.training_set import (
    Example,
    ExampleKey,
    ExampleSet,
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
    wanted = {each.key: each for each in examples}
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


logger = logging.getLogger(__name__)


class Rewarded(NamedTuple):
    """What a path earns: its reward, and the F1 that it is made from; both in [0, 1]."""

    reward: float
    f1: float


NOTHING = Rewarded(0.0, 0.0)


class RewardFunction:
    """Rewards the paths of questions; each text of a question is run once.

    Args:
        graph: The graph.
        names: Its names.
        linker: Links questions to it, because names in paths are compared with those in questions.
        timeout_s: Seconds for each query, and for each path in all. A slower path earns nothing.
        config: Has the deductions.
    """

    def __init__(
        self, graph: Graph, names: Names, linker: Linker, timeout_s: float, config: GrpoConfig
    ) -> None:
        self._graph, self._names, self._linker = graph, names, linker
        self._timeout_s, self._config = timeout_s, config
        self._known: dict[tuple[str, str], Rewarded] = {}

    def reward(self, question: Question, candidates: Sequence[Candidate | None]) -> list[Rewarded]:
        """Reward the paths written for a question. An unfinished one, None, earns nothing.

        Raises:
            EndpointDown: Nothing answers at the graph's endpoint.
        """
        new = {
            each.text: each
            for each in candidates
            if each is not None and (question.id, each.text) not in self._known
        }
        if new:
            try:
                linked = self._linker.link(question.text)
            except EndpointDown:
                raise
            except GraphError as error:
                logger.warning("no path is run for %s: %s", question.id, error)
                return [NOTHING] * len(candidates)
            grounder = Grounder(self._graph, self._names, linked, question.topics)
            for text, candidate in new.items():
                self._known[question.id, text] = self._run(question, grounder, candidate)
        return [
            NOTHING if each is None else self._known[question.id, each.text] for each in candidates
        ]

    def _run(self, question: Question, grounder: Grounder, candidate: Candidate) -> Rewarded:
        clock = Clock(deadline_s=self._timeout_s)
        executor = Executor(self._graph, grounder, clock, self._timeout_s)
        try:
            [tried] = executor.run_all([candidate])
        except DeadlineExceeded:
            return NOTHING
        f1 = candidate_f1(tried, question)
        return Rewarded(f1 * max(0.0, 1.0 - self._cost(tried)), f1)

    def _cost(self, tried: Tried) -> float:
        """Return the share of its F1 that a path loses."""
        if tried.crp is None or tried.relaxation is None:
            return 0.0
        relaxed = self._config.relaxed_cost if tried.relaxation.level != "full" else 0.0
        return relaxed + self._config.part_cost * _parts(tried.crp)


def _parts(crp: Crp) -> int:
    """Count the hops of the main path, the constraints and the ordering of a CRP."""
    return len(crp.path) + sum(1 for _ in crp.all_constraints()) + (crp.order is not None)
