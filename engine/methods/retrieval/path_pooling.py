"""Retrieve triples, pool their scores along paths, and have the best read.

Source: Path Pooling, algorithm 2.
"""

from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.methods.retrieval.settings import PathPoolingSettings
from kbqa.engine.resources import MethodMaker, Resources
from kbqa.engine.writing.models.base_models import require_embedding_packages


def _make_path_pooling(resources: Resources, settings: PathPoolingSettings) -> WalkingMethod:
    """Make the method ready to answer; raises as `make_retrieving` does."""
    require_embedding_packages("retrieving triples")
    from kbqa.engine.methods.retrieval.method import make_retrieving

    return make_retrieving(resources, "path-pooling", settings, settings)


PATH_POOLING = MethodMaker(PathPoolingSettings, _make_path_pooling)
