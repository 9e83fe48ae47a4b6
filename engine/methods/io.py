"""Ask a language model for the answers at once, without the graph."""

from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.methods.direct import DirectSettings, make_direct
from kbqa.engine.resources import Resources

SETTINGS = DirectSettings


def make(resources: Resources, settings: DirectSettings) -> WalkingMethod:
    """Make the method ready to answer; raises as `make_direct` does."""
    return make_direct(resources, settings, "io", reason=False)
