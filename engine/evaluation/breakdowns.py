"""Group the rows of a run by properties of their questions, and measure each group.

Source: RouterKGQA, Table 6, for composition type and constraints; it groups by the gold query, as
here, so that the groups are the same for every run.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar, get_args

from kbqa.engine.evaluation.rows import Row
from kbqa.engine.evaluation.scores import (
    METRICS,
    RESAMPLES,
    Mean,
    Scores,
    average,
    bootstrap_mean,
)
from kbqa.sparql.relax import Level

STAGES = ("specialised", "general", "explored", "retrieved", "fallback", "direct")
"""Stages in the order in which they answer: those of RouterKGQA, then those of other methods."""

UNKNOWN = "not known"
NO_ANSWER = "no answer"
FOUND = "found"
"""Stage of the answers of a method without stages, and level of one that does not relax paths."""

_WITH_EVIDENCE = ("independent", "annotated")
_JOINED = " + ".join(_WITH_EVIDENCE)

_MOST_CONSTRAINTS = 3
_MOST_HOPS = 4


class Scored(Protocol):
    """What can be grouped by the tier of its gold answers: a row, or another scored result."""

    @property
    def tier(self) -> str | None:
        """How well the gold answers are evidenced; None if the question set does not say."""

    @property
    def scores(self) -> Scores | None:
        """The scores; None without gold answers."""


_S = TypeVar("_S", bound=Scored)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Questions that have something in common, by its name."""

    name: str
    n: int
    f1: Mean
    hit: Mean
    exact_match: Mean
    answered: float  # share that has an answer


@dataclass(frozen=True, slots=True)
class ShapeCell:
    """The questions with these numbers of hops and constraints: how many, and their mean F1."""

    hops: str
    constraints: str
    n: int
    f1: float


def rows_by_tier(rows: Sequence[_S]) -> dict[str, list[_S]]:
    """Group rows by the tier of their evidence: ``all`` first, then each tier that has rows.

    ``independent + annotated`` joins the two.
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


def score_tiers(rows: Sequence[Scored], resamples: int = RESAMPLES) -> dict[str, dict[str, Mean]]:
    """Average the scores over all scored rows and over each tier, by tier and metric."""
    scored = rows_by_tier([row for row in rows if row.scores is not None])
    return {
        tier: average([row.scores for row in of], METRICS, resamples) for tier, of in scored.items()
    }


def group_by_gold(rows: Sequence[Row]) -> dict[str, dict[str, list[Row]]]:
    """Group rows by properties of the gold query, and then by the group's name.

    The properties are those of `share_right`, ``type`` (CWQ's type of composition), ``depth`` and
    ``constraints``, each if it is known of a row.
    """
    ways: dict[str, Callable[[Row], str]] = {
        **_question_keys(rows),
        "type": lambda row: row.type or UNKNOWN,
        "depth": _depth,
        "constraints": _constraints,
    }
    return _group(rows, ways)


def share_right(rows: Sequence[Row]) -> dict[str, dict[str, Mean]]:
    """Return the share of scored questions that are exactly right, by what their set says of them.

    That is ``kind`` of gold, unless all is answers, ``category``, and GrailQA's ``generalization``
    and ``function``.
    """
    scored = [row for row in rows if row.scores is not None]
    right: dict[str, dict[str, Mean]] = {}
    for way, groups in _group(scored, _question_keys(scored)).items():
        for name, members in groups.items():
            hits = [row.scores.exact_match for row in members if row.scores]
            right.setdefault(way, {})[name] = bootstrap_mean(hits)
    return right


def break_down(rows: Sequence[Row], resamples: int = RESAMPLES) -> dict[str, list[RowGroup]]:
    """Score the groups of `group_by_gold`, then those by ``stage``, ``level`` and ``origin``.

    There are levels (how far the path was relaxed) only if the method relaxes paths, and origins
    only if some answers are not of the graph.
    """
    scored = [row for row in rows if row.scores is not None]
    ways: dict[str, Callable[[Row], str]] = {"stage": stage_name}
    if any(row.level for row in scored):
        ways["level"] = lambda row: row.level or (FOUND if row.is_answered else NO_ANSWER)
    if any(row.origin not in (None, "graph") for row in scored):
        ways["origin"] = lambda row: row.origin or NO_ANSWER
    broken_down: dict[str, list[RowGroup]] = {}
    for way, groups in (group_by_gold(scored) | _group(scored, ways)).items():
        for name, members in groups.items():
            shown = ("f1", "hit", "exact_match")
            means = average([row.scores for row in members], shown, resamples)
            answered = sum(row.is_answered for row in members) / len(members)
            group = RowGroup(name, len(members), **means, answered=answered)
            broken_down.setdefault(way, []).append(group)
    return broken_down


def stage_name(row: Row) -> str:
    """Return the stage that answered."""
    return row.stage or (FOUND if row.is_answered else NO_ANSWER)


def cross_shapes(rows: Sequence[Row]) -> list[ShapeCell]:
    """Score the questions of each number of hops and constraints, if their shape is known."""
    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.gold_shape is not None and row.scores is not None:
            cells.setdefault((_depth(row), _constraints(row)), []).append(row.scores.f1)
    return [
        ShapeCell(*cell, len(values), sum(values) / len(values))
        for cell, values in sorted(cells.items())
    ]


def _question_keys(rows: Sequence[Row]) -> dict[str, Callable[[Row], str]]:
    """Return the keys by which the properties that a question set gives group its questions."""
    keys: dict[str, Callable[[Row], str]] = {
        "category": lambda row: row.category or UNKNOWN,
        "generalization": lambda row: row.generalization or UNKNOWN,
        "function": lambda row: row.function or UNKNOWN,
    }
    if any(row.kind != "answers" for row in rows):
        return {"kind": lambda row: row.kind or UNKNOWN, **keys}
    return keys


def _depth(row: Row) -> str:
    shape = row.gold_shape
    return UNKNOWN if shape is None else _capped(shape.hops, _MOST_HOPS)


def _constraints(row: Row) -> str:
    shape = row.gold_shape
    return UNKNOWN if shape is None else _capped(shape.constraints, _MOST_CONSTRAINTS)


def _capped(count: int, most: int) -> str:
    return f"{most}+" if count >= most else str(count)


def _group(
    rows: Sequence[Row], ways: Mapping[str, Callable[[Row], str]]
) -> dict[str, dict[str, list[Row]]]:
    found = {}
    for way, key in ways.items():
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(key(row), []).append(row)
        if groups.keys() - {UNKNOWN}:
            found[way] = {name: groups[name] for name in sorted(groups, key=stage_rank)}
    return found


def stage_rank(name: str) -> tuple[int, str]:
    """Sort key: stages and levels in their order of use, other names as text, no answer last."""
    known = (*STAGES, *get_args(Level))
    if name in (NO_ANSWER, UNKNOWN):
        return len(known), name
    return known.index(name) if name in known else 0, name


@dataclass(frozen=True, slots=True)
class StepCosts:
    """All steps of a walking method of one kind, such as ``relations``, in a run."""

    kind: str
    decisions: int  # by any chooser
    calls: int  # of the general model
    input_tokens: int
    output_tokens: int
    seconds: float | None  # wall time; None if the rows have no timings
    unread: int  # replies of which a part could not be understood
    truncated: int  # replies that were cut off at their most tokens
    hidden: int  # options that exist and were not offered
    hidden_steps: int  # steps that hid some
    clipped: int  # walks that were dropped because there were too many
    clipped_steps: int


def count_steps(rows: Sequence[Row]) -> list[StepCosts]:
    """Add up the steps of rows by kind, in the order in which the kinds first appear."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        steps = (row.trace or {}).get("steps")
        for step in steps if isinstance(steps, list) else ():
            if isinstance(step, Mapping) and "kind" in step:
                kinds.setdefault(str(step["kind"]), []).append(step)
    return [_add_up(kind, steps, rows) for kind, steps in kinds.items()]


def add_kinds(steps: Iterable[StepCosts]) -> StepCosts:
    """Add up steps of all kinds."""
    counts = [each.name for each in fields(StepCosts) if each.name not in ("kind", "seconds")]
    total = Counter[str]()
    for one in steps:
        total.update({name: getattr(one, name) for name in counts})
    return StepCosts(kind="all", seconds=None, **{name: total[name] for name in counts})


def count_stops(rows: Sequence[Row]) -> dict[str, int]:
    """Count why walking ended, the most frequent first; empty for methods that do not walk."""
    stops = [stop for row in rows if isinstance(stop := (row.trace or {}).get("stop"), str)]
    return dict(sorted(Counter(stops).items(), key=lambda item: (-item[1], item[0])))


def _add_up(kind: str, steps: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> StepCosts:
    def total(name: str) -> int:
        return sum(each for step in steps if isinstance(each := step.get(name), int))

    def having(name: str) -> int:
        return sum(bool(step.get(name)) for step in steps)

    # The kind is also the name of the stage under which a row has the seconds.
    seconds = [row.seconds[kind] for row in rows if row.seconds and kind in row.seconds]
    return StepCosts(
        kind=kind,
        decisions=len(steps) - having("no_decision"),
        calls=sum("input_tokens" in step for step in steps),
        input_tokens=total("input_tokens"),
        output_tokens=total("output_tokens"),
        seconds=sum(seconds) if seconds else None,
        unread=having("unread"),
        truncated=having("is_truncated"),
        hidden=total("hidden"),
        hidden_steps=having("hidden"),
        clipped=total("clipped"),
        clipped_steps=having("clipped"),
    )
