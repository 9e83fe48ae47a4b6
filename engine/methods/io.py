"""Ask a language model for the answers at once, without the graph."""

from kbqa.engine.methods.direct import Direct, DirectSettings, make_direct
from kbqa.engine.setup import Resources

SETTINGS = DirectSettings


def make(resources: Resources, settings: DirectSettings) -> Direct:
    """Make the method ready to answer; raises as `make_direct` does."""
    return make_direct(resources, settings, "io", reason=False)
