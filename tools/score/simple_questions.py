"""Score paths for SimpleQuestions: are the topic and the relation of the question's fact right?

    python -m tools.score.simple_questions --questions simplequestions.test-half.jsonl.gz \
        --store slice --without-in-valid --trained simplequestions.train.jsonl.gz \
        --trained simplequestions.valid.jsonl.gz before.jsonl after.jsonl

BEAMS are files of `kbqa crp generate`, scored on the questions that all of them have. A candidate
is right if the entity that its topic was linked to is the subject of the fact, and its main path is
the relation alone. The relation's reverse property, followed backwards, counts as the relation, as
both lead to the same entities. Constraints do not matter. With --gold-entities, names are bound to
the subject first, so that nearly only the relation decides.

The columns are shares with 95 % bootstrap intervals: of questions whose first candidate, the one
that is chosen, is right; whose first answer is one that the fact's subject and relation lead to;
and of which any candidate is right. The confidence model chooses among the written candidates, and
with --judge, in lines of its own, the judge among these and searched ones. With --trained,
questions are also divided by whether the model was trained on the relation. Differences from the
first line are paired.
"""

from collections.abc import Collection, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import NamedTuple

import click
from tqdm import tqdm

from kbqa.engine.questions.official import read_question_rows
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.resources import Resources
from kbqa.engine.running.judge import SHIPPED_JUDGE
from kbqa.engine.running.tried import Tried
from kbqa.engine.writing.generate import read_beams
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Hop
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import Term
from tools.score.shared.groups import Scores, TrainedRelations, print_tables
from tools.score.shared.run_beams import BeamRunner, beam_options, rank_by_confidence, several_beams

_ALL = 1_000_000


class Fact(NamedTuple):
    """A question, and the subject and relation of the fact that it asks for."""

    question: Question
    subject: str
    relation: str


def read_facts(path: Path, *, without_in_valid: bool) -> list[Fact]:
    """Read the questions of a file of SimpleQuestions.

    Args:
        path: The file.
        without_in_valid: Leave out rows that share their question, or their subject and relation,
            with the validation set.

    Raises:
        InputError: The file is not of that form.
    """
    facts = []
    for (number, row), question in zip(read_question_rows(path), read_questions(path), strict=True):
        subject, relation = row.get("subject"), row.get("relation")
        if not isinstance(subject, str) or not isinstance(relation, str):
            raise InputError(f"{path}, line {number}: no subject and relation of SimpleQuestions")
        if not (without_in_valid and row.get("in_valid")):
            facts.append(Fact(question, subject, relation))
    return facts


def is_right(tried: Tried, fact: Fact, schema: GraphSchema) -> bool:
    """Return whether a candidate has the topic and the relation of a fact."""
    crp = tried.crp
    if crp is None or crp.topic.mid != fact.subject or len(crp.path) != 1:
        return False
    [step] = crp.path
    return isinstance(step, Hop) and (
        schema.canonical([step]) == schema.canonical([Hop(fact.relation)])
    )


def right_answers(fact: Fact, graph: Graph, schema: GraphSchema) -> set[Term]:
    """Look up what the subject and the relation of a fact lead to.

    Raises:
        GraphError: The graph does not answer.
    """
    found = set(graph.neighbours(fact.subject, fact.relation, "out", _ALL))
    stated = schema.of([fact.relation]).property(fact.relation)
    if stated is not None and stated.reverse:
        found.update(graph.neighbours(fact.subject, stated.reverse, "in", _ALL))
    return found


def score_question(
    tried: Sequence[Tried], fact: Fact, answers: Collection[Term], schema: GraphSchema
) -> Scores:
    """Score the candidates of a question, the surest first."""
    right = [is_right(each, fact, schema) for each in tried]
    first = {term for each in tried[:1] for term in each.terms[:1]}
    return {
        "first": float(any(right[:1])),
        "first answer": float(not first.isdisjoint(answers)),
        "any": float(any(right)),
    }


@click.command(help=__doc__)
@several_beams
@beam_options
@click.option(
    "--judge",
    is_flag=True,
    help="Score what the judge that comes with kbqa chooses, as well.",
)
@click.option(
    "--without-in-valid",
    is_flag=True,
    help="Leave out rows marked `in_valid`: for models that were trained on the validation set.",
)
@click.option(
    "--trained",
    "training_files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Question set that a model was trained on; repeatable.",
)
def main(
    files: Sequence[Path],
    question_file: Path,
    store: Path,
    gold_entities: bool,
    judge: bool,
    without_in_valid: bool,
    training_files: Sequence[Path],
) -> None:
    """Print the tables."""
    beams = [read_beams(file) for file in files]
    asked = read_facts(question_file, without_in_valid=without_in_valid)
    facts = [fact for fact in asked if all(fact.question.id in one for one in beams)]
    if not facts:
        raise InputError(f"the files have no question of {question_file} in common")
    lines = []
    with closing(open_graph(store)) as graph, closing(Resources(graph)) as resources:
        trained = TrainedRelations.read(training_files, graph) if training_files else None
        schema = GraphSchema(graph)
        answers = [right_answers(fact, graph, schema) for fact in facts]
        runners = {"": BeamRunner(resources, gold_entities)}
        if judge:
            runners[", judge"] = BeamRunner(resources, gold_entities, SHIPPED_JUDGE)
        for (file, candidates), (way, runner) in product(
            zip(files, beams, strict=True), runners.items()
        ):
            scores = []
            for fact, right in zip(
                tqdm(facts, unit="question", disable=None), answers, strict=True
            ):
                tried = runner.run(fact.question, candidates[fact.question.id])
                ranked = rank_by_confidence(tried, runner.model)
                scores.append(score_question(ranked, fact, right, schema))
            lines.append((f"{file.stem}{way}", scores))
    groups = [["all", *(trained.groups([fact.relation]) if trained else ())] for fact in facts]
    print_tables(f"beams, {'gold' if gold_entities else 'linked'} entities", groups, lines)
    click.echo(f"\n{len(facts)} of {len(asked)} questions are in all files.")


if __name__ == "__main__":
    main()
