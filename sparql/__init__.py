"""The language of reasoning paths, and everything about SPARQL that is pure text.

crp.py          what a constraint-aware reasoning path (CRP) is
text.py         its text form, read and written;  routerkgqa.py  RouterKGQA's form
words.py        the same in English;  reading.py  what readers hand back
compile.py      CRP → SPARQL;  from_sparql.py   SPARQL → CRP
relax.py        a CRP's constraints, dropped step by step
dialect.py      handed-in queries, mended and refused;  row_limits.py   their LIMIT and OFFSET
errors.py       the one tree of errors
"""

from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    IsNotEntity,
    Order,
    TextEquals,
)
from kbqa.sparql.dialect import check_read_only, repair_query
from kbqa.sparql.errors import KbqaError
from kbqa.sparql.from_sparql import crp_from_sparql
from kbqa.sparql.reading import CrpReading
from kbqa.sparql.relax import Relaxation, relaxations
from kbqa.sparql.routerkgqa import parse_routerkgqa, render_routerkgqa
from kbqa.sparql.terms import Literal, Term
from kbqa.sparql.text import parse_crp, read_crp, render_crp
from kbqa.sparql.words import describe_crp

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
    "Literal",
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
