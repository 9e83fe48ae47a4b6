"""Measure how much of what a question set needs is in a graph.

A question is covered if the graph has its topic entities and, for one of its parses, every relation
of the gold query and every gold answer. It may still have no answer there: the parts may be present
but not connected.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.engine.evaluation.scores import normalise_answer
from kbqa.engine.questions.official import (
    gold_answers,
    parse_answers,
    read_question_rows,
    scored_parses,
)
from kbqa.engine.questions.question_sets import (
    record_problem,
    topic_entities,
)
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.schema import present_entities, present_relations, present_texts
from kbqa.sparql.dialect import query_mentions
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import is_mid

MOST_FREQUENT = 10
"""Maximum number of missing relations and entities in a report."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one parse of a question needs; answers are mids and literals' texts."""

    relations: frozenset[str]
    answers: frozenset[str]


@dataclass(frozen=True, slots=True)
class QuestionNeeds:
    """What a question needs."""

    topics: frozenset[str]  # or the entities of its gold query, if the set has no topics
    parses: tuple[Needs, ...]  # of each that can be read
    unreadable: int  # gold queries that cannot be read


@dataclass(frozen=True, slots=True)
class Share:
    """How many of `n` are present."""

    present: int
    n: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a question set a graph has.

    Topics, relations and answers are counted once each. Needs of gold queries that cannot be read
    are not counted.
    """

    questions: str  # the file
    n: int
    unreadable: int  # gold queries
    topics: Share
    relations: Share
    answers: Share
    covered: Share  # questions, among those with a gold query that can be read
    missing_topics: tuple[tuple[str, int], ...]  # and how many questions need each; most first
    missing_relations: tuple[tuple[str, int], ...]

    @property
    def is_complete(self) -> bool:
        """Whether the graph has everything."""
        return all(
            share.present == share.n for share in (self.topics, self.relations, self.answers)
        )


def measure_coverage(graph: Graph, path: Path, timeout_s: float = DEFAULT_TIMEOUT_S) -> Coverage:
    """Look up what a question set, ours or official, needs; `timeout_s` is for each query.

    Raises:
        InputError: The file is not a question set.
        GraphError: The graph does not answer.
    """
    questions = list(read_needs(path))
    topics = _union(question.topics for question in questions)
    parses = [parse for question in questions for parse in question.parses]
    relations = _union(parse.relations for parse in parses)
    answers = _union(parse.answers for parse in parses)
    mids = {answer for answer in answers if is_mid(answer)}
    held_entities = present_entities(graph, topics | mids, timeout_s)
    held_relations = present_relations(graph, relations, timeout_s)
    held_answers = (mids & held_entities) | present_texts(graph, answers - mids, timeout_s)
    judged = [question for question in questions if question.parses]
    return Coverage(
        questions=str(path),
        n=len(questions),
        unreadable=sum(question.unreadable for question in questions),
        topics=_share(topics, held_entities),
        relations=_share(relations, held_relations),
        answers=_share(answers, held_answers),
        covered=Share(
            sum(
                question.topics <= held_entities
                and any(
                    parse.relations <= held_relations and parse.answers <= held_answers
                    for parse in question.parses
                )
                for question in judged
            ),
            len(judged),
        ),
        missing_topics=_most_frequent(
            (question.topics for question in questions), topics - held_entities
        ),
        missing_relations=_most_frequent(
            (_union(parse.relations for parse in question.parses) for question in questions),
            relations - held_relations,
        ),
    )


def read_needs(path: Path) -> Iterator[QuestionNeeds]:
    """Read what each question of a set needs."""
    is_empty = True
    for number, row in read_question_rows(path):
        is_empty = False
        try:
            yield _needs(row)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}, line {number}: {record_problem(error)}") from None
    if is_empty:
        raise InputError(f"{path} has no questions")


def _needs(row: Mapping[str, Any]) -> QuestionNeeds:
    entities: set[str] = set()
    parses: list[Needs] = []
    golds = list(_golds(row))
    for query, answers in golds:
        try:
            mentions = query_mentions(query)
        except InputError:
            continue
        entities |= mentions.entities
        parses.append(Needs(mentions.relations, frozenset(map(normalise_answer, answers))))
    topics = {entity.mid for entity in topic_entities(row) if entity.mid is not None}
    return QuestionNeeds(frozenset(topics or entities), tuple(parses), len(golds) - len(parses))


class _Gold(NamedTuple):
    query: str
    answers: list[str]


def _golds(row: Mapping[str, Any]) -> Iterator[_Gold]:
    """Yield the gold queries with their answers: for WebQSP, one for each parse that counts."""
    if "parses" in row:
        for parse in scored_parses(row):
            if not isinstance(query := parse.get("Sparql"), str):
                raise TypeError('the "Sparql" of a parse is not a text')
            yield _Gold(query, parse_answers(parse))
    elif query := row.get("sparql"):
        if not isinstance(query, str):
            raise TypeError('"sparql" is not a text')
        yield _Gold(query, gold_answers(row))


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def _share(wanted: Collection[str], held: Collection[str]) -> Share:
    return Share(sum(item in held for item in wanted), len(wanted))


def _most_frequent(
    needed: Iterable[frozenset[str]], missing: frozenset[str]
) -> tuple[tuple[str, int], ...]:
    counts = Counter(item for items in needed for item in items & missing)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ranked[:MOST_FREQUENT])
