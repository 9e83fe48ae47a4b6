"""Run all candidates of questions, for the tools that judge them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kbqa.engine.answer import term_text
from kbqa.engine.clock import Clock
from kbqa.engine.confidence import Outcome
from kbqa.engine.evaluation.metrics import score_best
from kbqa.engine.execute import Executor, Rules
from kbqa.engine.generate import Candidate
from kbqa.engine.ground import Grounder, name_topics
from kbqa.engine.linker import Linker
from kbqa.engine.questions import Question
from kbqa.kb.entity_search import Names
from kbqa.kb.graph import Graph


@dataclass(frozen=True, slots=True)
class BeamRunner:
    """Runs candidates as `kbqa eval` does, but every one of them.

    Attributes:
        graph: The graph.
        names: Its names.
        linker: Links questions to it.
        gold_entities: Bind names to the questions' topics first.
        timeout_s: Seconds for each query.
    """

    graph: Graph
    names: Names
    linker: Linker
    gold_entities: bool
    timeout_s: float = 30.0

    def run(
        self, question: Question, candidates: Sequence[Candidate], *, by_class: bool = False
    ) -> list[Outcome]:
        """Tell what becomes of each candidate, relaxed where need be.

        Args:
            question: Asked.
            candidates: Written for it.
            by_class: Relax as the paper does.
        """
        topics = name_topics(self.graph, question.topics) if self.gold_entities else []
        linked = self.linker.link(question.text)
        grounder = Grounder(self.graph, self.names, linked, topics)
        executor = Executor(self.graph, grounder, Clock(), self.timeout_s, Rules(by_class=by_class))
        return executor.outcomes(candidates)


def first_answers(outcomes: Sequence[Outcome]) -> int | None:
    """Choose as the paper does: what answers in full, else what answers relaxed, in their order."""
    answered = [at for at, outcome in enumerate(outcomes) if outcome.answers]
    full = [at for at in answered if outcomes[at].level == "full"]
    return next(iter(full or answered), None)


def f1_of(outcome: Outcome, golds: Sequence[Collection[str]]) -> float:
    """Score the answers of a candidate against the gold sets."""
    return score_best([term_text(term) for term in outcome.answers], golds).f1
