"""What a walking method did for a question: every step, and the walks it came to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kbqa.engine.deciding.choice import Step
from kbqa.engine.exploring.walks import Walk

Stop = Literal["enough", "stopped", "depth", "nothing", "iterations", "budget", "direct"]
"""Why a method stopped walking: it judged that it knows enough; every walk was ended by choice; the
deepest hop was reached; the graph led no further; as many paths were followed as may be; its calls
were spent; or it never walks."""

_STOPS: Mapping[Stop, str] = {
    "enough": "walking ended because what was found seemed enough",
    "stopped": "walking ended because every walk was ended",
    "depth": "walking ended because the deepest hop was reached",
    "nothing": "walking ended because the graph led no further",
    "iterations": "walking ended because as many paths were followed as may be",
    "budget": "walking ended because the calls were spent",
    "direct": "the language model was asked without the graph",
}
_DRAWN = 8


@dataclass(frozen=True, slots=True)
class WalkTrace:
    """How a walking method came to its answers.

    Attributes:
        steps: Everything that was decided or asked, in order.
        walks: Where the walks ended.
        stop: Why walking ended.
        queries: Lookups in the graph.
        drawn: The walks in words, for people.
        details: What only one method records, by name.
        dead_ends: Other walks that were explored, from which no answer was taken.
        names: Of the entities on all these walks that have one, by id.
    """

    steps: tuple[Step, ...]
    walks: tuple[Walk, ...] = ()
    stop: Stop = "nothing"
    queries: int = 0
    drawn: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    dead_ends: tuple[Walk, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        return {
            "steps": [step.to_dict() for step in self.steps],
            "walks": [walk.to_dict() for walk in self.walks],
            "dead_ends": [walk.to_dict() for walk in self.dead_ends],
            "names": dict(sorted(self.names.items())),
            "stop": self.stop,
            "queries": self.queries,
            "decisions": sum(1 for step in self.steps if step.is_decision),
            "unread": sum(1 for step in self.steps if step.unread),
            **self.details,
        }

    def describe(self) -> list[str]:
        """Return the walks in words, and why walking ended."""
        lines = ["Walks:", *(f"  {walk}" for walk in self.drawn[:_DRAWN])] if self.drawn else []
        if len(self.drawn) > _DRAWN:
            lines.append(f"  … and {len(self.drawn) - _DRAWN} more")
        steps = sum(1 for step in self.steps if step.is_decision)
        decisions = f"{steps} decision{'' if steps == 1 else 's'}"
        lines.append(f"{decisions}; {_STOPS[self.stop]}.")
        unread = [step for step in self.steps if step.unread]
        if unread:
            parts = "; ".join(dict.fromkeys(part for step in unread for part in step.unread))
            lines.append(f"Not understood in {len(unread)} replies: {parts[:300]}")
        return lines
