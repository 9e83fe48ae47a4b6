"""Compare a predicted CRP with the gold one, by meaning rather than by text.

The order of constraints and the names of variables do not count; entities count by name.

Source: RouterKGQA, Table 3 compares paths in whole and their skeletons.
"""

from dataclasses import replace
from typing import NamedTuple

from kbqa.sparql.crp import Compare, Constraint, Crp, Entity, TextEquals
from kbqa.sparql.terms import LiteralTerm


class CrpMatch(NamedTuple):
    """Which parts of a CRP match the gold one."""

    exact: bool  # all of it
    skeleton: bool  # all but the names of entities and the values of literals
    main_path: bool  # the relations of the main path, with their directions
    depth: bool  # the number of its hops


NO_MATCH = CrpMatch(False, False, False, False)


def match_crps(predicted: Crp, gold: Crp) -> CrpMatch:
    """Compare two CRPs.

    >>> from kbqa.sparql.forms import parse_crp
    >>> match_crps(parse_crp("Kenya -> a.b").crp, parse_crp("Peru -> a.b").crp)
    CrpMatch(exact=False, skeleton=True, main_path=True, depth=True)
    """
    skeleton, gold_skeleton = _in_order(_skeleton(predicted)), _in_order(_skeleton(gold))
    return CrpMatch(
        exact=_in_order(predicted) == _in_order(gold),
        skeleton=skeleton == gold_skeleton,
        main_path=skeleton.path == gold_skeleton.path,
        depth=len(predicted.path) == len(gold.path),
    )


def _in_order(crp: Crp) -> Crp:
    """Sort the constraints, at every depth."""

    def sort(constraint: Constraint) -> Constraint:
        return replace(constraint, branches=tuple(sorted(constraint.branches, key=repr)))

    crp = crp.with_constraints(sort)
    return replace(crp, constraints=tuple(sorted(crp.constraints, key=repr)))


def _skeleton(crp: Crp) -> Crp:
    def blank(constraint: Constraint) -> Constraint:
        match constraint.test:
            case Compare(operator, LiteralTerm()):
                return replace(constraint, test=Compare(operator, LiteralTerm("")))
            case TextEquals(_, language):
                return replace(constraint, test=TextEquals("", language))
            case _:
                return constraint

    return crp.with_entities(lambda _: Entity("entity")).with_constraints(blank)
