"""Who chooses among paths: a general model, the embedder alone, or chance.

Source: RouterKGQA §3.3, "Path selection". Choosing by the embedder alone is ours: free, offline,
and the baseline that a general model must beat. Chance is the baseline of both.
"""

from collections.abc import Sequence
from typing import Protocol

from kbqa.engine.chat.model import ChatModel
from kbqa.engine.deciding.choosers import draw
from kbqa.engine.exploring.frontiers import RelationPath
from kbqa.engine.methods.router.prompts import (
    blueprint_prompt,
    choice_prompt,
    judge_prompt,
    read_blueprint,
    read_choice,
    read_judgement,
    written_path,
)
from kbqa.engine.methods.router.search.path_search import ScoredPath


class Chooser(Protocol):
    """Makes the decisions of one repair. Every method may raise a `ModelError`."""

    @property
    def plans(self) -> bool:
        """Whether it writes blueprints, which then are decisions."""

    def plan(self, question: str) -> tuple[str, ...]:
        """Write the blueprint: a phrase a step; none if it is not known."""

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Choose the best of more paths than `wanted`, best first: at least one."""

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Return whether a path already ends at the answers."""


class EmbedderChooser:
    """Takes the paths most similar to the question, without a language model."""

    plans = False

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


class RandomChooser:
    """Draws paths by chance, which depends on the seed, the question and the paths alone."""

    plans = False

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def plan(self, question: str) -> tuple[str, ...]:
        """Return no steps."""
        return ()

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Draw them."""
        options = sorted((each.path for each in paths), key=written_path)
        content = [written_path(each) for each in options]
        return [options[at] for at in draw(len(options), wanted, self._seed, question, *content)]

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Return no, so the search goes on."""
        return False


class ChatChooser:
    """Asks a general model. If its reply names no path, the order by similarity stays.

    Args:
        chat: The model.
    """

    plans = True

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat

    def plan(self, question: str) -> tuple[str, ...]:
        """Ask for the blueprint."""
        return read_blueprint(self._chat.complete(blueprint_prompt(question)).text)

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Ask for the best."""
        every = [each.path for each in paths]
        reply = self._chat.complete(choice_prompt(question, steps, every, wanted))
        chosen = read_choice(reply.text, len(every), wanted)
        return [every[at] for at in chosen] or every[:wanted]

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Ask whether the search may end."""
        return read_judgement(self._chat.complete(judge_prompt(question, paths)).text)
