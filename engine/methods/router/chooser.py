"""Who chooses among paths: a general model, or the embedder alone.

Source: RouterKGQA §3.3, "Path selection". Choosing by the embedder alone is ours: free, offline,
and the baseline that a general model must beat.
"""

from collections.abc import Sequence
from typing import Protocol

from kbqa.engine.chat.model import ChatModel
from kbqa.engine.exploring.frontiers import RelationPath
from kbqa.engine.methods.router.path_search import ScoredPath
from kbqa.engine.methods.router.prompts import (
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
        """Write the blueprint: a phrase a step; none if it is not known."""

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Choose the best paths, best first: at least one, at most `wanted`."""

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Return whether a path already ends at the answers."""


class EmbedderChooser:
    """Takes the paths most similar to the question, without a language model."""

    def plan(self, question: str) -> tuple[str, ...]:
        """Return no steps."""
        return ()

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Take the first."""
        return [each.path for each in paths[:wanted]]

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Return no, so the search goes on."""
        return False


class ChatChooser:
    """Asks a general model. If its reply names no path, the order by similarity stays.

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
        """Ask for the best; without a call if there are no more than wanted."""
        every = [each.path for each in paths]
        if len(every) <= wanted:
            return every
        reply = self._chat.complete(choice_prompt(question, steps, every, wanted))
        chosen = read_choice(reply.text, len(every), wanted)
        return [every[at] for at in chosen] or every[:wanted]

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Ask whether the search may end."""
        return read_judgement(self._chat.complete(judge_prompt(question, paths)).text)
