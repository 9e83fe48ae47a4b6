"""What the tools that score share: candidates that are run, tables by groups, and uncertainty.

A relation was trained on if a row that `kbqa train-crp` can use has it, by this name. Rows that
training holds out, or does not draw for its mixture, count as well. Questions on the demo graph do
not count. A model that learnt only the reverse of a relation can still write the path, backwards.
So questions with a relation of which not even the reverse was trained on are a group of their own.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any

import click

from kbqa.engine.asked import Asked
from kbqa.engine.evaluation.scores import bootstrap_mean
from kbqa.engine.evaluation.statistics import count_signs, paired_bootstrap, sign_test
from kbqa.engine.evaluation.tables import Cell, MarkdownTable, markdown_table
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.methods.kbqa import (
    KbqaSettings,
    load_judge,
    make_pool,
    run_searched,
)
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.resources import Resources
from kbqa.engine.running.run import Runner
from kbqa.engine.running.tried import ConfidenceModel, Tried, rank_tried
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.dialect import query_mentions
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import read_crp
from kbqa.training.data.training_set import load_examples

_Z = 1.959964  # of the normal distribution, for 95 %


def share_with_interval(hits: int, n: int) -> str:
    """Write a share with its 95 % Wilson interval, all in per cent.

    >>> share_with_interval(98, 100)
    '98.0 % [93.0, 99.4]'

    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if n < 1:
        raise ValueError("a share of nothing")
    share = hits / n
    middle = share + _Z**2 / (2 * n)
    spread = _Z * sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low, high = ((middle + side * spread) / (1 + _Z**2 / n) for side in (-1, 1))
    return f"{100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def paired_difference(first: Sequence[float], second: Sequence[float]) -> str:
    """Write the mean difference of two runs over the same questions, and whether it may be chance.

    >>> paired_difference([0.0, 0.5], [0.5, 1.0])
    '0.500 [0.500, 0.500], 2 wins, 0 losses, p = 0.5'
    """
    wins, losses, _ = count_signs(first, second)
    p = sign_test(wins, losses)
    return f"{paired_bootstrap(first, second)}, {wins} wins, {losses} losses, p = {p:.3g}"


_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

several_beams = click.argument("files", metavar="BEAMS…", type=_FILE, nargs=-1, required=True)
"""The argument of a tool that reads several files of beams."""


def beam_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a tool that runs beams: `question_file`, `store`, `gold_entities`."""
    for option in (
        click.option(
            "--gold-entities", is_flag=True, help="Bind names to the questions' topics first."
        ),
        click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR"),
        click.option("--questions", "question_file", type=_FILE, required=True, metavar="FILE"),
    ):
        command = option(command)
    return command


def gold_in_common(
    question_file: Path, beams: Sequence[Mapping[str, Sequence[Candidate]]]
) -> list[Question]:
    """Read the questions that have gold and that all beams hold; there must be some."""
    questions = read_questions(question_file)
    asked = [q for q in questions if q.kind is not None and all(q.id in each for each in beams)]
    if not asked:
        raise InputError(f"the files have no question of {question_file} with gold in common")
    return asked


class BeamRunner:
    """Runs candidates as `kbqa eval` does, but every one of them."""

    def __init__(
        self, resources: Resources, gold_entities: bool, judge: Path | None = None
    ) -> None:
        self._resources, self._gold_entities = resources, gold_entities
        settings = KbqaSettings(judge=str(judge or "confidence"))
        self._pool = make_pool(settings, resources)
        self._judge, _ = load_judge(settings, resources)
        self.model = self._judge.model

    def run(
        self, question: Question, candidates: Sequence[Candidate], *, by_class: bool = False
    ) -> list[Tried]:
        """Run each candidate, relaxed if need be."""
        graph, linked = self._resources.graph, self._resources.linker.link(question.text)
        topics = name_topics(graph, question.topics) if self._gold_entities else []
        asked = Asked(question.text, tuple(topics), tuple(linked))
        names, timeout_s = self._resources.names, self._resources.timeout_s
        runner = Runner(asked, graph, names, timeout_s, by_class=by_class)
        tried = runner.check(runner.run(candidates))
        if self._pool is not None:
            tried += runner.check(run_searched(asked, tried, self._pool, runner))
        return self._judge.read(question.text, tried, graph)


def rank_by_confidence(tried: Sequence[Tried], model: ConfidenceModel) -> list[Tried]:
    """Return a question's candidates with their confidences, in the order of `kbqa eval`."""
    confidences = model.judge(tried)
    judged = [replace(each, confidence=c) for each, c in zip(tried, confidences, strict=True)]
    return [judged[at] for at in rank_tried(judged)]


def first_answers(tried: Sequence[Tried]) -> int | None:
    """Choose as the paper does: the first with answers in full, else the first with any."""
    answered = [at for at, each in enumerate(tried) if each.terms]
    full = [at for at in answered if is_full(tried[at])]
    return next(iter(full or answered), None)


def is_full(tried: Tried) -> bool:
    """Return whether a candidate has answers without relaxation."""
    return tried.relaxation is not None and tried.relaxation.level == "full"


Scores = Mapping[str, float]
"""The scores of one question, by column."""


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
    """Print the means of each group, and the paired differences from the first line."""
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
