"""Group the rows of a run by what sets questions apart, and score each group.

Source: RouterKGQA, Table 6, for composition type and constraints; it groups by the gold query, as
here, so that the groups are the same for every run.

What the steps of walking methods took, what they left out, and why walking ended.

A step is what `kbqa.engine.deciding.reading.Step` records; its kind, such as ``relations``, is also
the name of the stage under which a row has its seconds.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, get_args

from kbqa.engine.evaluation.rows import Row
from kbqa.engine.evaluation.scores import METRICS, Mean, Scores, bootstrap_mean
from kbqa.engine.evaluation.tables import MarkdownTable, Section
from kbqa.sparql.relax import Level

STAGES = ("specialised", "general", "explored", "fallback", "direct")
"""Stages in the order in which they answer: those of RouterKGQA, then those of walking methods."""

UNKNOWN = "not known"
NO_ANSWER = "no answer"
FOUND = "found"
"""Stage of the answers of a method without stages, and level of one that does not relax paths."""

_WITH_EVIDENCE = ("independent", "annotated")
_JOINED = " + ".join(_WITH_EVIDENCE)

_MOST_CONSTRAINTS = 3
_MOST_HOPS = 4


class Scored(Protocol):
    """What can be grouped by tier: a row, or another result with scores."""

    @property
    def tier(self) -> str | None:
        """How well the gold answers are evidenced; None if the question set does not say."""

    @property
    def scores(self) -> Scores | None:
        """The scores; None without gold answers."""


_S = TypeVar("_S", bound=Scored)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Questions that have something in common.

    Attributes:
        name: What they have in common.
        n: How many there are.
        f1: Mean, with its interval.
        hit: Mean, with its interval.
        exact_match: Share that is exactly right, with its interval.
        answered: Share that has an answer.
    """

    name: str
    n: int
    f1: Mean
    hit: Mean
    exact_match: Mean
    answered: float


@dataclass(frozen=True, slots=True)
class ShapeCell:
    """The questions with these numbers of hops and constraints: how many, and their mean F1."""

    hops: str
    constraints: str
    n: int
    f1: float


def rows_by_tier(rows: Sequence[_S]) -> dict[str, list[_S]]:
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


def score_tiers(rows: Sequence[Scored]) -> dict[str, dict[str, Mean]]:
    """Average the scores over all scored rows and over each tier.

    Returns:
        Means by tier, as `rows_by_tier` orders them, and metric.
    """
    means = {}
    for tier, members in rows_by_tier([row for row in rows if row.scores is not None]).items():
        scores = [row.scores for row in members]
        means[tier] = {m: bootstrap_mean([getattr(each, m) for each in scores]) for m in METRICS}
    return means


def group_by_gold(rows: Sequence[Row]) -> dict[str, dict[str, list[Row]]]:
    """Group rows by properties of the gold query.

    Returns:
        By the ways of `share_right`, ``type`` (CWQ's type of composition), ``depth`` and
        ``constraints``, and then by the group's name, in a fixed order. A property that is known of
        no row is absent.
    """
    ways: dict[str, Callable[[Row], str]] = {
        **_question_keys(rows),
        "type": lambda row: row.type or UNKNOWN,
        "depth": _depth,
        "constraints": _constraints,
    }
    return _group(rows, ways)


def share_right(rows: Sequence[Row]) -> dict[str, dict[str, Mean]]:
    """Return the share of questions that are exactly right, by what their set says of them.

    Returns:
        Means of scored rows by ``kind`` of gold, ``category``, and GrailQA's ``generalization`` and
        ``function``, and then by group. The kind is absent if there are only answers, the others
        if no row has them.
    """
    scored = [row for row in rows if row.scores is not None]
    return {
        way: {
            name: bootstrap_mean([row.scores.exact_match for row in members if row.scores])
            for name, members in groups.items()
        }
        for way, groups in _group(scored, _question_keys(scored)).items()
    }


def break_down(rows: Sequence[Row]) -> dict[str, list[RowGroup]]:
    """Score the groups of scored rows.

    Returns:
        The groups of `group_by_gold`, then by ``stage``; by ``level`` (how far the path was
        relaxed) if the method relaxes paths; and by ``origin`` if not all answers are of the graph.
    """
    scored = [row for row in rows if row.scores is not None]
    ways: dict[str, Callable[[Row], str]] = {"stage": stage_name}
    if any(row.level for row in scored):
        ways["level"] = lambda row: row.level or (FOUND if row.is_answered else NO_ANSWER)
    if has_other_origins(scored):
        ways["origin"] = lambda row: row.origin or NO_ANSWER
    found = group_by_gold(scored) | _group(scored, ways)
    return {
        way: [_score_group(name, members) for name, members in groups.items()]
        for way, groups in found.items()
    }


def stage_name(row: Row) -> str:
    """Return the stage that answered."""
    return row.stage or (FOUND if row.is_answered else NO_ANSWER)


def has_other_origins(rows: Sequence[Row]) -> bool:
    """Return whether an answer comes from elsewhere than the graph."""
    return any(row.origin not in (None, "graph") for row in rows)


def cross_shapes(rows: Sequence[Row]) -> list[ShapeCell]:
    """Score the questions of each number of hops and constraints, if their shape is known.

    Returns:
        The cells that have questions, by hops and then constraints.
    """
    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.gold_shape is not None and row.scores is not None:
            cells.setdefault((_depth(row), _constraints(row)), []).append(row.scores.f1)
    return [
        ShapeCell(*cell, len(values), sum(values) / len(values))
        for cell, values in sorted(cells.items())
    ]


def _question_keys(rows: Sequence[Row]) -> dict[str, Callable[[Row], str]]:
    """Return what tells questions apart by what their set says of them."""
    keys: dict[str, Callable[[Row], str]] = {
        "category": lambda row: row.category or UNKNOWN,
        "generalization": lambda row: row.generalization or UNKNOWN,
        "function": lambda row: row.function or UNKNOWN,
    }
    if any(row.kind != "answers" for row in rows):
        return {"kind": lambda row: row.kind or UNKNOWN, **keys}
    return keys


def _depth(row: Row) -> str:
    return UNKNOWN if row.gold_shape is None else _capped(row.gold_shape.hops, _MOST_HOPS)


def _constraints(row: Row) -> str:
    if row.gold_shape is None:
        return UNKNOWN
    return _capped(row.gold_shape.constraints, _MOST_CONSTRAINTS)


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


def _score_group(name: str, rows: Sequence[Row]) -> RowGroup:
    scores = [row.scores for row in rows if row.scores is not None]
    return RowGroup(
        name=name,
        n=len(scores),
        f1=bootstrap_mean([one.f1 for one in scores]),
        hit=bootstrap_mean([one.hit for one in scores]),
        exact_match=bootstrap_mean([one.exact_match for one in scores]),
        answered=sum(row.is_answered for row in rows) / len(rows),
    )


def stage_rank(name: str) -> tuple[int, str]:
    """Sort key: stages and levels in their order of use, other names as text, no answer last."""
    known = (*STAGES, *get_args(Level))
    if name in (NO_ANSWER, UNKNOWN):
        return len(known), name
    return known.index(name) if name in known else 0, name


@dataclass(frozen=True, slots=True)
class StepCosts:
    """All steps of one kind in a run.

    Attributes:
        kind: What was decided or asked.
        decisions: How many decisions there were, by any chooser.
        calls: Replies of the general model.
        input_tokens: Of their prompts.
        output_tokens: Of the replies.
        seconds: Wall time; None if the rows have no timings.
        unread: Replies of which a part could not be understood.
        truncated: Replies that were cut off at their most tokens.
        hidden: Options that exist and were not offered.
        hidden_steps: Steps that hid some.
        clipped: Walks that were dropped because there were too many.
        clipped_steps: Steps after which some were.
    """

    kind: str
    decisions: int
    calls: int
    input_tokens: int
    output_tokens: int
    seconds: float | None
    unread: int
    truncated: int
    hidden: int
    hidden_steps: int
    clipped: int
    clipped_steps: int


def count_steps(rows: Sequence[Row]) -> list[StepCosts]:
    """Add up the steps of rows by kind, in the order in which the kinds first appear.

    Rows without steps in their traces, as of methods that do not walk, count nothing.
    """
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for step in _steps(rows):
        kinds.setdefault(str(step["kind"]), []).append(step)
    return [_add_up(kind, steps, rows) for kind, steps in kinds.items()]


def count_stops(rows: Sequence[Row]) -> dict[str, int]:
    """Count why walking ended, the most frequent first; empty for methods that do not walk."""
    stops = [stop for row in rows if isinstance(stop := (row.trace or {}).get("stop"), str)]
    return dict(sorted(Counter(stops).items(), key=lambda item: (-item[1], item[0])))


def step_sections(steps: Sequence[StepCosts], stops: Mapping[str, int]) -> Iterator[Section]:
    """Put the steps of a run, and why walking ended, into words."""
    if steps:
        yield _costs(steps)
        yield _left_out(steps)
    if stops:
        total = sum(stops.values())
        shares = [(stop, f"{n:,}", f"{n / total:.1%}") for stop, n in stops.items()]
        table = MarkdownTable(("", "questions", "share"), shares)
        yield Section("Why walking ended", table=table)


def _steps(rows: Sequence[Row]) -> Iterator[Mapping[str, Any]]:
    for row in rows:
        steps = (row.trace or {}).get("steps")
        for step in steps if isinstance(steps, list) else ():
            if isinstance(step, Mapping) and "kind" in step:
                yield step


def _add_up(kind: str, steps: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> StepCosts:
    def total(name: str) -> int:
        return sum(each for step in steps if isinstance(each := step.get(name), int))

    seconds = [row.seconds[kind] for row in rows if row.seconds and kind in row.seconds]
    return StepCosts(
        kind=kind,
        decisions=sum(not step.get("no_decision") for step in steps),
        calls=sum("input_tokens" in step for step in steps),
        input_tokens=total("input_tokens"),
        output_tokens=total("output_tokens"),
        seconds=sum(seconds) if seconds else None,
        unread=sum(bool(step.get("unread")) for step in steps),
        truncated=sum(bool(step.get("is_truncated")) for step in steps),
        hidden=total("hidden"),
        hidden_steps=sum(bool(step.get("hidden")) for step in steps),
        clipped=total("clipped"),
        clipped_steps=sum(bool(step.get("clipped")) for step in steps),
    )


def _costs(steps: Sequence[StepCosts]) -> Section:
    rows = [
        (
            _spoken(one.kind),
            f"{one.decisions:,}",
            f"{one.calls:,}",
            f"{one.input_tokens:,}",
            f"{one.output_tokens:,}",
            "–" if one.seconds is None else f"{one.seconds:,.1f}",
        )
        for one in steps
    ]
    header = ("step", "decisions", "calls", "input tokens", "output tokens", "seconds")
    return Section(
        "What each kind of step takes, all questions together",
        table=MarkdownTable(header, rows),
        notes=["Decisions are by any chooser; calls and tokens are the general model's."],
    )


def _left_out(steps: Sequence[StepCosts]) -> Section:
    rows = [
        (
            _spoken(one.kind),
            _of_calls(one.unread, one.calls),
            _of_calls(one.truncated, one.calls),
            _in_steps(one.hidden, one.hidden_steps),
            _in_steps(one.clipped, one.clipped_steps),
        )
        for one in (*steps, _all(steps))
    ]
    header = ("step", "unread replies", "cut-off replies", "hidden options", "clipped walks")
    return Section(
        "What was not understood, and what limits left out",
        table=MarkdownTable(header, rows),
        notes=[
            "Unread: a part of the reply could not be understood. Cut off: at the most tokens. "
            "Hidden: options that exist and were not offered. Clipped: walks that were dropped "
            "because there were too many. In brackets: the share of the calls, or how many steps."
        ],
    )


def _all(steps: Sequence[StepCosts]) -> StepCosts:
    """Add up all kinds."""
    return StepCosts(
        kind="all",
        decisions=sum(one.decisions for one in steps),
        calls=sum(one.calls for one in steps),
        input_tokens=sum(one.input_tokens for one in steps),
        output_tokens=sum(one.output_tokens for one in steps),
        seconds=None,
        unread=sum(one.unread for one in steps),
        truncated=sum(one.truncated for one in steps),
        hidden=sum(one.hidden for one in steps),
        hidden_steps=sum(one.hidden_steps for one in steps),
        clipped=sum(one.clipped for one in steps),
        clipped_steps=sum(one.clipped_steps for one in steps),
    )


def _of_calls(count: int, calls: int) -> str:
    return f"{count:,} ({count / calls:.1%})" if calls else "–"


def _in_steps(count: int, steps: int) -> str:
    return f"{count:,} ({steps:,})" if count else "0"


def _spoken(kind: str) -> str:
    return kind.replace("_", " ")
