"""Retrieve the best triples around the topics, and have them read.

Source: SubgraphRAG (Li et al. 2025).
"""

from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.methods.retrieval.settings import SubgraphSettings
from kbqa.engine.resources import MethodMaker, Resources
from kbqa.engine.writing.models.base_models import require_embedding_packages


def _make_subgraph(resources: Resources, settings: SubgraphSettings) -> WalkingMethod:
    """Make the method ready to answer; raises as `make_retrieving` does."""
    require_embedding_packages("retrieving triples")
    from kbqa.engine.methods.retrieval.method import NO_POOLING, make_retrieving

    return make_retrieving(resources, "subgraph", settings, NO_POOLING)


SUBGRAPH = MethodMaker(SubgraphSettings, _make_subgraph)
