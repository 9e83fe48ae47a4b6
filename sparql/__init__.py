"""The language of reasoning paths, and everything about SPARQL that is pure text.

crp.py      what a constraint-aware reasoning path (CRP) is
forms.py    its text forms, read and written;  english.py   its description in words
compile.py  CRP → SPARQL;  values.py   comparisons that every engine answers alike
convert/    SPARQL → CRP
relax.py    a CRP's constraints, dropped step by step
dialect.py  the SPARQL of others: repaired, checked, limited, searched for what it mentions
terms.py    ids and literals;  errors.py   the one tree of errors

Names are imported when they are first used: commands and completion import `errors` alone. The
block of imports below is the list of them, as in `kbqa` itself.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbqa.sparql.compile import compile_crp as compile_crp
    from kbqa.sparql.convert.from_sparql import crp_from_sparql as crp_from_sparql
    from kbqa.sparql.crp import Compare as Compare
    from kbqa.sparql.crp import Constraint as Constraint
    from kbqa.sparql.crp import Crp as Crp
    from kbqa.sparql.crp import CrpReading as CrpReading
    from kbqa.sparql.crp import Entity as Entity
    from kbqa.sparql.crp import Hop as Hop
    from kbqa.sparql.crp import IsEntity as IsEntity
    from kbqa.sparql.crp import IsNotEntity as IsNotEntity
    from kbqa.sparql.crp import Order as Order
    from kbqa.sparql.crp import TextEquals as TextEquals
    from kbqa.sparql.dialect import check_read_only as check_read_only
    from kbqa.sparql.dialect import repair_query as repair_query
    from kbqa.sparql.english import describe_crp as describe_crp
    from kbqa.sparql.errors import KbqaError as KbqaError
    from kbqa.sparql.forms import parse_crp as parse_crp
    from kbqa.sparql.forms import parse_routerkgqa as parse_routerkgqa
    from kbqa.sparql.forms import read_crp as read_crp
    from kbqa.sparql.forms import render_crp as render_crp
    from kbqa.sparql.forms import render_routerkgqa as render_routerkgqa
    from kbqa.sparql.relax import Relaxation as Relaxation
    from kbqa.sparql.relax import relaxations as relaxations
    from kbqa.sparql.terms import LiteralTerm as LiteralTerm
    from kbqa.sparql.terms import Term as Term

with open(__file__, encoding="utf-8") as _source:  # noqa: PTH123 (pathlib takes longer to import)
    _imports = [line.split() for line in _source if line.startswith("    from kbqa.")]

_HOMES = {words[3]: words[1] for words in _imports}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
