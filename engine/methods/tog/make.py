"""Make Think-on-Graph from its settings."""

from dataclasses import asdict

from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.methods.tog.method import LIMITS, answer_question
from kbqa.engine.methods.tog.settings import TogSettings
from kbqa.engine.resources import Resources

SETTINGS = TogSettings


def make(resources: Resources, settings: TogSettings) -> WalkingMethod:
    """Make Think-on-Graph ready to answer.

    Raises:
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    return WalkingMethod(
        "tog",
        resources.walkers(settings.seed),
        {**asdict(settings), **LIMITS},
        lambda session: answer_question(session, settings),
    )
