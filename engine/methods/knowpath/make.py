"""Make KnowPath from its settings."""

from dataclasses import asdict

from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.methods.knowpath.method import LIMITS, answer_question
from kbqa.engine.methods.knowpath.settings import KnowpathSettings
from kbqa.engine.resources import MethodMaker, Resources


def _make(resources: Resources, settings: KnowpathSettings) -> WalkingMethod:
    """Make KnowPath ready to answer.

    Raises:
        InputError: Parts are left out that only a language model has.
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    if settings.ablate:
        resources.require_language_model(f"ablate={','.join(settings.ablate)}")
    walkers = resources.walkers(settings.seed)
    embedder = walkers.load_embedder() if settings.order == "embedder" else None
    return WalkingMethod(
        "knowpath",
        walkers,
        {**asdict(settings), **LIMITS},
        lambda session: answer_question(session, settings, embedder),
    )


KNOWPATH = MethodMaker(KnowpathSettings, _make)
