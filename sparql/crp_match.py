"""Compare a predicted CRP with the gold one, by meaning rather than by text.

The order of constraints and the names of variables do not count; entities count by name. Nor does
what RouterKGQA's form cannot say: the types and languages of literals, the language of the answers,
and which node they must not be.

Source: RouterKGQA, Table 5 (skeleton accuracy, exact match) and §3.3 (depth).
"""

from dataclasses import dataclass, replace

from kbqa.sparql.crp import Compare, Constraint, Crp, Entity, TextEquals
from kbqa.sparql.terms import LiteralTerm


@dataclass(frozen=True, slots=True)
class CrpMatch:
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
    predicted, gold = _said(predicted), _said(gold)
    skeleton, gold_skeleton = _in_order(_skeleton(predicted)), _in_order(_skeleton(gold))
    return CrpMatch(
        exact=_in_order(predicted) == _in_order(gold),
        skeleton=skeleton == gold_skeleton,
        main_path=skeleton.path == gold_skeleton.path,
        depth=len(predicted.path) == len(gold.path),
    )


def _said(crp: Crp) -> Crp:
    """Leave out what RouterKGQA's form cannot say."""

    def plain(constraint: Constraint) -> Constraint:
        match constraint.test:
            case Compare(operator, LiteralTerm(text)):
                return replace(constraint, test=Compare(operator, LiteralTerm(text)))
            case TextEquals(text):
                return replace(constraint, test=TextEquals(text))
            case _:
                return constraint

    return replace(crp.with_constraints(plain), differs_from=0, answer_language="en")


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
            case TextEquals():
                return replace(constraint, test=TextEquals(""))
            case _:
                return constraint

    return crp.with_entities(lambda _: Entity("entity")).with_constraints(blank)
