"""Make Plan-on-Graph from its settings."""

from kbqa.engine.methods.pog.method import PlanOnGraph
from kbqa.engine.methods.pog.settings import PogSettings
from kbqa.engine.setup import Resources

SETTINGS = PogSettings


def make(resources: Resources, settings: PogSettings) -> PlanOnGraph:
    """Make Plan-on-Graph ready to answer.

    Raises:
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    return PlanOnGraph(resources.walkers(settings.seed), settings)
