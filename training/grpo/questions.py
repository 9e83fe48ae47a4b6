"""Questions to train on by reward: each with its topics and its gold answers in the graph.

The gold answers are what the gold query finds in the graph, read as candidates are: answers, a
count, or yes or no. If a record has no query, they are the mids and values that it states. A
question without either, or whose query finds nothing, can reward no path. It is left out and
counted by reason.

The reward of a path is the F1 of what it answers, less a little for relaxation and for length.
Paths are run as `kbqa eval` runs them. The deductions are shares of the F1, so among paths that are
all wrong none is better than another.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.engine.asked import Asked, Clock
from kbqa.engine.evaluation.scores import candidate_f1
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.linking.linker import LinkedEntity, Linker
from kbqa.engine.questions.question_sets import (
    Question,
    Unconverted,
    convert_queries,
    gold_boolean,
    gold_count,
    gold_sets,
    read_question_rows,
)
from kbqa.engine.running.path_runner import PathRunner
from kbqa.engine.running.run import Runner
from kbqa.engine.writing.generate import Candidate, Request
from kbqa.engine.writing.grammar import PathWalk
from kbqa.engine.writing.steering import Decoding
from kbqa.kb.graph import Graph
from kbqa.kb.names import Names
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import DeadlineExceeded, EndpointDown, GraphError, InputError, KbqaError
from kbqa.sparql.forms import read_crp
from kbqa.sparql.terms import term_text
from kbqa.training.config import GrpoConfig
from kbqa.training.data.targets import gold_topics, row_query
from kbqa.training.data.training_set import Example, ExampleKey, ExampleSet, row_id, source_name

logger = logging.getLogger(__name__)

_REPORTED = 500


class _Unrewardable(KbqaError):
    """No path for a question can be rewarded; the message is the reason, the same for all such."""


def find_questions(
    examples: Iterable[Example],
    paths: Sequence[Path],
    graph: Graph,
    crp_format: str,
    timeout_s: float,
    gathered: ExampleSet,
    report: Callable[[int], None] = lambda done: None,
) -> dict[ExampleKey, Question]:
    """Find the gold of examples in a graph, and have those that have none there counted.

    The paths are those of the question sets that they were read from, and the format that of the
    texts that will be written. `report` is called now and then with the number looked up.
    """
    decoding, runner = Decoding("graph", graph), PathRunner(graph, timeout_s)
    rows = {
        (source_name(path), row_id(row, number)): row
        for path in paths
        for number, row in read_question_rows(path, lambda number, problem: None)
    }
    wanted = {each.key: each for each in examples}
    queries = convert_queries(filter(None, (row_query(rows[key]) for key in wanted)))
    found: dict[ExampleKey, Question] = {}
    for done, (key, example) in enumerate(wanted.items(), 1):
        query = queries.get(row_query(rows[key]))
        if isinstance(query, Unconverted):
            gathered.skip(*key, query.reason)
            continue
        try:
            question = _with_gold(example, rows[key], query, runner, graph)
            if not isinstance(decoding.steps(question.topics, crp_format), PathWalk):
                raise _Unrewardable("no topic entity that leads anywhere in the graph")
            found[key] = question
        except EndpointDown:
            raise
        except (GraphError, InputError) as error:
            gathered.skip(*key, f"its gold query fails: {type(error).__name__}")
        except (AttributeError, KeyError, TypeError):
            gathered.skip(*key, "malformed entities or answers")
        except _Unrewardable as error:
            gathered.skip(*key, str(error))
        if done % _REPORTED == 0:
            report(done)
    return found


def _with_gold(
    example: Example, row: Mapping[str, Any], query: Crp | None, runner: PathRunner, graph: Graph
) -> Question:
    """Make a question of an example: its gold is what the query finds, or else what is stated."""
    topics = gold_topics(row, query or read_crp(example.target).crp)
    question = Question(
        id=f"{example.source} {example.id}",
        text=example.question,
        topics=tuple(name_topics(graph, [each for each in topics if each.mid])),
        golds=gold_sets(row),
        boolean=gold_boolean(row),
        count=gold_count(row),
    )
    if query is not None:
        outcome = runner.run(query)
        if outcome is None:
            raise _Unrewardable("its gold query finds nothing in the graph")
        answers = tuple(sorted({term_text(row[0]) for row in outcome.table.rows if row[0]}))
        is_list = outcome.boolean is None and outcome.count is None
        question = replace(
            question,
            golds=(answers,) if is_list else (),
            boolean=outcome.boolean,
            count=outcome.count,
        )
    if question.kind is None:
        raise _Unrewardable("neither a gold query nor gold answers by mid")
    return question


def as_request(question: Question) -> Request:
    """Ask for paths from the topics of a question."""
    return Request(question.text, question.topics)


class Rewarded(NamedTuple):
    """What a path earns: its reward, and the F1 that it is made from; both in [0, 1]."""

    reward: float
    f1: float


NOTHING = Rewarded(0.0, 0.0)


class RewardFunction:
    """Rewards the paths of questions; each text of a question is run once.

    Questions are linked, because names in paths are compared with those in questions. A path that
    takes longer than the timeout, which each query has as well, earns nothing.
    """

    def __init__(
        self, graph: Graph, names: Names, linker: Linker, timeout_s: float, config: GrpoConfig
    ) -> None:
        self._graph, self._names, self._linker = graph, names, linker
        self._timeout_s, self._config = timeout_s, config
        self._known: dict[tuple[str, str], Rewarded] = {}

    def reward(self, question: Question, candidates: Sequence[Candidate | None]) -> list[Rewarded]:
        """Reward the paths written for a question. An unfinished one, None, earns nothing."""
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
            for text, candidate in new.items():
                self._known[question.id, text] = self._run(question, linked, candidate)
        return [
            NOTHING if each is None else self._known[question.id, each.text] for each in candidates
        ]

    def _run(
        self, question: Question, linked: Sequence[LinkedEntity], candidate: Candidate
    ) -> Rewarded:
        clock = Clock(deadline_s=self._timeout_s)
        asked = Asked(question.text, question.topics, tuple(linked), clock)
        runner = Runner(asked, self._graph, self._names, self._timeout_s)
        try:
            [tried] = runner.run([candidate])
        except DeadlineExceeded:
            return NOTHING
        f1, cost = candidate_f1(tried, question), 0.0
        if (crp := tried.crp) is not None and tried.relaxation is not None:
            parts = len(crp.path) + sum(1 for _ in crp.all_constraints()) + (crp.order is not None)
            cost = self._config.relaxed_cost if tried.relaxation.level != "full" else 0.0
            cost += self._config.part_cost * parts
        return Rewarded(f1 * max(0.0, 1.0 - cost), f1)
