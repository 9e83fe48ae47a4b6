"""The language of reasoning paths, and everything about SPARQL that is pure text.

crp.py      what a constraint-aware reasoning path (CRP) is
forms.py    its text forms, read and written;  english.py   its description in words
compile.py  CRP → SPARQL;  values.py   comparisons that every engine answers alike
convert/    SPARQL → CRP
relax.py    a CRP's constraints, dropped step by step;  crp_match.py   two CRPs compared
dialect.py  the SPARQL of others: repaired, checked, limited, and what it mentions
terms.py    ids and literals;  errors.py   the one tree of errors

"""

# Names are imported when they are first used: commands and completion import `errors` alone.
# ruff: noqa: F403, F405

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbqa.sparql.compile import *
    from kbqa.sparql.convert.from_sparql import *
    from kbqa.sparql.crp import *
    from kbqa.sparql.dialect import *
    from kbqa.sparql.english import *
    from kbqa.sparql.errors import *
    from kbqa.sparql.forms import *
    from kbqa.sparql.relax import *
    from kbqa.sparql.terms import *

__all__ = [
    "Compare",
    "Constraint",
    "Crp",
    "CrpReading",
    "Entity",
    "Hop",
    "IsEntity",
    "IsNotEntity",
    "KbqaError",
    "LiteralTerm",
    "Order",
    "Relaxation",
    "Term",
    "TextEquals",
    "check_read_only",
    "compile_crp",
    "crp_from_sparql",
    "describe_crp",
    "parse_crp",
    "parse_routerkgqa",
    "read_crp",
    "relaxations",
    "render_crp",
    "render_routerkgqa",
    "repair_query",
]

_MODULES = (
    "crp",
    "terms",
    "errors",
    "forms",
    "english",
    "relax",
    "compile",
    "dialect",
    "convert.from_sparql",
)


def __getattr__(name: str) -> object:
    if name in __all__:
        for home in _MODULES:
            module = importlib.import_module(f"kbqa.sparql.{home}")
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
