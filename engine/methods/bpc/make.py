"""Make Bounded Path Context from its settings."""

from dataclasses import asdict

from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.methods.bpc.method import LIMITS, answer_question
from kbqa.engine.methods.bpc.settings import BpcSettings
from kbqa.engine.resources import Resources

SETTINGS = BpcSettings


def make(resources: Resources, settings: BpcSettings) -> WalkingMethod:
    """Make Bounded Path Context ready to answer.

    Raises:
        InputError: A control that asks a language model alone is wanted, and none decides.
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    if settings.control == "cot":
        resources.require_language_model("control=cot")
    return WalkingMethod(
        "bpc",
        resources.walkers(settings.seed),
        {**asdict(settings), **LIMITS},
        lambda session: answer_question(session, settings),
    )
