"""Make Bounded Path Context from its settings."""

from kbqa.engine.deciding.method import walking_method
from kbqa.engine.methods.bpc.method import LIMITS, answer_question
from kbqa.engine.methods.bpc.settings import BpcSettings

BPC = walking_method(
    "bpc",
    BpcSettings,
    LIMITS,
    answer_question,
    lambda settings: "control=cot" if settings.control == "cot" else None,
)
