"""Tables of scores by groups of questions, and by whether a model was trained on their relations.

A relation was trained on if a row that `kbqa train-crp` can use has it, by this name. Rows that
training holds out, or does not draw for its mixture, count as well. Questions on the demo graph do
not count.

A model that learnt only the reverse of a relation can still write the path, backwards. So questions
with a relation of which not even the reverse was trained on are a group of their own.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kbqa.engine.evaluation.scores import bootstrap_mean
from kbqa.engine.evaluation.tables import Cell, MarkdownTable, markdown_table
from kbqa.engine.questions.question_sets import Question
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import read_crp
from kbqa.sparql.templates import query_mentions
from kbqa.training.data.training_set import load_examples
from tools.score.shared.shares import paired_difference

Scores = Mapping[str, float]
"""The scores of one question, by column."""


@dataclass(frozen=True, slots=True)
class TrainedRelations:
    """The relations that a model was trained on.

    Attributes:
        named: Those that the training files have.
        reverses: The reverses of these.
    """

    named: frozenset[str]
    reverses: frozenset[str]

    @classmethod
    def read(cls, files: Iterable[Path], graph: Graph) -> "TrainedRelations":
        """Read the relations of training files.

        Args:
            files: All question sets that the model was trained on.
            graph: Names entities that the files do not name, and knows the reverses.

        Raises:
            InputError: A file is not a question set.
            GraphError: The graph does not answer.
        """
        examples = load_examples(files, form="extended", names=graph.labels).examples
        crps = (read_crp(example.target).crp for example in examples)
        named = frozenset(relation for crp in crps for relation in crp.relations())
        schema = GraphSchema(graph).of(named)
        stated = (schema.property(relation) for relation in named)
        reverses = frozenset(each.reverse for each in stated if each is not None and each.reverse)
        return cls(named, reverses)

    def groups(self, relations: Collection[str]) -> list[str]:
        """Return the groups of a question with these gold relations; none if it has none."""
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


def print_tables(
    title: str,
    groups: Sequence[Collection[str]],
    lines: Sequence[tuple[str, Sequence[Scores]]],
) -> None:
    """Print the means of each group, and the paired differences from the first line.

    Args:
        title: What the lines are.
        groups: The groups that each question belongs to.
        lines: The name of each line, and the scores of its questions, in the order of `groups`.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for at, names in enumerate(groups):
        for name in names:
            members[name].append(at)
    columns = list(dict.fromkeys(column for _, scores in lines for column in scores[0]))
    header = (title, "questions", "n", *columns)
    _, baseline = lines[0]
    means: list[list[Cell]] = []
    differences: list[list[Cell]] = []
    for name, scores in lines:
        for group, of_group in sorted(members.items()):
            head = [name, group, str(len(of_group))]
            ours = [_column(scores, column, of_group) for column in columns]
            theirs = [_column(baseline, column, of_group) for column in columns]
            means.append([*head, *(bootstrap_mean(one) if one else "–" for one in ours)])
            if scores is not baseline:
                pairs = zip(theirs, ours, strict=True)
                cells = [paired_difference(*pair) if all(pair) else "–" for pair in pairs]
                differences.append([*head, *cells])
    click.echo(markdown_table(MarkdownTable(header, means)))
    if differences:
        click.echo(f"\nAgainst {lines[0][0]}, paired:\n")
        click.echo(markdown_table(MarkdownTable(header, differences)))


def _column(scores: Sequence[Scores], column: str, members: Sequence[int]) -> list[float]:
    """Return a column of some questions; empty if the line does not have it."""
    return [scores[at][column] for at in members if column in scores[at]]
