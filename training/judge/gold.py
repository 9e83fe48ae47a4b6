"""Find the gold of the questions that a judge learns from, and divide them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.linking.model import LinkingModel
from kbqa.engine.methods.router.search.pool import PathPool
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.resources import Resources
from kbqa.engine.running.precedents import Precedents
from kbqa.engine.writing.constraints.decoding import Decoding
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.forms import read_crp, render_crp
from kbqa.training.data.training_set import (
    COMPOSED_SOURCE,
    DEMO_SOURCE,
    Example,
    ExampleSet,
    families_of,
)
from kbqa.training.judge.near_misses import near_misses
from kbqa.training.judge.pools import PoolRunner
from kbqa.training.judge.run import Part
from kbqa.training.writer.grpo.questions import GoldFinder, find_questions

Beams = Mapping[str, Sequence[Candidate]]
"""What was written, by the ids of questions."""

_MADE_SOURCES = (COMPOSED_SOURCE, DEMO_SOURCE)


class _Gold(NamedTuple):
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

    A question that is held out is read by nobody, nor is one of its family, or one that asks the
    same. What is read is what was written for a question, or else its gold paths, and near misses
    of these.

    Args:
        examples: The questions.
        files: The question sets that they were read from.
        written: What another writer wrote that does not know the questions.
        held_out: What the writer that will be judged wrote for those that it does not know.
        resources: Of the graph that the files are about, and then, if there are questions about
            it, of the demo graph.

    Raises:
        InputError: A file is missing or unreadable.
        GraphError: The graph does not answer.
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


def find_precedents(examples: ExampleSet, held_out: Beams, graph: Graph) -> Precedents:
    """Keep the questions on a graph that are of no family that is held out.

    Args:
        examples: The questions.
        held_out: By the ids of the questions that are held out.
        graph: Has the schema.

    Raises:
        GraphError: The graph does not answer.
    """
    away = families_of(examples.examples, held_out)
    answered = [
        (each.question, read_crp(each.target).crp)
        for each in examples.examples
        if each.id not in away and each.source not in _MADE_SOURCES
    ]
    return Precedents.of(Embedder.load(), GraphSchema(graph), answered)


def _of_files(examples: ExampleSet, files: Sequence[Path], resources: Resources) -> list[_Gold]:
    """Find the gold of questions by their gold queries, or as their records say."""
    graph = resources.graph
    finder = GoldFinder(graph, Decoding("graph", graph), "extended", resources.timeout_s)
    asked = [each for each in examples.examples if each.source not in _MADE_SOURCES]
    found = find_questions(asked, files, finder, examples)
    paths = _gold_paths(asked)
    return [_Gold(id_, question, paths[id_]) for (_, id_), question in sorted(found.items())]


def _of_paths(examples: ExampleSet, source: str, resources: Resources) -> list[_Gold]:
    """Find the gold of questions that were made with their paths, which lead to it."""
    runner = PoolRunner(resources, None)
    asked = [each for each in examples.examples if each.source == source]
    texts = {each.id: each.question for each in asked}
    paths = _gold_paths(asked)
    found = {id_: runner.gold(f"{source} {id_}", texts[id_], paths[id_][0]) for id_ in paths}
    return [_Gold(id_, question, paths[id_]) for id_, question in found.items() if question]


def _gold_paths(examples: Iterable[Example]) -> dict[str, list[Candidate]]:
    paths: dict[str, list[Candidate]] = defaultdict(list)
    for example in examples:
        paths[example.id].append(Candidate(example.target, logprob=0.0, tokens=1))
    return paths


def _near_misses(paths: Iterable[Candidate]) -> Iterator[Candidate]:
    for path in paths:
        for crp in near_misses(read_crp(path.text).crp):
            yield Candidate(render_crp(crp), logprob=0.0, tokens=1)
