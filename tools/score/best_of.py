"""Measure the best of the first k candidates, beside the one that the confidence model chooses.

    python -m tools.score.best_of --questions webqsp.jsonl --store slice \
        --trained webqsp.train.jsonl.gz --trained cwq.dev.jsonl.gz before.jsonl after.jsonl

BEAMS are files of `kbqa crp generate`, scored on the questions that all of them have and that have
gold. Only written candidates count; `tools.score.judge` measures the judge. The columns are F1, as
`kbqa eval` scores it, with 95 % bootstrap intervals: of the answer that
`kbqa eval --set judge=confidence` gives ("chosen"), and of the best answer among those of the
model's first k candidates, which a perfect choice would reach. k is 1, 5 and 10, up to the most
candidates that a question has.

The rows are the tiers of evidence, if the questions have tiers. With --trained, there are also rows
for questions with and without relations that the model was not trained on, of the independent and
annotated tiers. Name all question sets that the model was trained on, and those of the adapter that
its training went on from. Differences are from the first file, and paired.

A relation was trained on if a row that `kbqa train-crp` can use has it, by this name. Rows that
training holds out, or does not draw for its mixture, count as well. Questions on the demo graph do
not count. A model that learnt only the reverse of a relation can still write the path, backwards.
So questions with a relation of which not even the reverse was trained on are a group of their own.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
from tqdm import tqdm

from kbqa.engine.evaluation.scores import candidate_f1
from kbqa.engine.methods import Resources
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.running.tried import ConfidenceModel, Tried
from kbqa.engine.writing.generate import read_beams
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.dialect import query_mentions
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import read_crp
from kbqa.training.data.training_set import load_examples
from tools.options import FILE, GOLD_ENTITIES, QUESTIONS, STORE
from tools.score.shared import (
    BeamRunner,
    Scores,
    gold_in_common,
    print_tables,
    rank_by_confidence,
)

_TIERS = ("independent", "annotated")
_FIRST = (1, 5, 10)


@dataclass(frozen=True, slots=True)
class TrainedRelations:
    """The relations that a model was trained on."""

    named: frozenset[str]  # those that the training files have
    reverses: frozenset[str]  # the reverses of these

    @classmethod
    def read(cls, files: Iterable[Path], graph: Graph) -> "TrainedRelations":
        """Read the relations of training files."""
        examples = load_examples(files, form="extended", names=graph.labels).examples
        crps = (read_crp(example.target).crp for example in examples)
        named = frozenset(relation for crp in crps for relation in crp.relations())
        schema = GraphSchema(graph).of(named)
        stated = (schema.property(relation) for relation in named)
        reverses = frozenset(each.reverse for each in stated if each is not None and each.reverse)
        return cls(named, reverses)

    def groups(self, question: Question) -> list[str]:
        """Return the groups of a question; none without relations in its gold query."""
        try:
            relations = query_mentions(question.sparql or "").relations
        except InputError:
            return []
        if not relations:
            return []
        unseen = [relation for relation in relations if relation not in self.named]
        if not unseen:
            return ["relations: all trained on"]
        groups = ["relations: one not trained on"]
        if any(relation not in self.reverses for relation in unseen):
            groups.append("relations: one not trained on, nor its reverse")
        return groups


def gold_relations(question: Question) -> frozenset[str]:
    """Return the relations of a question's gold query; none without a query that can be read."""
    try:
        return query_mentions(question.sparql or "").relations
    except InputError:
        return frozenset()


def score_question(
    tried: Sequence[Tried], question: Question, model: ConfidenceModel, longest: int
) -> Scores:
    """Score the chosen candidate of a question, and the best of the first ones."""
    f1 = [candidate_f1(each, question) for each in tried]
    chosen = next(iter(rank_by_confidence(tried, model)), None)
    scores = {"chosen": candidate_f1(chosen, question)}
    for k in (*(k for k in _FIRST if k < longest), longest):
        scores[f"best of {k}"] = max(f1[:k], default=candidate_f1(None, question))
    return scores


def question_groups(question: Question, trained: TrainedRelations | None) -> list[str]:
    """Return the groups that a question belongs to."""
    if question.tier is None:
        groups = ["all"]
    elif question.tier in _TIERS:
        groups = [" + ".join(_TIERS), f"tier: {question.tier}"]
    else:
        return [f"tier: {question.tier}"]
    return groups if trained is None else groups + trained.groups(question)


@click.command(help=__doc__)
@click.argument("files", metavar="BEAMS…", type=FILE, nargs=-1, required=True)
@QUESTIONS
@STORE
@GOLD_ENTITIES
@click.option(
    "--trained",
    "training_files",
    type=FILE,
    multiple=True,
    help="Question set that a model was trained on; repeatable.",
)
def main(
    files: Sequence[Path],
    question_file: Path,
    store: Path,
    gold_entities: bool,
    training_files: Sequence[Path],
) -> None:
    """Print the tables."""
    beams = [read_beams(file) for file in files]
    questions, asked = read_questions(question_file), gold_in_common(question_file, beams)
    model = ConfidenceModel.load()
    lines = []
    with closing(open_graph(store)) as graph, closing(Resources(graph)) as resources:
        trained = TrainedRelations.read(training_files, graph) if training_files else None
        groups = [question_groups(question, trained) for question in asked]
        runner = BeamRunner(resources, gold_entities)
        for file, candidates in zip(files, beams, strict=True):
            longest = max(len(candidates[question.id]) for question in asked)
            scores = [
                score_question(runner.run(q, candidates[q.id]), q, model, longest)
                for q in tqdm(asked, unit="question", disable=None)
            ]
            lines.append((file.stem, scores))
    print_tables(f"beams, {'gold' if gold_entities else 'linked'} entities", groups, lines)
    click.echo(f"\n{len(asked)} of {len(questions)} questions are in all files and have gold.")


if __name__ == "__main__":
    main()
