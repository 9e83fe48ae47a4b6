"""The language of reasoning paths, and everything about SPARQL that is pure text.

crp.py      what a constraint-aware reasoning path (CRP) is
forms/      its text forms, read and written, and its description in English
compiler/   CRP → SPARQL
convert/    SPARQL → CRP
relax.py    a CRP's constraints, dropped step by step;  crp_match.py   two CRPs compared
queries/    the SPARQL of others: repaired, checked, limited;  and the queries that explore a graph
terms.py    ids and literals;  errors.py   the one tree of errors
"""

import warnings

from kbqa.sparql.compiler.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    CrpReading,
    Entity,
    Hop,
    IsEntity,
    IsNotEntity,
    Order,
    TextEquals,
)
from kbqa.sparql.errors import KbqaError
from kbqa.sparql.forms import parse_crp, parse_routerkgqa, read_crp, render_crp, render_routerkgqa
from kbqa.sparql.forms.english import describe_crp
from kbqa.sparql.queries.dialect import check_read_only, repair_query
from kbqa.sparql.relax import Relaxation, relaxations
from kbqa.sparql.terms import LiteralTerm, Term

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


def __getattr__(name: str) -> object:
    """Return `LiteralTerm` by its former name, with a warning."""
    if name != "Literal":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "kbqa.sparql.Literal is now called kbqa.sparql.LiteralTerm",
        DeprecationWarning,
        stacklevel=2,
    )
    return LiteralTerm
