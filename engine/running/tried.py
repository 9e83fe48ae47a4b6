"""The one record of a candidate's life: written, read, grounded, reached, run, judged."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kbqa.engine.answer import rounded
from kbqa.engine.linking.ground import Grounding
from kbqa.engine.writing.crp_records import written_record
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Table
from kbqa.sparql.crp import Crp
from kbqa.sparql.forms import render_crp, render_routerkgqa
from kbqa.sparql.forms.english import describe_crp, describe_dropped
from kbqa.sparql.relax import Relaxation
from kbqa.sparql.terms import Term

Fate = Literal["unreadable", "unlinked", "unreachable", "reachable", "failed"]
"""How far a candidate came. ``unlinked``: no entity was found for its topic. ``unreachable`` or
``reachable``: its main path. ``failed``: the graph did not answer."""

Said: TypeAlias = tuple[str, int | frozenset[Term]]


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate and how far it came.

    Attributes:
        candidate: As the model wrote it.
        fate: How far it came.
        problem: What was wrong with it, if anything: also which of its names were matched to
            entities of other names.
        readings: How many readings of its names had a main path that exists. The last of them
            answered, if any did.
        grounding: Its first reading that is reachable, or its best if none is; None if it has none.
        relaxation: What was run and answered, relaxed or in full; None if nothing answered.
        sparql: The query of `relaxation`.
        table: What it lists, in one column, as `Outcome` has it. Without rows, it says 0 or no.
        boolean: Yes or no; None if it does not ask.
        count: How many; None if it does not count.
        topic_score: How likely the question is about its topic, in [0, 1], by the linker.
        mentioned: How many entities of the constraints that were run the question mentions.
        not_understood: Words of the question that ask for something else than what was run.
        confidence: The F1 to be expected of its answers, in [0, 1]; None if it was not judged.
    """

    candidate: Candidate
    fate: Fate = "unlinked"
    problem: str | None = None
    readings: int = 0
    grounding: Grounding | None = None
    relaxation: Relaxation | None = None
    sparql: str | None = None
    table: Table | None = None
    boolean: bool | None = None
    count: int | None = None
    topic_score: float = 0.0
    mentioned: int = 0
    not_understood: tuple[str, ...] = ()
    confidence: float | None = None

    @property
    def crp(self) -> Crp | None:
        """The CRP as the model meant it, grounded, before relaxation."""
        return None if self.grounding is None else self.grounding.crp

    @property
    def terms(self) -> tuple[Term, ...]:
        """Its answers, what it counted, or what shows yes or no, in order; empty if none."""
        rows = () if self.table is None else self.table.rows
        return tuple(row[0] for row in rows if row[0] is not None)

    @property
    def proven(self) -> Crp | None:
        """The CRP whose matches prove it; None if nothing answered.

        For no, this is the path without the tests that nothing passed.
        """
        if self.relaxation is None:
            return None
        crp = self.relaxation.crp
        return crp.presupposed() if self.boolean is False else crp

    @property
    def said(self) -> Said:
        """What it says, equal for candidates that say the same.

        Candidates that count the same number agree, and so do all that say yes. Two that say no
        agree only if they show the same: no by an unsuitable relation says nothing of others.
        """
        if self.count is not None:
            return "count", self.count
        if self.boolean:
            return "yes", 1
        return "answers" if self.boolean is None else "no", frozenset(self.terms)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        return {
            **written_record(self.candidate.text),
            "logprob": round(self.candidate.logprob, 4),
            "fate": self.fate,
            "problem": self.problem,
            "readings": self.readings,
            "confidence": rounded(self.confidence),
        }


@dataclass(frozen=True, slots=True)
class Execution:
    """What running the candidates of a question came to.

    Attributes:
        tried: The candidates that were looked at, in order.
        best: Index of the one that answers; None if none does.
    """

    tried: tuple[Tried, ...]
    best: int | None = None

    @property
    def answering(self) -> Tried | None:
        """The candidate that answers."""
        return None if self.best is None else self.tried[self.best]


def path_record(tried: Tried | None) -> dict[str, Any]:
    """Return a JSON record of the path that answers; every field is null if none does."""
    if tried is None or tried.grounding is None or tried.relaxation is None:
        return dict.fromkeys(("topic", "crp", "routerkgqa", "crp_words", "level", "dropped"))
    crp = tried.grounding.crp
    return {
        "topic": {"mid": crp.topic.mid, "name": str(crp.topic)},
        "crp": render_crp(crp),
        "routerkgqa": render_routerkgqa(crp),
        "crp_words": describe_crp(crp),
        "level": tried.relaxation.level,
        "dropped": describe_dropped(tried.relaxation.dropped, crp),
    }
