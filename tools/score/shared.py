"""What the tools that score share: candidates that are run, tables by groups, and uncertainty."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path

import click

from kbqa.engine.asked import Asked
from kbqa.engine.evaluation.scores import bootstrap_mean
from kbqa.engine.evaluation.statistics import count_signs, paired_bootstrap, sign_test
from kbqa.engine.evaluation.tables import Cell, MarkdownTable, markdown_table
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.methods import Resources
from kbqa.engine.methods.kbqa import KbqaSettings, load_judge, make_pool, run_searched
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.running.run import Runner
from kbqa.engine.running.tried import ConfidenceModel, Tried, rank_tried
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.errors import InputError

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

    def run(self, question: Question, candidates: Sequence[Candidate]) -> list[Tried]:
        """Run each candidate, relaxed if need be."""
        resources = self._resources
        linked = resources.linker.link(question.text)
        topics = name_topics(resources.graph, question.topics) if self._gold_entities else []
        asked = Asked(question.text, tuple(topics), tuple(linked))
        runner = Runner(asked, resources.graph, resources.names, resources.timeout_s)
        tried = runner.check(runner.run(candidates))
        if self._pool is not None:
            tried += runner.check(run_searched(asked, tried, self._pool, runner))
        return self._judge.read(question.text, tried, resources.graph)


def rank_by_confidence(tried: Sequence[Tried], model: ConfidenceModel) -> list[Tried]:
    """Return a question's candidates with their confidences, in the order of `kbqa eval`."""
    confidences = model.judge(tried)
    judged = [replace(each, confidence=c) for each, c in zip(tried, confidences, strict=True)]
    return [judged[at] for at in rank_tried(judged)]


Scores = Mapping[str, float]
"""The scores of one question, by column."""


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
            # A line without the column has no values.
            ours, theirs = (
                [[each[at][column] for at in of_group if column in each[at]] for column in columns]
                for each in (scores, baseline)
            )
            means.append([*head, *(bootstrap_mean(values) if values else "–" for values in ours)])
            if scores is not baseline:
                pairs = zip(theirs, ours, strict=True)
                cells = [paired_difference(*pair) if all(pair) else "–" for pair in pairs]
                differences.append([*head, *cells])
    click.echo(markdown_table(MarkdownTable(header, means)))
    if differences:
        click.echo(f"\nAgainst {lines[0][0]}, paired:\n")
        click.echo(markdown_table(MarkdownTable(header, differences)))
