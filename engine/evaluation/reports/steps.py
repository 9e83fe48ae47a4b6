"""What the steps of walking methods took, what they left out, and why walking ended.

A step is what `kbqa.engine.deciding.choice.Step` records; its kind, such as ``relations``, is also
the name of the stage under which a row has its seconds.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbqa.engine.evaluation.reports.tables import MarkdownTable, Section
from kbqa.engine.evaluation.runs.rows import Row


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
