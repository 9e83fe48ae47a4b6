"""A decision between options, and what was decided."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kbqa.engine.chat.model import DEFAULT_MAX_TOKENS, Message, Usage


@dataclass(frozen=True, slots=True)
class Picked:
    """What was chosen among some options.

    Attributes:
        chosen: Indexes of the options, in order, each once.
        scores: Of the chosen ones, if the decision scores them; else empty.
        unread: Parts of a reply that could not be understood, or name nothing that was offered.
        stops: The reply says that nothing should follow, as STOP or an empty list do.
    """

    chosen: tuple[int, ...]
    scores: tuple[float, ...] = ()
    unread: tuple[str, ...] = ()
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision between options, for any chooser.

    Attributes:
        kind: What is decided, such as ``relations``; names the step in traces and reports.
        hop: Which hop of the walk it belongs to, from 1.
        at: The node or walk that it is about; draws by chance depend on it.
        options: As the prompt names them.
        meanings: Words for each option, which the embedder compares with the question.
        most: How many may be chosen.
        prompt: What a language model is asked.
        read: Reads its reply.
        hidden: Options that exist and are not offered.
        max_tokens: Most tokens of the reply.
        temperature: Of the reply.
    """

    kind: str
    hop: int
    at: str
    options: tuple[str, ...]
    meanings: tuple[str, ...]
    most: int
    prompt: tuple[Message, ...]
    read: Callable[[str], Picked]
    hidden: int = 0
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a method in a trace: what it was offered, and what came of it.

    Attributes:
        kind: What was done, such as ``relations`` or ``answer``.
        hop: Which hop it belongs to; 0 before the first.
        at: The node or walk that it is about.
        offered: The options.
        hidden: Options that exist and were not offered.
        chosen: The options that were chosen, in order.
        scores: Of the chosen ones, if the step scores.
        said: What a language model wrote, if its words are used later: a plan, a memory, answers.
        unread: What could not be understood of a reply.
        clipped: Walks that were dropped after the step, because there were too many. A relation
            that was therefore not followed at all counts as one.
        is_truncated: The reply was cut off at its most tokens.
        is_decision: It counts as a call; false if there was nothing to decide.
        usage: Of the language model; None if another chooser decided.
    """

    kind: str
    hop: int = 0
    at: str = ""
    offered: tuple[str, ...] = ()
    hidden: int = 0
    chosen: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    said: str | None = None
    unread: tuple[str, ...] = ()
    clipped: int = 0
    is_truncated: bool = False
    is_decision: bool = True
    usage: Usage | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record without the fields that are empty."""
        fields: dict[str, Any] = {
            "kind": self.kind,
            "hop": self.hop,
            "at": self.at,
            "offered": list(self.offered),
            "hidden": self.hidden,
            "chosen": list(self.chosen),
            "scores": [round(score, 4) for score in self.scores],
            "said": self.said,
            "unread": list(self.unread),
            "clipped": self.clipped,
            "is_truncated": self.is_truncated,
            "no_decision": not self.is_decision,
        }
        kept = {name: value for name, value in fields.items() if value or name == "hop"}
        if self.usage is not None:
            kept["input_tokens"] = self.usage.input_tokens
            kept["output_tokens"] = self.usage.output_tokens
        return kept
