"""Make TRACE from its settings."""

from dataclasses import asdict

from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.methods.trace.method import LIMITS, answer_question
from kbqa.engine.methods.trace.settings import TraceSettings
from kbqa.engine.resources import MethodMaker, Resources


def _make(resources: Resources, settings: TraceSettings) -> WalkingMethod:
    """Make TRACE ready to answer.

    Raises:
        InputError: The settings are about what only a language model does, and none decides.
        ModelError: The embedder is missing or broken.
        StoreError: The store's schema is missing or broken.
    """
    if settings.of_language_model:
        resources.require_language_model(settings.of_language_model)
    walkers = resources.walkers(settings.seed)
    decided = {**asdict(settings), **LIMITS}
    embedder = None
    if resources.chooser == "llm":
        embedder = walkers.load_embedder()
        decided["embedder"] = embedder.name
    return WalkingMethod(
        "trace",
        walkers,
        decided,
        lambda session: answer_question(session, walkers, settings, embedder),
    )


TRACE = MethodMaker(TraceSettings, _make)
