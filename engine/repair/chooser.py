"""Who chooses among paths: a general model, or the embedder alone.

Source: RouterKGQA §3.3, "Path selection". Choosing by the embedder alone is ours: free, offline,
and the baseline that a general model must beat.
"""

from collections.abc import Sequence
from typing import Protocol

from kbqa.engine.chat.model import ChatModel
from kbqa.engine.repair.frontiers import RelationPath
from kbqa.engine.repair.path_search import ScoredPath
from kbqa.engine.repair.prompts import (
    blueprint_prompt,
    choice_prompt,
    judge_prompt,
    read_blueprint,
    read_choice,
    read_judgement,
)


class Chooser(Protocol):
    """Makes the decisions of one repair. Every method may raise a `ModelError`."""

    def plan(self, question: str) -> tuple[str, ...]:
        """Write the blueprint: a phrase a step; none where it cannot be told."""

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Choose the best paths, best first: at most `wanted`, and one at least."""

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Tell whether a path already ends at the answers."""


class EmbedderChooser:
    """Takes the paths that are most like the question, and asks nobody."""

    def plan(self, question: str) -> tuple[str, ...]:
        """Know no steps."""
        return ()

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Take the first."""
        return [each.path for each in paths[:wanted]]

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Cannot tell, so the search goes on."""
        return False


class ChatChooser:
    """Asks a general model; where its reply names no path, the order by likeness stands.

    Args:
        chat: The model.
    """

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat

    def plan(self, question: str) -> tuple[str, ...]:
        """Ask for the blueprint."""
        return read_blueprint(self._chat.complete(blueprint_prompt(question)).text)

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Ask for the best; of no more paths than wanted all are taken, without a call."""
        every = [each.path for each in paths]
        if len(every) <= wanted:
            return every
        reply = self._chat.complete(choice_prompt(question, steps, every, wanted))
        chosen = read_choice(reply.text, len(every), wanted)
        return [every[at] for at in chosen] or every[:wanted]

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Ask whether the search may end."""
        return read_judgement(self._chat.complete(judge_prompt(question, paths)).text)
