"""What RouterKGQA did for a question: its candidates, which of them answered, and the repair."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from kbqa.engine.methods.router.repair import Repair
from kbqa.engine.running.tried import Tried, describe_found, path_record

Stage = Literal["specialised", "general"]
"""What found the path that answers: the small model, or repair (RouterKGQA's stages 1 and 2)."""


@dataclass(frozen=True, slots=True)
class RouterTrace:
    """How RouterKGQA came to its answers.

    Attributes:
        tried: The candidates that were looked at, best first; a repaired path is the last.
        best: Index of the one that answers; None if none does.
        stage: What found it; None if none answers.
        repair: What repair was asked for and came to; None if none was needed.
        calls: Decisions that were taken, if there was a limit to them: the writing, and those of
            the repair.
    """

    tried: tuple[Tried, ...]
    best: int | None
    stage: Stage | None = None
    repair: Repair | None = None
    calls: int | None = None

    @property
    def answering(self) -> Tried | None:
        """The candidate that answers."""
        return None if self.best is None else self.tried[self.best]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        return {
            **path_record(self.answering),
            "beam": self.best,
            "beams": list(self._candidates()),
            "repair": None if self.repair is None else self.repair.to_dict(),
            **({} if self.calls is None else {"calls": self.calls}),
        }

    def _candidates(self) -> Iterator[dict[str, Any]]:
        for at, each in enumerate(self.tried):
            yield each.to_dict("repair" if self.stage == "general" and at == self.best else None)

    def describe(self) -> list[str]:
        """Return the path that answers in English, or how far each candidate came."""
        answering = self.answering
        lines = list(self._failures() if answering is None else self._path(answering))
        if self.repair is not None and self.repair.is_cut_short:
            lines.append("The call budget was spent before the search was over.")
        return lines

    def _path(self, tried: Tried) -> Iterator[str]:
        assert tried.relaxation is not None
        yield from describe_found(tried, "Of what the model wrote")
        level, repair = tried.relaxation.level, self.repair
        if self.stage != "general" or repair is None:
            assert self.best is not None
            found = (
                "Found by searching the graph, beside what the model wrote"
                if tried.candidate.is_searched
                else f"From path {self.best + 1} of the model"
            )
            yield f"{found}, relaxation: {level}."
            return
        yield f"Found by searching the graph, because {repair.reason}. Relaxation: {level}."
        if repair.lost:
            yield "Lost, because no node of the new path has its relation:"
            yield from (f"  {sentence}" for sentence in repair.lost)

    def _failures(self) -> Iterator[str]:
        yield "Paths that the model wrote:"
        written = [each for each in self.tried if not each.candidate.is_searched]
        for number, tried in enumerate(written, 1):
            lines = filter(None, map(str.strip, tried.candidate.text.splitlines()))
            first = next((line for line in lines if line.lower() != "main path:"), "")
            problem = f" ({tried.problem})" if tried.problem else ""
            yield f"  {number}. {tried.fate}: {first}{problem}"
