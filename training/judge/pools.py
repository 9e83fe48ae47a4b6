"""The candidates of questions with gold, and how good they are: what a judge learns from.

Two files. ``pools`` has the texts that the cross-encoder reads, ``features`` what the confidence
model weighs; the second can only be written when the first has trained a cross-encoder.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from kbqa.engine.answer import term_text
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.scores.by_kind import candidate_f1
from kbqa.engine.files.json_lines import drop_unfinished_line, read_rows
from kbqa.engine.methods.router.method import RouterKgqa
from kbqa.engine.methods.router.search.pool import PathPool
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.resources import Resources
from kbqa.engine.running.confidence import describe_tried
from kbqa.engine.running.execute import Policy
from kbqa.engine.running.reading import CandidateReader, text_of
from kbqa.engine.running.tried import Tried, with_first_answers
from kbqa.engine.writing.generate import Candidate, NoPaths
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.errors import EndpointDown, GraphError, InputError
from kbqa.training.judge.confidence import Judged
from kbqa.training.judge.reading import Read

Pools: TypeAlias = Sequence[tuple[Question, Sequence[Candidate]]]
"""Questions with gold, each with what was written for it."""


class PoolRunner:
    """Runs the written and searched candidates of questions, as an answer does.

    Args:
        resources: Graph, names and linker.
        pool: Searches further candidates.
        reader: Reads candidates; None before there is a cross-encoder.
    """

    def __init__(
        self, resources: Resources, pool: PathPool | None, reader: CandidateReader | None = None
    ) -> None:
        self._graph, self._schema = resources.graph, GraphSchema(resources.graph)
        self._method = RouterKgqa(resources, NoPaths(), Policy(), pool=pool, reader=reader)
        self._engine = Engine.over(resources, self._method)

    def run(self, question: Question, candidates: Sequence[Candidate]) -> list[Tried]:
        """Run the candidates of a question from linked entities.

        Raises:
            GraphError: The graph does not answer.
        """
        return self._method.try_all(self._engine.prepare(question.text), candidates)

    def gold(self, id_: str, text: str, path: Candidate) -> Question | None:
        """Make a question whose gold is what a path leads to; None if it leads nowhere.

        Raises:
            GraphError: The graph does not answer.
        """
        question = Question(id_, text, topics=(), golds=())
        [tried] = self.run(question, [path])
        if tried.table is None:
            return None
        if tried.boolean is not None or tried.count is not None:
            return replace(question, boolean=tried.boolean, count=tried.count)
        answers = tuple(sorted({term_text(term) for term in tried.terms}))
        return replace(question, golds=(answers,)) if answers else None

    def texts(self, question: Question, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """Return the row of a question in ``pools``."""
        tried = with_first_answers(self._graph, self.run(question, candidates))
        read = {
            text: candidate_f1(each, question)
            for each in tried
            if (text := text_of(each, self._schema)) is not None
        }
        return {"question": question.text, "candidates": sorted(read.items())}

    def features(self, question: Question, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """Return the row of a question in ``features``; candidates without answers have none."""
        tried = self.run(question, candidates)
        judged = [
            [features, candidate_f1(each, question)]
            for each, features in zip(tried, describe_tried(tried), strict=True)
            if each.terms
        ]
        return {"candidates": judged}


def write_rows(
    path: Path,
    pools: Pools,
    make: Callable[[Question, Sequence[Candidate]], Mapping[str, Any]],
    report: Callable[[int], object] = lambda done: None,
) -> None:
    """Write a row for each question; those that the file has already are skipped.

    A question for which the graph fails has a row without candidates.

    Raises:
        EndpointDown: Nothing answers at the graph's endpoint.
    """
    if path.is_file():
        drop_unfinished_line(path)
    done = {str(row["id"]) for _, row in read_rows(path)} if path.is_file() else set()
    report(len(done))
    with path.open("a", encoding="utf-8") as rows:
        for question, candidates in pools:
            if question.id in done:
                continue
            try:
                row = make(question, candidates)
            except EndpointDown:
                raise
            except GraphError:
                row = {"question": question.text, "candidates": []}
            rows.write(json.dumps({"id": question.id, **row}, ensure_ascii=False) + "\n")
            rows.flush()
            report(1)


def read_texts(path: Path) -> Iterator[Read]:
    """Read a file of ``pools``.

    Raises:
        InputError: It cannot be read, or holds something else.
    """
    for number, row in read_rows(path):
        with _explained(path, number):
            yield Read(str(row["question"]), [(str(of), float(f1)) for of, f1 in row["candidates"]])


def read_judged(path: Path) -> Iterator[Judged]:
    """Read a file of ``features``.

    Raises:
        InputError: It cannot be read, or holds something else.
    """
    for number, row in read_rows(path):
        with _explained(path, number):
            judged = [(dict(features), float(f1)) for features, f1 in row["candidates"]]
            yield Judged(tuple(each for each, _ in judged), tuple(f1 for _, f1 in judged))


@contextmanager
def _explained(path: Path, number: int) -> Iterator[None]:
    """Turn what a row lacks into an error that names the row."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"{path}, line {number}: not a row of candidates ({error!r})") from None
