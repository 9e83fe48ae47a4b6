"""Make KnowPath from its settings."""

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.methods.knowpath.method import KnowPath
from kbqa.engine.methods.knowpath.settings import KnowpathSettings
from kbqa.engine.setup import Resources
from kbqa.sparql.errors import InputError

SETTINGS = KnowpathSettings


def make(resources: Resources, settings: KnowpathSettings) -> KnowPath:
    """Make KnowPath ready to answer.

    Raises:
        InputError: Parts are left out that only a language model has.
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    if settings.ablate and resources.chooser != "llm":
        raise InputError(
            f"ablate={','.join(settings.ablate)} is about what a language model does: "
            "add --llm URL or --llm-model NAME"
        )
    walkers = resources.walkers(settings.seed)
    embedder = None
    if settings.order == "embedder":
        embedder = walkers.embedder or Embedder.load()
    return KnowPath(walkers, settings, embedder)
