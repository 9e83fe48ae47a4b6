"""Priors: what the trajectories of a question that ended teach the next ones.

Each trajectory that ends is summarised, and the summaries are put into advice, which only the
ranking of relations reads. So it is enough to do both when a ranking is next due: every decision is
the same as if it were done at once, and what no ranking reads is never asked for.

The advice is rewritten each time from the last summaries of this question alone. The paper writes
it from the advice before and the new summary, which drifts; advice from other test questions would
be training on them.

Source: TRACE §3.4; algorithm 1, lines 9 to 12.
"""

from kbqa.engine.deciding.session import Session
from kbqa.engine.methods.trace.prompts import generalise_prompt, relation_option, summarise_prompt
from kbqa.engine.methods.trace.settings import TraceSettings
from kbqa.engine.methods.trace.trajectories import ENDINGS, Ended

LAST_SUMMARIES = 8
"""The summaries that advice is written from, at most."""

_SUMMARY_TOKENS, _ADVICE_TOKENS = 128, 256


class Priors:
    """What the trajectories of one question have taught so far.

    Args:
        session: Of the question.
        settings: Whether there are priors, and when they are written.
    """

    def __init__(self, session: Session, settings: TraceSettings) -> None:
        self._session, self._settings = session, settings
        self._has_any = settings.priors and session.has_language_model
        self._due: list[Ended] = []
        self._summaries: list[str] = []
        self.written: list[str] = []
        """The advice after each time that it was written."""

    @property
    def advice(self) -> str:
        """The latest advice; empty before the first."""
        return self.written[-1] if self.written else ""

    def learn(self, ended: Ended) -> None:
        """Take in a trajectory that ended; one without any relation teaches nothing."""
        if self._has_any and ended.trajectory.path.hops:
            self._due.append(ended)
            if self._settings.eager_priors:
                self.update()

    def update(self) -> None:
        """Have new trajectories summarised and the advice rewritten, if there are some.

        Raises:
            ModelError: The language model failed.
            DeadlineExceeded: The question's deadline has passed.
        """
        if not self._due:
            return
        while self._due:
            summary = self._ask_summary(self._due[0])
            if summary is None:
                return
            self._due.pop(0)
            self._summaries.append(summary)
        prompt = generalise_prompt(self._session.question, self._summaries[-LAST_SUMMARIES:])
        advice = self._session.ask("generalise", prompt, max_tokens=_ADVICE_TOKENS)
        if advice is not None:
            self.written.append(" ".join(advice.split()))

    def _ask_summary(self, ended: Ended) -> str | None:
        trajectory, directions = ended.trajectory, self._settings.directions
        relations = [relation_option(hop, directions) for hop in trajectory.path.hops]
        prompt = summarise_prompt(self._session.question, relations, ENDINGS[ended.why])
        summary = self._session.ask(
            "summarise",
            prompt,
            hop=len(relations),
            at=trajectory.drawn(),
            max_tokens=_SUMMARY_TOKENS,
        )
        return None if summary is None else " ".join(summary.split())
