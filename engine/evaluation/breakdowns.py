"""Group the rows of a run by what sets questions apart, and score each group.

Source: RouterKGQA, Table 6, for composition type and constraints; it groups by the gold query, as
here, so that the groups are the same for every run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from kbqa.engine.evaluation.metrics import Mean, bootstrap_mean
from kbqa.engine.evaluation.recorded_run import RunRow, Stage
from kbqa.sparql.relax import Level

UNKNOWN = "not known"
NO_ANSWER = "no answer"

_WITH_EVIDENCE = ("independent", "annotated")
_JOINED = " + ".join(_WITH_EVIDENCE)

_MOST_CONSTRAINTS = 3
_MOST_HOPS = 4


@dataclass(frozen=True, slots=True)
class Group:
    """The questions that are alike in something.

    Attributes:
        name: What they have in common.
        n: How many.
        f1: Mean, with its interval.
        hit: Mean, with its interval.
        answered: Share that has an answer.
    """

    name: str
    n: int
    f1: Mean
    hit: Mean
    answered: float


@dataclass(frozen=True, slots=True)
class ShapeCell:
    """The questions of as many hops and constraints: their number and mean F1."""

    hops: str
    constraints: str
    n: int
    f1: float


def rows_by_tier(rows: Sequence[RunRow]) -> dict[str, list[RunRow]]:
    """Group rows by the tier of their evidence, under ``all`` and the tiers' names.

    Returns:
        ``all`` first; tiers without rows are absent. ``independent + annotated`` joins the two.
    """
    tiers = {"all": list(rows)}
    for row in rows:
        if row.tier is not None:
            tiers.setdefault(row.tier, []).append(row)
    if tiers.keys() >= {*_WITH_EVIDENCE}:
        tiers[_JOINED] = [row for row in rows if row.tier in _WITH_EVIDENCE]
    first = ("all", *_WITH_EVIDENCE, _JOINED, "none")
    order = (*first, *sorted(tiers.keys() - {*first}))
    return {tier: tiers[tier] for tier in order if tiers.get(tier)}


def group_by_gold(rows: Sequence[RunRow]) -> dict[str, dict[str, list[RunRow]]]:
    """Group rows in each way that the gold query tells some of them apart.

    Returns:
        By ``type`` (CWQ's type of composition), ``depth`` and ``constraints``, and then by the
        group's name, in a stated order; a way in which nothing is known of any row is absent.
    """
    ways = {"type": lambda row: row.type or UNKNOWN, "depth": _depth, "constraints": _constraints}
    return _group(rows, ways)


def break_down(rows: Sequence[RunRow]) -> dict[str, list[Group]]:
    """Score the groups of scored rows.

    Returns:
        Those of `group_by_gold`, and those by ``stage`` and ``level`` (how far the path was
        relaxed).
    """
    scored = [row for row in rows if row.scores is not None]
    ways = {
        "stage": lambda row: row.stage or NO_ANSWER,
        "level": lambda row: row.level or NO_ANSWER,
    }
    found = group_by_gold(scored) | _group(scored, ways)
    return {
        way: [_score_group(name, members) for name, members in groups.items()]
        for way, groups in found.items()
    }


def cross_shapes(rows: Sequence[RunRow]) -> list[ShapeCell]:
    """Score the questions of each depth and number of constraints, of those whose shape is known.

    Returns:
        The cells that hold questions, by depth and then constraints.
    """
    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.gold_shape is not None and row.scores is not None:
            cells.setdefault((_depth(row), _constraints(row)), []).append(row.scores.f1)
    return [
        ShapeCell(*cell, len(values), sum(values) / len(values))
        for cell, values in sorted(cells.items())
    ]


def _depth(row: RunRow) -> str:
    return UNKNOWN if row.gold_shape is None else _capped(row.gold_shape.hops, _MOST_HOPS)


def _constraints(row: RunRow) -> str:
    if row.gold_shape is None:
        return UNKNOWN
    return _capped(row.gold_shape.constraints, _MOST_CONSTRAINTS)


def _capped(count: int, most: int) -> str:
    return f"{most}+" if count >= most else str(count)


def _group(
    rows: Sequence[RunRow], ways: Mapping[str, Callable[[RunRow], str]]
) -> dict[str, dict[str, list[RunRow]]]:
    found = {}
    for way, key in ways.items():
        groups: dict[str, list[RunRow]] = {}
        for row in rows:
            groups.setdefault(key(row), []).append(row)
        if groups.keys() - {UNKNOWN}:
            found[way] = {name: groups[name] for name in sorted(groups, key=_rank)}
    return found


def _score_group(name: str, rows: Sequence[RunRow]) -> Group:
    scores = [row.scores for row in rows if row.scores is not None]
    return Group(
        name=name,
        n=len(scores),
        f1=bootstrap_mean([one.f1 for one in scores]),
        hit=bootstrap_mean([one.hit for one in scores]),
        answered=sum(bool(row.answers) for row in rows) / len(rows),
    )


def _rank(name: str) -> tuple[int, str]:
    """Order stages and levels as they come in answering, other names as text, what is not last."""
    known = (*get_args(Stage), *get_args(Level))
    if name in (NO_ANSWER, UNKNOWN):
        return len(known), name
    return known.index(name) if name in known else 0, name
