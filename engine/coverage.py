"""Tell how much of what a question set asks for a graph holds.

A question is covered where the graph holds its topic entities and, of one of its parses, every
relation of the gold query and every gold answer. It may still go unanswered there: that the parts
are present does not say that they hang together.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.engine.evaluation.metrics import normalise_answer
from kbqa.engine.official_questions import read_question_rows, scored_parses
from kbqa.engine.questions import topic_entities
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.presence import present_entities, present_relations, present_texts
from kbqa.sparql.errors import InputError
from kbqa.sparql.mentions import query_mentions
from kbqa.sparql.terms import is_mid

MOST_FREQUENT = 10
"""Missing relations and entities that a report lists, at most."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one parse of a question needs of a graph; mids and literals' texts are answers."""

    relations: frozenset[str]
    answers: frozenset[str]


@dataclass(frozen=True, slots=True)
class NeedyQuestion:
    """A question with what it needs of a graph.

    Attributes:
        topics: Its topic entities; the entities of its gold query where its set names none.
        parses: What each readable parse needs.
        unreadable: How many of its gold queries cannot be read.
    """

    topics: frozenset[str]
    parses: tuple[Needs, ...]
    unreadable: int


@dataclass(frozen=True, slots=True)
class Share:
    """How many of how many."""

    present: int
    n: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a graph holds of a question set.

    Attributes:
        questions: The file.
        n: Its questions.
        unreadable: Gold queries that cannot be read; what they need is not counted.
        topics: Distinct topic entities.
        relations: Distinct relations of the gold queries.
        answers: Distinct gold answers, mids and literals.
        covered: Questions of which the graph holds all parts, among those with a gold query that
            can be read.
        missing_topics: Missing topic entities with the number of questions that need them, the
            most frequent first.
        missing_relations: Missing relations, the same way.
    """

    questions: str
    n: int
    unreadable: int
    topics: Share
    relations: Share
    answers: Share
    covered: Share
    missing_topics: tuple[tuple[str, int], ...]
    missing_relations: tuple[tuple[str, int], ...]

    @property
    def is_complete(self) -> bool:
        """Tell whether the graph holds everything."""
        return all(
            share.present == share.n for share in (self.topics, self.relations, self.answers)
        )


def measure_coverage(graph: Graph, path: Path, timeout_s: float = DEFAULT_TIMEOUT_S) -> Coverage:
    """Look up what a question set needs.

    Args:
        graph: Where to look.
        path: Question set, in our form or an official file of WebQSP or ComplexWebQuestions.
        timeout_s: Seconds for each query of some hundred look-ups.

    Raises:
        InputError: The file is no question set.
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


def read_needs(path: Path) -> Iterator[NeedyQuestion]:
    """Read what each question of a set needs; raises as `measure_coverage` does."""
    is_empty = True
    for number, row in read_question_rows(path):
        is_empty = False
        try:
            yield _needs(row)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}, line {number}: not a question record ({error!r})") from None
    if is_empty:
        raise InputError(f"{path} holds no question")


def _needs(row: Mapping[str, Any]) -> NeedyQuestion:
    if "relation" in row:  # SimpleQuestions: a triple in place of a query
        needs = Needs(frozenset({row["relation"]}), frozenset({row["object"]}))
        return NeedyQuestion(frozenset({row["subject"]}), (needs,), 0)
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
    return NeedyQuestion(frozenset(topics or entities), tuple(parses), len(golds) - len(parses))


class _Gold(NamedTuple):
    query: str
    answers: list[str]


def _golds(row: Mapping[str, Any]) -> Iterator[_Gold]:
    """List the gold queries with their answers: one, or for WebQSP one a parse that counts."""
    if "parses" in row:
        for parse in scored_parses(row):
            yield _Gold(parse["Sparql"], [each["AnswerArgument"] for each in parse["Answers"]])
    elif row.get("sparql"):
        answers = [answer["arg"] for answer in row.get("answers") or () if answer.get("arg")]
        yield _Gold(row["sparql"], answers)


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
