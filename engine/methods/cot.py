"""Have a language model reason and then answer, without the graph."""

from functools import partial

from kbqa.engine.methods.direct import DirectSettings, make_direct
from kbqa.engine.resources import MethodMaker

COT = MethodMaker(DirectSettings, partial(make_direct, name="cot", reason=True))
