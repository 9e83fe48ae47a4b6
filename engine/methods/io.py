"""Ask a language model for the answers at once, without the graph."""

from functools import partial

from kbqa.engine.method import MethodMaker
from kbqa.engine.methods.direct import DirectSettings, make_direct

IO = MethodMaker(DirectSettings, partial(make_direct, name="io", reason=False))
