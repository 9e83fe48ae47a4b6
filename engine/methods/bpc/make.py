"""Make Bounded Path Context from its settings."""

from kbqa.engine.methods.bpc.method import BoundedPathContext
from kbqa.engine.methods.bpc.settings import BpcSettings
from kbqa.engine.setup import Resources

SETTINGS = BpcSettings


def make(resources: Resources, settings: BpcSettings) -> BoundedPathContext:
    """Make Bounded Path Context ready to answer.

    Raises:
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    return BoundedPathContext(resources.walkers(settings.seed), settings)
