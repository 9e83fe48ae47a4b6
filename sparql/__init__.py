"""The language of reasoning paths, and everything about SPARQL that is pure text.

crp.py      what a constraint-aware reasoning path (CRP) is
forms.py    its text forms, read and written;  english.py   its description in English
compile.py  CRP → SPARQL;  values.py   comparisons that every engine answers alike
convert/    SPARQL → CRP
relax.py    a CRP's constraints, dropped step by step
dialect.py  the SPARQL of others: repaired, checked, limited
templates.py   the queries that explore a graph
terms.py    ids and literals;  errors.py   the one tree of errors

Names are imported when they are first used: commands and completion import `errors` alone.
"""

import importlib
import warnings
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

_HOMES = {
    "Compare": "kbqa.sparql.crp",
    "Constraint": "kbqa.sparql.crp",
    "Crp": "kbqa.sparql.crp",
    "CrpReading": "kbqa.sparql.crp",
    "Entity": "kbqa.sparql.crp",
    "Hop": "kbqa.sparql.crp",
    "IsEntity": "kbqa.sparql.crp",
    "IsNotEntity": "kbqa.sparql.crp",
    "KbqaError": "kbqa.sparql.errors",
    "LiteralTerm": "kbqa.sparql.terms",
    "Order": "kbqa.sparql.crp",
    "Relaxation": "kbqa.sparql.relax",
    "Term": "kbqa.sparql.terms",
    "TextEquals": "kbqa.sparql.crp",
    "check_read_only": "kbqa.sparql.dialect",
    "compile_crp": "kbqa.sparql.compile",
    "crp_from_sparql": "kbqa.sparql.convert.from_sparql",
    "describe_crp": "kbqa.sparql.english",
    "parse_crp": "kbqa.sparql.forms",
    "parse_routerkgqa": "kbqa.sparql.forms",
    "read_crp": "kbqa.sparql.forms",
    "relaxations": "kbqa.sparql.relax",
    "render_crp": "kbqa.sparql.forms",
    "render_routerkgqa": "kbqa.sparql.forms",
    "repair_query": "kbqa.sparql.dialect",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name == "Literal":
        warnings.warn(
            "kbqa.sparql.Literal is now called kbqa.sparql.LiteralTerm",
            DeprecationWarning,
            stacklevel=2,
        )
        name = "LiteralTerm"
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
