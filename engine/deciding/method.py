"""A method whose decisions are taken in sessions: its name, its settings, and how it answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kbqa.engine.answer import Answer
from kbqa.engine.deciding.session import Session, Walkers
from kbqa.engine.method import Asked
from kbqa.engine.resources import MethodMaker, Resources
from kbqa.engine.writing.generate import Candidate, Progress


class WalkingMethod:
    """A method that opens a session for each question. It writes no paths with the small model.

    Args:
        name: In the table of methods.
        walkers: What all questions share.
        settings: Its settings and fixed limits, for manifests. They come before those of `walkers`.
        answer_in: Answers the question of a session; called by any number of threads.
    """

    general_calls: float | None = None

    def __init__(
        self,
        name: str,
        walkers: Walkers,
        settings: Mapping[str, object],
        answer_in: Callable[[Session], Answer],
    ) -> None:
        self.name = name
        self._walkers, self._settings, self._answer_in = walkers, settings, answer_in

    def settings(self) -> Mapping[str, object]:
        """Return what decides the answers, for manifests."""
        return {**self._walkers.settings(), **self._settings}

    def write(
        self, asked: Sequence[Asked], progress: Progress | None = None
    ) -> list[list[Candidate]]:
        """Write nothing: the graph is walked."""
        return [[] for _ in asked]

    def answer(self, asked: Asked) -> Answer:
        """Answer a question; see `Method.answer`."""
        return self._answer_in(self._walkers.begin(asked))


def walking_method(
    name: str,
    settings: type[Any],
    limits: Mapping[str, object],
    answer_question: Callable[[Session, Any], Answer],
    needs_model: Callable[[Any], str | None] = lambda _: None,
) -> MethodMaker:
    """Return how a method is made of a function that answers in a session.

    Args:
        name: In the table of methods.
        settings: Its settings, of which `seed` is for chance.
        limits: Its fixed limits, for manifests.
        answer_question: Answers, by the settings.
        needs_model: Returns what of the settings is for a language model alone, if anything.
    """

    def make(resources: Resources, chosen: Any) -> WalkingMethod:
        if needed := needs_model(chosen):
            resources.require_language_model(needed)
        return WalkingMethod(
            name,
            resources.walkers(chosen.seed),
            {**asdict(chosen), **limits},
            lambda session: answer_question(session, chosen),
        )

    return MethodMaker(settings, make)
