"""Make Think-on-Graph from its settings."""

from kbqa.engine.deciding.method import walking_method
from kbqa.engine.methods.tog.method import LIMITS, answer_question
from kbqa.engine.methods.tog.settings import TogSettings

TOG = walking_method("tog", TogSettings, LIMITS, answer_question)
