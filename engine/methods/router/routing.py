"""Decide which questions are repaired, and have it done.

Two policies. By reachability, the paper's: no path that was written exists in the graph; all of
them are tried before anything is paid for. By confidence, ours: the answers are not sure enough
(`kbqa.engine.running.confidence`), as a path that exists may still be the wrong one.

Source: RouterKGQA §3.2 and §3.3.
"""

from collections.abc import Mapping

from kbqa.engine.chat.model import ChatModel
from kbqa.engine.exploring.frontiers import relation_path
from kbqa.engine.method import Asked
from kbqa.engine.methods.router.chooser import (
    ChatChooser,
    Chooser,
    EmbedderChooser,
    RandomChooser,
)
from kbqa.engine.methods.router.repair import Failure, Repair, Repairer
from kbqa.engine.methods.router.search.starts import search_topics, without_mentions
from kbqa.engine.methods.router.settings import Route
from kbqa.engine.running.tried import Execution


class Routing:
    """Decides which questions are repaired, and has it done. Any number of threads may use one.

    Args:
        repairer: Searches the paths.
        chat: Chooses among them; None if the embedder alone does.
        route: What is repaired; see the module's docstring.
        threshold: The confidence below which answers are not sure enough, in [0, 1]; only for the
            route ``confidence``.
        general_calls: Calls of the general model a question, on average, that a run may take; None
            for any number.
        chance_seed: Seed by which chance chooses among them instead; None if it does not.
    """

    def __init__(
        self,
        repairer: Repairer,
        chat: ChatModel | None = None,
        route: Route = "reachability",
        threshold: float = 0.0,
        general_calls: float | None = None,
        chance_seed: int | None = None,
    ) -> None:
        self._repairer, self._chat = repairer, chat
        self._route, self._threshold, self.general_calls = route, threshold, general_calls
        self._chance_seed = chance_seed

    def settings(self) -> Mapping[str, object]:
        """Return what decides its repairs, for manifests."""
        chance = {} if self._chance_seed is None else {"chance_seed": self._chance_seed}
        limit = {} if self.general_calls is None else {"general_calls": self.general_calls}
        return {
            **chance,
            **limit,
            "route": self._route,
            "threshold": self._threshold if self._route == "confidence" else None,
            "general_model": None if self._chat is None else self._chat.name,
            **self._repairer.settings(),
        }

    def reason(self, execution: Execution) -> str | None:
        """Return why a question needs repair; None if it needs none."""
        written = [each for each in execution.tried if not each.candidate.is_searched]
        if not written:
            return "no path was written"
        exists = any(each.fate == "reachable" or each.readings for each in written)
        if not exists and not any(each.table is not None for each in written):
            if any(each.fate == "failed" for each in written):
                return "no path that was written could be followed"
            return "no path that was written exists"
        if self._route == "confidence":
            answering = execution.answering
            confidence = 0.0 if answering is None else answering.confidence or 0.0
            if confidence < self._threshold:
                return f"a confidence of {confidence:.2f} is below {self._threshold:.2f}"
        return None

    def claim_calls(self, asked: Asked) -> None:
        """Keep a question to the calls that its run has left for it; wait until that is known."""
        if self.general_calls is not None and asked.calls_left is not None:
            asked.budget.narrow(asked.calls_left())

    def repair(self, asked: Asked, reason: str, execution: Execution) -> Repair | None:
        """Look for another path.

        Args:
            asked: The question. Paths start from its given entities, or else from linked ones.
            reason: Why it needs repair, as `reason` returned it.
            execution: What running the written paths came to.

        Returns:
            None if nothing is known to start from.

        Raises:
            ModelError: The general model failed.
            GraphError: The graph does not answer.
        """
        readings = [each.crp for each in execution.tried if each.crp is not None]
        known = None
        if (answering := execution.answering) is not None and answering.crp is not None:
            # It may be the right one after all, and then its own constraints belong to it.
            readings.insert(0, answering.crp)
            known = relation_path(answering.crp)
        topics = search_topics(asked, readings)
        if not topics:
            return None
        failure = Failure(
            reason=reason,
            question=asked.question,
            asked=without_mentions(asked, topics),
            topics=tuple(topics),
            crp=readings[0] if readings else None,
            known=() if known is None else (known,),
        )
        return self._repairer.repair(failure, self._chooser(asked), asked.clock, asked.budget)

    def _chooser(self, asked: Asked) -> Chooser:
        if self._chance_seed is not None:
            return RandomChooser(self._chance_seed)
        if self._chat is not None and asked.chat is not None:
            return ChatChooser(asked.chat)
        return EmbedderChooser()
