"""A small model that writes what it is told to."""

from collections.abc import Sequence

from kbqa.engine.writing.generate import Candidate, Progress, Request


class ScriptedWriter:
    """Writes the same texts for each question.

    Attributes:
        texts: What it writes, the likeliest first.
    """

    name = "scripted"
    suggested_relations = 0

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def generate(
        self,
        requests: Sequence[Request],
        n: int = 5,
        *,
        ends_at: float | None = None,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Return the texts as candidates; see `Generator.generate`."""
        written = [Candidate(text, -0.5 - at, 9) for at, text in enumerate(self.texts[:n])]
        return [list(written) for _ in requests]
