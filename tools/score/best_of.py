"""Measure the best of the first k candidates, beside the one that the confidence model chooses.

    python -m tools.score.best_of --questions webqsp.jsonl --store slice \
        --trained webqsp.train.jsonl.gz --trained cwq.dev.jsonl.gz before.jsonl after.jsonl

BEAMS are files of `kbqa crp generate`, scored on the questions that all of them have and that have
gold. Only written candidates count; `tools.score.judge` measures the judge. The columns are F1, as
`kbqa eval` scores it, with 95 % bootstrap intervals: of the answer that
`kbqa eval --set judge=confidence` gives ("chosen"); of the one that it would give if it did not
check the operator words of the question ("unchecked"); and of the best answer among those of the
model's first k candidates, which a perfect choice would reach. k is 1, 5 and 10, up to the most
candidates that a question has.

The rows are the tiers of evidence, if the questions have tiers. With --trained, there are also rows
for questions with and without relations that the model was not trained on, of the independent and
annotated tiers. Name all question sets that the model was trained on, and those of the adapter that
its training went on from. Differences are from the first file, and paired.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
from tqdm import tqdm

from kbqa.engine.evaluation.scores import candidate_f1
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.resources import Resources
from kbqa.engine.running.tried import ConfidenceModel, Tried
from kbqa.engine.writing.generate import read_beams
from kbqa.kb.open import open_graph
from tools.options import FILE
from tools.score.shared import (
    BeamRunner,
    Scores,
    TrainedRelations,
    beam_options,
    gold_in_common,
    gold_relations,
    print_tables,
    rank_by_confidence,
    several_beams,
)

_TIERS = ("independent", "annotated")
_FIRST = (1, 5, 10)


def score_question(
    tried: Sequence[Tried], question: Question, model: ConfidenceModel, longest: int
) -> Scores:
    """Score the chosen candidate of a question, and the best of the first ones."""
    f1 = [candidate_f1(each, question) for each in tried]
    unchecked = [replace(each, not_understood=()) for each in tried]
    ways = {"chosen": tried, "unchecked": unchecked}
    scores = {
        way: candidate_f1(next(iter(rank_by_confidence(each, model)), None), question)
        for way, each in ways.items()
    }
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
    return groups if trained is None else groups + trained.groups(gold_relations(question))


@click.command(help=__doc__)
@several_beams
@beam_options
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
