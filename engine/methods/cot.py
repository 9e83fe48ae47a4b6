"""Have a language model reason and then answer, without the graph."""

from functools import partial

from kbqa.engine.method import MethodMaker
from kbqa.engine.methods.direct import DirectSettings, make_direct

COT = MethodMaker(DirectSettings, partial(make_direct, name="cot", reason=True))
