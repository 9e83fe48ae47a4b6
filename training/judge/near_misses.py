"""Make paths that nearly answer a question, from its gold path.

A writer often misses a condition or stops a hop too early. A judge that never sees the like next to
the right path does not learn to tell them apart.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from kbqa.sparql.crp import Crp


def near_misses(crp: Crp) -> Iterator[Crp]:
    r"""Yield a CRP without each of its constraints, without its order, and a hop shorter.

    >>> from kbqa.sparql.forms import read_crp, render_crp
    >>> crp = read_crp("Kenya -> a.b -> a.c\n?x -> a.d = Peru\nlargest ?x -> a.e").crp
    >>> for one in near_misses(crp):
    ...     print(render_crp(one).replace("\n", "; "))
    Kenya -> a.b -> a.c; largest ?x -> a.e
    Kenya -> a.b -> a.c; ?x -> a.d = Peru
    Kenya -> a.b
    """
    for change in _changes(crp):
        try:
            yield change()
        except ValueError:  # A part that is left needs what was taken.
            continue


def _changes(crp: Crp) -> Iterator[Callable[[], Crp]]:
    for at in range(len(crp.constraints)):
        others = crp.constraints[:at] + crp.constraints[at + 1 :]
        yield partial(replace, crp, constraints=others)
    if crp.order is not None:
        yield partial(replace, crp, order=None)
    if len(crp.path) > 1:
        kept = tuple(c for c in crp.constraints if isinstance(c.at, int) and c.at < crp.answer)
        path = crp.path[:-1]
        yield partial(replace, crp, path=path, constraints=kept, order=None, form="select")
