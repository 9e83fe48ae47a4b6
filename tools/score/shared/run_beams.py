"""Run all candidates of questions, for the tools that judge them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kbqa.engine.asked import Asked
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.methods.kbqa import (
    SEARCHED_LIMIT_S,
    KbqaSettings,
    load_judge,
    make_pool,
    run_searched,
)
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.resources import Resources
from kbqa.engine.running.confidence import ConfidenceModel, rank_tried
from kbqa.engine.running.run import Runner
from kbqa.engine.running.tried import Tried
from kbqa.engine.writing.generate import Candidate

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


class BeamRunner:
    """Runs candidates as `kbqa eval` does, but every one of them.

    Args:
        resources: Graph, names and linker.
        gold_entities: Bind names to the questions' topics first.
        judge: Folder of a judge, whose candidates include searched paths; None for the confidence
            model, which chooses among written ones.
    """

    def __init__(
        self, resources: Resources, gold_entities: bool, judge: Path | None = None
    ) -> None:
        self._resources, self._gold_entities = resources, gold_entities
        settings = KbqaSettings(judge=str(judge or "confidence"))
        self._pool, (self._judge, _) = (
            make_pool(settings, resources),
            load_judge(settings, resources),
        )
        self.model = self._judge.model
        """Chooses among the candidates."""

    def run(
        self, question: Question, candidates: Sequence[Candidate], *, by_class: bool = False
    ) -> list[Tried]:
        """Run each candidate, relaxed if need be.

        Args:
            question: The question.
            candidates: Those written for it.
            by_class: Relax as the paper does.
        """
        graph, linked = self._resources.graph, self._resources.linker.link(question.text)
        topics = name_topics(graph, question.topics) if self._gold_entities else []
        asked = Asked(question.text, tuple(topics), tuple(linked))
        names, timeout_s = self._resources.names, self._resources.timeout_s
        tried = Runner(asked, graph, names, timeout_s, by_class=by_class).run(candidates)
        if self._pool is not None:
            brief = Runner(asked, graph, names, min(timeout_s, SEARCHED_LIMIT_S), by_class=by_class)
            tried += run_searched(asked, tried, self._pool, brief)
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
