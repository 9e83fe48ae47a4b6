"""Route a question to repair when what the small model wrote for it will not do.

Two policies. By reachability, the paper's: no path that was written exists in the graph; all of
them are looked at before anything is paid for. By confidence, ours: the answers are not sure enough
(`kbqa.engine.confidence`), which a path that exists but is the wrong one may well be.

Source: RouterKGQA §3.2 and §3.3.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal as Choice

from kbqa.engine.chat.counted_chat import CountedChat
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.execute import Execution
from kbqa.engine.linker import LinkedEntity
from kbqa.engine.repair.chooser import ChatChooser, EmbedderChooser
from kbqa.engine.repair.frontiers import relation_path
from kbqa.engine.repair.repair import Failure, Repair, Repairer
from kbqa.sparql.crp import Crp, Entity

Policy = Choice["reachability", "confidence"]

MAX_TOPICS = 2
"""Entities that a repair starts from: the first may be the wrong one, and each costs queries."""

_LIKELY = 0.1
"""The linker's probability from which on an entity that is not its first choice is started from."""


class Router:
    """Decides which questions are repaired, and has it done. Any number of threads may use one.

    Args:
        repairer: Searches the paths.
        chat: Chooses among them; None to go by the embedder alone.
        policy: See the module's docstring.
        threshold: The confidence below which answers are not sure enough, in [0, 1]; for the policy
            ``confidence`` alone.
    """

    def __init__(
        self,
        repairer: Repairer,
        chat: ChatModel | None = None,
        policy: Policy = "reachability",
        threshold: float = 0.0,
    ) -> None:
        self._repairer, self._chat = repairer, chat
        self._policy, self._threshold = policy, threshold

    def settings(self) -> Mapping[str, object]:
        """Say for a manifest what decides its repairs."""
        return {
            "policy": self._policy,
            "threshold": self._threshold if self._policy == "confidence" else None,
            "general_model": None if self._chat is None else self._chat.name,
            **self._repairer.settings(),
        }

    def new_chat(self) -> CountedChat | None:
        """Make the general model that one question asks and that counts what it takes."""
        return None if self._chat is None else CountedChat(self._chat)

    def reason(self, execution: Execution) -> str | None:
        """Say why a question needs repair; None where it needs none."""
        if not execution.beams:
            return "no path was written"
        exists = any(beam.fate == "reachable" or beam.readings for beam in execution.beams)
        if execution.result is None and not exists:
            if any(beam.fate == "failed" for beam in execution.beams):
                return "no path that was written could be followed"
            return "no path that was written exists"
        if self._policy == "confidence":
            at = None if execution.result is None else execution.result.beam
            confidence = 0.0 if at is None else execution.beams[at].confidence or 0.0
            if confidence < self._threshold:
                return f"a confidence of {confidence:.2f} is below {self._threshold:.2f}"
        return None

    def repair(
        self,
        question: str,
        reason: str,
        execution: Execution,
        given: Sequence[Entity],
        linked: Sequence[LinkedEntity],
        chat: CountedChat | None,
    ) -> Repair | None:
        """Look for another path.

        Args:
            question: As asked.
            reason: As `reason` gave it.
            execution: What became of the written paths.
            given: Entities that were given with the question; paths start from these alone if any.
            linked: Those that it mentions, best first.
            chat: From `new_chat`.

        Returns:
            None where nothing is known to start from.

        Raises:
            ModelError: The general model failed.
            GraphError: The graph does not answer.
        """
        readings = [crp for crp in execution.readings if crp is not None]
        known = None
        if execution.result is not None:
            # It may be the right one after all, and then its own constraints belong to it.
            readings.insert(0, execution.result.crp)
            known = relation_path(execution.result.crp)
        topics = list(dict.fromkeys(_topics(readings, given, linked)))[:MAX_TOPICS]
        if not topics:
            return None
        failure = Failure(
            reason=reason,
            question=question,
            asked=_without(question, [_mention(topic, linked) for topic in topics]),
            topics=tuple(topics),
            crp=readings[0] if readings else None,
            known=() if known is None else (known,),
        )
        chooser = EmbedderChooser() if chat is None else ChatChooser(chat)
        return self._repairer.repair(failure, chooser)


def _topics(
    readings: Sequence[Crp], given: Sequence[Entity], linked: Sequence[LinkedEntity]
) -> Iterator[Entity]:
    """Yield what a question may be about: as the paths say it, then as it is given or linked."""
    names = {entity.mid: entity.name for entity in given}
    names.update((entity.mid, entity.name) for entity in linked)
    mids = [crp.topic.mid for crp in readings]
    likely = [entity for at, entity in enumerate(linked) if at == 0 or entity.score >= _LIKELY]
    mids += [entity.mid for entity in given] or [entity.mid for entity in likely]
    for mid in mids:
        if mid is not None:
            yield Entity(names.get(mid), mid)


def _mention(topic: Entity, linked: Sequence[LinkedEntity]) -> str:
    """Find the words that name a topic: as the linker saw them, or its name."""
    mentions = (entity.mention for entity in linked if entity.mid == topic.mid)
    return next(mentions, topic.name or "")


def _without(question: str, mentions: Sequence[str]) -> str:
    """Cut the mentions out of a question, each once; where nothing would remain, it stays whole.

    >>> _without("what language is used in the US by most people?", ["us"])
    'what language is used in the by most people?'
    """
    rest = question
    for mention in filter(None, mentions):
        words = rf"(?<!\w){re.escape(mention)}(?!\w)"
        rest = re.sub(words, " ", rest, count=1, flags=re.IGNORECASE)
    return " ".join(rest.split()) if any(map(str.isalpha, rest)) else question
