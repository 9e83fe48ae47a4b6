"""Make TRACE from its settings."""

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.methods.trace.method import TraceMethod
from kbqa.engine.methods.trace.settings import TraceSettings
from kbqa.engine.setup import Resources
from kbqa.sparql.errors import InputError

SETTINGS = TraceSettings


def make(resources: Resources, settings: TraceSettings) -> TraceMethod:
    """Make TRACE ready to answer.

    Raises:
        InputError: The settings contradict what there is to work with.
        ModelError: The embedder is missing or broken.
        StoreError: The store's schema is missing or broken.
    """
    by_language_model = resources.chooser == "llm"
    if settings.answer == "llm" and not by_language_model:
        raise InputError("answer=llm needs a general model: add --llm URL or --llm-model NAME")
    walkers = resources.walkers(settings.seed)
    return TraceMethod(walkers, settings, Embedder.load() if by_language_model else None)
