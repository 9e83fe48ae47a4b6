"""The answer to a question as the server gives it: the engine's record, and how it was served."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kbqa.engine.answer import Answer, Status
from kbqa.engine.answer_lines import Line

DEFAULT_MAX_ANSWERS = 100


class Event(NamedTuple):
    """What became of a question on its way.

    Attributes:
        name: ``queued`` with its position and waiting time, ``linked`` with entities, ``written``
            with paths, ``stage`` with the name of one that begins.
        data: As JSON has it.
    """

    name: Literal["queued", "linked", "written", "stage"]
    data: Mapping[str, Any]


Watch = Callable[[Event], None]
"""Called in the event loop."""


@dataclass(frozen=True, slots=True)
class Served:
    """An answer that the server gave.

    Attributes:
        id: Of this answer, for logs and links.
        answer: What the engine returned.
        seconds: Wall time by stage; ``queue`` is all waiting, for a place and for the others of its
            batch.
        batch_size: Questions that were written for together; 0 if nothing was written.
        is_cached: It was asked before, and remembered.
        lines: The answer for people to read, if the client wants it so.
    """

    id: str
    answer: Answer
    seconds: Mapping[str, float]
    batch_size: int = 0
    is_cached: bool = False
    lines: tuple[Line, ...] | None = None

    @property
    def status(self) -> Status:
        """Whether there is an answer, and whether it is sure."""
        return self.answer.status

    def to_dict(self, max_answers: int = DEFAULT_MAX_ANSWERS) -> dict[str, Any]:
        """Return the record of `Answer.to_dict` with what the server adds.

        Args:
            max_answers: Answers that are listed at most; `truncated` says if there are more.
        """
        record = self.answer.to_dict()
        answers = record["answers"]
        lines = None if self.lines is None else [line._asdict() for line in self.lines]
        return {
            "id": self.id,
            **record,
            "answers": answers[:max_answers],
            "truncated": record["truncated"] or len(answers) > max_answers,
            "trace": {
                **record["trace"],
                "batch_size": self.batch_size,
                "cached": self.is_cached,
            },
            "seconds": {stage: round(s, 4) for stage, s in self.seconds.items()},
            **({} if lines is None else {"lines": lines}),
        }
