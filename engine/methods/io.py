"""Ask a language model for the answers at once, without the graph."""

from functools import partial

from kbqa.engine.methods.direct import DirectSettings, make_direct
from kbqa.engine.resources import MethodMaker

IO = MethodMaker(DirectSettings, partial(make_direct, name="io", reason=False))
