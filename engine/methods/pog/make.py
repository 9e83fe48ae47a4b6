"""Make Plan-on-Graph from its settings."""

from dataclasses import asdict

from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.methods.pog.method import LIMITS, answer_question
from kbqa.engine.methods.pog.settings import PogSettings
from kbqa.engine.resources import Resources

SETTINGS = PogSettings


def make(resources: Resources, settings: PogSettings) -> WalkingMethod:
    """Make Plan-on-Graph ready to answer.

    Raises:
        InputError: Parts are left out that only a language model has.
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    if settings.ablate:
        resources.require_language_model(f"ablate={','.join(settings.ablate)}")
    return WalkingMethod(
        "pog",
        resources.walkers(settings.seed),
        {**asdict(settings), **LIMITS},
        lambda session: answer_question(session, settings),
    )
