"""Make Think-on-Graph from its settings."""

from kbqa.engine.methods.tog.method import ThinkOnGraph
from kbqa.engine.methods.tog.settings import TogSettings
from kbqa.engine.setup import Resources

SETTINGS = TogSettings


def make(resources: Resources, settings: TogSettings) -> ThinkOnGraph:
    """Make Think-on-Graph ready to answer.

    Raises:
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    return ThinkOnGraph(resources.walkers(settings.seed), settings)
