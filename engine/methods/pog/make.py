"""Make Plan-on-Graph from its settings."""

from kbqa.engine.deciding.method import walking_method
from kbqa.engine.methods.pog.method import LIMITS, answer_question
from kbqa.engine.methods.pog.settings import PogSettings

POG = walking_method(
    "pog",
    PogSettings,
    LIMITS,
    answer_question,
    lambda settings: f"ablate={','.join(settings.ablate)}" if settings.ablate else None,
)
