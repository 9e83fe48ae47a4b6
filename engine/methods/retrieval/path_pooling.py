"""Retrieve triples, pool their scores along paths, and have the best read.

Source: Path Pooling, algorithm 2.
"""

from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.methods.retrieval.method import make_retrieving
from kbqa.engine.methods.retrieval.settings import PathPoolingSettings
from kbqa.engine.setup import Resources

SETTINGS = PathPoolingSettings


def make(resources: Resources, settings: PathPoolingSettings) -> WalkingMethod:
    """Make the method ready to answer; raises as `make_retrieving` does."""
    return make_retrieving(resources, "path-pooling", settings, settings)
