"""Group the rows of a run by properties of their questions, and measure what each group took.

Source: RouterKGQA, Table 6, for composition type and constraints; it groups by the gold query, as
here, so that the groups are the same for every run.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median
from typing import Any, Protocol, TypeVar, get_args

from kbqa.engine.chat.model import Price
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
_MOST_ANSWERS = 2


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

    The properties are those of `share_right`, ``type`` (CWQ's type of composition), ``depth``,
    ``constraints``, and ``answers`` (how many gold ones), each if it is known of a row.
    """
    ways: dict[str, Callable[[Row], str]] = {
        **_question_keys(rows),
        "type": lambda row: row.type or UNKNOWN,
        "depth": _depth,
        "constraints": _constraints,
        "answers": lambda row: _capped(row.gold_size, _MOST_ANSWERS),
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
    return _capped(None if row.gold_shape is None else row.gold_shape.hops, _MOST_HOPS)


def _constraints(row: Row) -> str:
    shape = row.gold_shape
    return _capped(None if shape is None else shape.constraints, _MOST_CONSTRAINTS)


def _capped(count: int | None, most: int) -> str:
    if count is None:
        return UNKNOWN
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
        for step in _steps(row):
            kinds.setdefault(str(step["kind"]), []).append(step)
    return [_add_up(kind, steps, rows) for kind, steps in kinds.items()]


def add_kinds(steps: Sequence[StepCosts]) -> StepCosts:
    """Add up steps of all kinds."""
    seconds = [each.seconds for each in steps if each.seconds is not None]
    counts = [each.name for each in fields(StepCosts) if each.name not in ("kind", "seconds")]
    total = Counter[str]()
    for one in steps:
        total.update({name: getattr(one, name) for name in counts})
    return StepCosts(
        kind="all",
        seconds=sum(seconds) if seconds else None,
        **{name: total[name] for name in counts},
    )


@dataclass(frozen=True, slots=True)
class WalkEnd:
    """The questions whose walking ended for one reason.

    Source: Bounded Path Context, Table 7, has the mean depth, the share that reached the last hop
    and that without an answer.
    """

    stop: str  # the reason, or ``all``
    n: int
    depth: float  # mean of the deepest hop for which something was chosen, 0 without any
    unanswered: int


def measure_stops(rows: Sequence[Row]) -> list[WalkEnd]:
    """Measure why walking ended, the most frequent reason first, and last all questions.

    Empty for methods that do not walk.
    """
    stops: dict[str, list[Row]] = {}
    for row in rows:
        if isinstance(stop := (row.trace or {}).get("stop"), str):
            stops.setdefault(stop, []).append(row)
    if not stops:
        return []
    ranked = sorted(stops.items(), key=lambda item: (-len(item[1]), item[0]))
    walked = [row for _, of in ranked for row in of]
    return [
        WalkEnd(
            stop,
            len(of),
            fmean(max(map(_hop_taken, _steps(row)), default=0) for row in of),
            sum(not row.is_answered for row in of),
        )
        for stop, of in [*ranked, ("all", walked)]
    ]


def _steps(row: Row) -> list[Mapping[str, Any]]:
    steps = (row.trace or {}).get("steps")
    known = steps if isinstance(steps, list) else []
    return [step for step in known if isinstance(step, Mapping) and "kind" in step]


def _hop_taken(step: Mapping[str, Any]) -> int:
    return hop if step.get("chosen") and isinstance(hop := step.get("hop"), int) else 0


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


@dataclass(frozen=True, slots=True)
class GoldAnswers:
    """How many gold answers the questions have that have any; as in BPC's Table 2."""

    n: int  # questions
    mean: float
    single: float  # share of questions with one


def count_gold(rows: Sequence[Row]) -> GoldAnswers | None:
    """Count the gold answers of questions; None if no question has such gold."""
    sizes = [size for row in rows if (size := row.gold_size) is not None]
    return GoldAnswers(len(sizes), fmean(sizes), sizes.count(1) / len(sizes)) if sizes else None


@dataclass(frozen=True, slots=True)
class Spread:
    """A summary of the costs of those questions for which they are known."""

    mean: float
    median: float
    p95: float  # the least value that 95 % of the questions do not exceed
    most: float
    total: float
    n: int  # questions
    right: float | None = None  # mean over questions with a right answer; None if there are none
    wrong: float | None = None  # mean over the other scored questions


def spread(values: Sequence[float], hits: Sequence[float | None] = ()) -> Spread:
    """Summarise values; `hits` are those of their questions, None where nothing is gold."""
    ranked = sorted(values)
    p95 = ranked[math.ceil(0.95 * len(ranked)) - 1]
    right, wrong = (
        [value for value, hit in zip(values, hits, strict=False) if hit == wanted]
        for wanted in (1.0, 0.0)
    )
    return Spread(
        mean=fmean(ranked),
        median=median(ranked),
        p95=p95,
        most=ranked[-1],
        total=sum(ranked),
        n=len(ranked),
        right=fmean(right) if right else None,
        wrong=fmean(wrong) if wrong else None,
    )


def measure_costs(rows: Sequence[Row]) -> dict[str, Spread]:
    """Measure the costs of questions, including those that failed; unknown costs are absent.

    The costs are those of `row_costs`.
    """
    known: dict[str, list[tuple[float, float | None]]] = {}
    for row in rows:
        hit = None if row.scores is None else row.scores.hit
        for name, cost in row_costs(row).items():
            of = known.setdefault(name, [])
            if cost is not None:
                of.append((cost, hit))
    if not any(value for value, _ in known.get("reasoned_calls", ())):
        known["reasoned_calls"] = []  # most models do not reason
    return {name: spread(*zip(*of, strict=True)) for name, of in known.items() if of}


def row_costs(row: Row) -> dict[str, float | None]:
    """Return what a question took, by name; None for what is not known.

    ``calls`` are of all models, ``general_calls`` of the general model, paid or from the cache.
    Tokens are those of `RowUsage`. ``queries`` and ``decisions`` are of walking methods.
    """
    usage, trace, seconds = row.usage, row.trace or {}, row.seconds or {}
    repair = trace.get("repair")
    read, wrote = (None, None) if usage is None else usage.general.counted
    costs = {
        "calls": row.calls,
        "general_calls": usage and usage.general.calls,
        "cached_calls": usage and usage.general.cached_calls,
        "reasoned_calls": usage and (usage.general.reasoned_calls or 0),
        "decisions": trace.get("decisions"),
        "input_tokens": usage and usage.input_tokens,
        "output_tokens": usage and usage.output_tokens,
        "tokens": usage and usage.tokens,
        "general_input_tokens": read,
        "general_output_tokens": wrote,
        "queries": trace.get("queries"),
        "queries of a repair": repair.get("queries") if isinstance(repair, dict) else None,
        "seconds": sum(seconds.values()) if seconds else None,
        **{f"seconds of {stage}": of_stage for stage, of_stage in seconds.items()},
    }
    return {name: one if isinstance(one, int | float) else None for name, one in costs.items()}


def cost_per_10_000(rows: Sequence[Row]) -> float | None:
    """Compute the US dollars of general models for 10,000 questions.

    None if it is not known: a row that asked one has no cost, or no row has a cost.
    """
    known = [row.cost_usd for row in rows if row.cost_usd is not None]
    unknown = any(row.cost_usd is None and row.usage and row.usage.general.calls for row in rows)
    return fmean(known) * 10_000 if known and not unknown else None


def writer_cost_per_10_000(rows: Sequence[Row], price: Price | None) -> float | None:
    """Compute the US dollars of the small model for 10,000 questions, its first paths counted.

    None if it is not known: the price, or the tokens of a question.
    """
    asked = [row.usage.specialised for row in rows if row.usage is not None]
    costs = [
        None
        if price is None or each.input_tokens is None or each.best_tokens is None
        else price.cost_usd(each.input_tokens, each.best_tokens)
        for each in asked
        if each.calls
    ]
    known = [cost for cost in costs if cost is not None]
    return sum(known) / max(len(asked), 1) * 10_000 if len(known) == len(costs) else None
