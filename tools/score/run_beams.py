"""Run all candidates of questions, for the tools that judge them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbqa.engine.linking.ground import Grounder, name_topics
from kbqa.engine.method import Clock
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.running.confidence import ConfidenceModel, rank_tried
from kbqa.engine.running.execute import Executor, Policy
from kbqa.engine.running.tried import Tried
from kbqa.engine.setup import Resources
from kbqa.engine.writing.generate import Candidate


@dataclass(frozen=True, slots=True)
class BeamRunner:
    """Runs candidates as `kbqa eval` does, but every one of them.

    Attributes:
        resources: Graph, names and linker.
        gold_entities: Bind names to the questions' topics first.
    """

    resources: Resources
    gold_entities: bool

    def run(
        self, question: Question, candidates: Sequence[Candidate], *, by_class: bool = False
    ) -> list[Tried]:
        """Run each candidate, relaxed if need be.

        Args:
            question: The question.
            candidates: Those written for it.
            by_class: Relax as the paper does.
        """
        resources = self.resources
        topics = name_topics(resources.graph, question.topics) if self.gold_entities else []
        linked = resources.linker.link(question.text)
        grounder = Grounder(resources.graph, resources.names, linked, topics)
        policy = Policy(by_class=by_class)
        executor = Executor(
            resources.graph, grounder, Clock(), resources.timeout_s, policy, question.text
        )
        return executor.run_all(candidates)


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
