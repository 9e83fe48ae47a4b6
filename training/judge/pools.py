"""The candidates of questions that a judge learns from, and those that it is fitted to.

A judge must learn from candidates that are like those it will see: written for questions that the
writer does not know. So the confidence model is fitted to families of questions that the writer
was held out from. They are few, but it has few weights. The cross-encoder needs thousands. It does
not see how likely a path was for the writer, so it may read any question, even one that the writer
knows: what another writer wrote for it that does not know it (`kbqa train-crp --leave-out-fold`),
or its gold path, among those that a search of the graph finds. Only the held-out families are kept
from it, and from the asker, which learns all others.

Source: Wolpert 1992, stacked generalization; fitting the last model to held-out examples is
blending.

What is learnt is in two files: ``pools`` has the texts that the cross-encoder reads, ``features``
what the confidence model weighs. The second can only be written when the first has trained a
cross-encoder.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kbqa.engine.answer import term_text
from kbqa.engine.asked import Asked
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.evaluation.scores import candidate_f1
from kbqa.engine.files import drop_unfinished_line, read_rows
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.methods.kbqa import run_searched
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.resources import Resources
from kbqa.engine.running.judge import Judge, text_of
from kbqa.engine.running.pool import PathPool
from kbqa.engine.running.run import Runner
from kbqa.engine.running.tried import Tried, describe_tried, with_first_answers
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import EndpointDown, GraphError, InputError
from kbqa.sparql.forms import read_crp, render_crp
from kbqa.training.data.training_set import (
    COMPOSED_SOURCE,
    DEMO_SOURCE,
    Example,
    ExampleSet,
    families_of,
)
from kbqa.training.grpo.questions import find_questions
from kbqa.training.judge.reading import Judged, ReadingExample

Pools: TypeAlias = Sequence[tuple[Question, Sequence[Candidate]]]
"""Questions with gold, each with what was written for it."""

Beams = Mapping[str, Sequence[Candidate]]
"""What was written, by the ids of questions."""

POOLS_FILE, FEATURES_FILE = "pools.jsonl", "features.jsonl"
MADE_SOURCES = (COMPOSED_SOURCE, DEMO_SOURCE)
"""The sources of questions that were made with their paths."""


class PoolRunner:
    """Runs the written and searched candidates of questions, from linked entities as in an answer.

    Without a judge, as long as there is no cross-encoder, candidates are not read. The methods
    raise a `GraphError` if the graph does not answer.
    """

    def __init__(
        self, resources: Resources, pool: PathPool | None, judge: Judge | None = None
    ) -> None:
        self._resources, self._pool, self._judge = resources, pool, judge
        self._graph, self._schema = resources.graph, GraphSchema(resources.graph)

    def run(self, question: Question, candidates: Sequence[Candidate]) -> list[Tried]:
        """Run the candidates of a question."""
        names, timeout_s = self._resources.names, self._resources.timeout_s
        asked = Asked(question.text, linked=tuple(self._resources.linker.link(question.text)))
        runner = Runner(asked, self._graph, names, timeout_s)
        tried = runner.run(candidates)
        if self._pool is not None:
            tried += run_searched(asked, tried, self._pool, runner)
        if self._judge is not None:
            tried = self._judge.read(question.text, tried, self._graph)
        return tried

    def gold(self, id_: str, text: str, path: Candidate) -> Question | None:
        """Make a question whose gold is what a path leads to; None if it leads nowhere."""
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
    advance: Callable[[int], object],
) -> None:
    """Write a row for each question; those that the file has already are skipped.

    A question for which the graph fails has a row without candidates.
    """
    if path.is_file():
        drop_unfinished_line(path)
    done = {str(row["id"]) for _, row in read_rows(path)} if path.is_file() else set()
    advance(len(done))
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
            advance(1)


def read_texts(path: Path) -> Iterator[ReadingExample]:
    """Read a file of ``pools``; an `InputError` names the row that is none."""
    for number, row in read_rows(path):
        with _explained(path, number):
            candidates = [(str(text), float(f1)) for text, f1 in row["candidates"]]
            yield ReadingExample(str(row["question"]), candidates)


def read_judged(path: Path) -> Iterator[Judged]:
    """Read a file of ``features``; an `InputError` names the row that is none."""
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


class Part(NamedTuple):
    """Questions on one graph: those that are read, and those of other families held out.

    For the latter, the candidates are what the writer that will be judged wrote. It does not know
    these questions.
    """

    read: Pools
    held_out: Pools
    resources: Resources
    pool: PathPool | None  # searches further candidates


def near_misses(crp: Crp) -> Iterator[Crp]:
    r"""Yield a CRP without each of its constraints, without its order, and a hop shorter.

    A writer often misses a condition or stops a hop too early. A judge that never sees the like
    next to the right path does not learn to tell them apart.

    >>> from kbqa.sparql.forms import read_crp, render_crp
    >>> crp = read_crp("Kenya -> a.b -> a.c\n?x -> a.d = Peru\nlargest ?x -> a.e").crp
    >>> for one in near_misses(crp):
    ...     print(render_crp(one).replace("\n", "; "))
    Kenya -> a.b -> a.c; largest ?x -> a.e
    Kenya -> a.b -> a.c; ?x -> a.d = Peru
    Kenya -> a.b
    """
    changes: list[dict[str, Any]] = [
        {"constraints": crp.constraints[:at] + crp.constraints[at + 1 :]}
        for at in range(len(crp.constraints))
    ]
    if crp.order is not None:
        changes.append({"order": None})
    if len(crp.path) > 1:
        kept = tuple(c for c in crp.constraints if isinstance(c.at, int) and c.at < crp.answer)
        shorter = {"path": crp.path[:-1], "constraints": kept, "order": None, "form": "select"}
        changes.append(shorter)
    for change in changes:
        try:
            yield replace(crp, **change)
        except ValueError:  # A part that is left needs what was taken.
            continue


class _GoldQuestion(NamedTuple):
    id: str
    question: Question
    paths: Sequence[Candidate]


def gather_parts(
    examples: ExampleSet,
    files: Sequence[Path],
    written: Beams,
    held_out: Beams,
    resources: Sequence[Resources],
) -> list[Part]:
    """Divide the questions that have gold answers on a graph.

    A question that is held out is not read, nor is one of its family, or one that asks the same.
    What is read is what was written for a question, or else its gold paths, and near misses of
    these.

    Args:
        examples: The questions.
        files: The question sets that they were read from.
        written: What another writer wrote that does not know the questions.
        held_out: What the writer that will be judged wrote for those that it does not know.
        resources: Of the graph of the files, and of the demo graph if questions are about it.
    """
    on, *demo = resources
    golds = [
        [*_of_files(examples, files, on), *_of_paths(examples, COMPOSED_SOURCE, on)],
        *(_of_paths(examples, DEMO_SOURCE, each) for each in demo),
    ]
    away = families_of(examples.examples, held_out)
    embedder, asking = Embedder.load(), LinkingModel.load()
    return [
        Part(
            [
                (q, [*written.get(id_, paths), *_near_misses(paths)])
                for id_, q, paths in gold
                if id_ not in away
            ],
            [(q, held_out[id_]) for id_, q, _ in gold if id_ in held_out],
            each,
            PathPool(each.graph, embedder, asking),
        )
        for gold, each in zip(golds, resources, strict=True)
    ]


def _of_files(
    examples: ExampleSet, files: Sequence[Path], resources: Resources
) -> list[_GoldQuestion]:
    """Find the gold of questions by their gold queries, or as their records say."""
    asked = [each for each in examples.examples if each.source not in MADE_SOURCES]
    graph, timeout_s = resources.graph, resources.timeout_s
    found = find_questions(asked, files, graph, "extended", timeout_s, examples)
    paths = _gold_paths(asked)
    return [
        _GoldQuestion(id_, question, paths[id_]) for (_, id_), question in sorted(found.items())
    ]


def _of_paths(examples: ExampleSet, source: str, resources: Resources) -> list[_GoldQuestion]:
    """Find the gold of questions that were made with their paths, which lead to it."""
    runner = PoolRunner(resources, None)
    asked = [each for each in examples.examples if each.source == source]
    texts = {each.id: each.question for each in asked}
    paths = _gold_paths(asked)
    found = {id_: runner.gold(f"{source} {id_}", texts[id_], paths[id_][0]) for id_ in paths}
    return [_GoldQuestion(id_, question, paths[id_]) for id_, question in found.items() if question]


def _gold_paths(examples: Iterable[Example]) -> dict[str, list[Candidate]]:
    paths: dict[str, list[Candidate]] = defaultdict(list)
    for example in examples:
        paths[example.id].append(Candidate(example.target, logprob=0.0, tokens=1))
    return paths


def _near_misses(paths: Iterable[Candidate]) -> Iterator[Candidate]:
    for path in paths:
        for crp in near_misses(read_crp(path.text).crp):
            yield Candidate(render_crp(crp), logprob=0.0, tokens=1)
