"""The record of a candidate's life: written, read, grounded, reached, run, judged."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from kbqa.engine.answer import rounded, term_text
from kbqa.engine.linking.ground import Grounding
from kbqa.engine.writing.generate import Candidate, written_record
from kbqa.kb.graph import Graph, Table
from kbqa.kb.names.search import name_terms
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.english import describe_crp, describe_dropped
from kbqa.sparql.errors import CrpSyntaxError, GraphError
from kbqa.sparql.forms import read_crp, render_crp, render_routerkgqa
from kbqa.sparql.relax import Relaxation
from kbqa.sparql.terms import Term, is_mid

Fate = Literal["unreadable", "unlinked", "unreachable", "reachable", "failed", "unfit"]
"""How far a candidate came. ``unlinked``: no entity was found for its topic. ``unreachable`` or
``reachable``: its main path. ``failed``: the graph did not answer. ``unfit``: it answers another
question."""

Source = Literal["writer", "search", "repair", "walk", "given"]
"""Where a candidate comes from: the model wrote it, a search of the graph added it, a repair found
it, it is the way of a walk or of retrieved triples, or a person wrote it."""

Said: TypeAlias = tuple[str, int | frozenset[Term]]

FIRST_ANSWERS = 3
"""The answers of a candidate that its record names."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate and how far it came."""

    candidate: Candidate
    fate: Fate = "unlinked"
    problem: str | None = None
    """What was wrong with it, also which of its names were matched to entities of other names."""
    readings: int = 0
    """How many readings of its names had a main path that exists. The last answered, if any."""
    grounding: Grounding | None = None
    """Its first reading that is reachable, or its best if none is; None if it has none."""
    relaxation: Relaxation | None = None
    """What was run and answered, relaxed or in full; None if nothing answered."""
    sparql: str | None = None
    """The query of `relaxation`."""
    table: Table | None = None
    """What it lists, in one column, as in `Outcome`. Without rows, it says 0 or no."""
    boolean: bool | None = None
    """Yes or no; None if it does not ask."""
    count: int | None = None
    """How many; None if it does not count."""
    topic_score: float = 0.0
    """How likely the question is about its topic, in [0, 1], by the linker."""
    mentioned: int = 0
    """How many entities of the constraints that were run the question mentions."""
    not_understood: tuple[str, ...] = ()
    """Words of the question that ask for something else than what was run."""
    fit: float | None = None
    """How well path and answers fit the question, by the judge's cross-encoder; None if unread."""
    votes: float | None = None
    """Share of similar training questions that ask for its last relation, in [0, 1]."""
    question_logprob: float | None = None
    """Log-probability of the question, given its path, natural log; None if it was not asked."""
    confidence: float | None = None
    """The F1 to be expected of its answers, in [0, 1]; None if it was not judged."""
    answer_confidences: Mapping[Term, float] = field(default_factory=dict)
    """How sure each of its answers is, in [0, 1], if it answers the question and lists some."""
    first_answers: tuple[str, ...] = ()
    """Names of its first answers, or of what it counts, where they were looked up."""

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
        """The CRP whose matches prove it; None if nothing answered."""
        if self.relaxation is None:
            return None
        crp = self.relaxation.crp  # For no: the path without the tests that nothing passed.
        return crp.presupposed() if self.boolean is False else crp

    @property
    def answer_count(self) -> int | None:
        """How many answers it has, as far as they were fetched; None for yes, no or no answers."""
        if self.table is None or self.boolean is not None:
            return None
        return len(self.terms) if self.count is None else self.count

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

    def to_dict(self, source: Source | None = None) -> dict[str, Any]:
        """Return a JSON record; ``boolean`` and ``count`` are there only if they are set."""
        values = {"boolean": self.boolean, "count": self.count}
        return {
            **written_record(self.candidate.text),
            "crp_words": self._words(),
            "source": source or ("search" if self.candidate.is_searched else "writer"),
            "logprob": round(self.candidate.logprob, 4),
            "fate": self.fate,
            "problem": self.problem,
            "readings": self.readings,
            "confidence": rounded(self.confidence),
            **{name: value for name, value in values.items() if value is not None},
            "answer_count": self.answer_count,
            "first_answers": list(self.first_answers),
        }

    def _words(self) -> list[str]:
        """Describe it as it was grounded, or else as it was written; empty if it is unreadable."""
        try:
            return describe_crp(self.crp or read_crp(self.candidate.text).crp)
        except CrpSyntaxError:
            return []


@dataclass(frozen=True, slots=True)
class Execution:
    """The candidates of a question that were looked at, and the index of the one that answers."""

    tried: tuple[Tried, ...]
    best: int | None = None

    @property
    def answering(self) -> Tried | None:
        """The candidate that answers."""
        return None if self.best is None else self.tried[self.best]

    def with_answer(self, tried: Tried) -> "Execution":
        """Add a candidate, which answers instead."""
        return Execution((*self.tried, tried), len(self.tried))


def with_names(graph: Graph, execution: Execution) -> Execution:
    """Look up the names that are shown of candidates: of their first answers and their topics."""
    tried = with_first_answers(graph, execution.tried)
    topics = {each.crp.topic for each in tried if each.crp is not None}
    unnamed = {each.mid for each in topics if each.name is None and each.mid is not None}
    names = _look_up(graph, {mid for mid in unnamed if is_mid(mid)})
    return replace(execution, tried=tuple(_with_named_topic(each, names) for each in tried))


def with_first_answers(graph: Graph, tried: Sequence[Tried]) -> list[Tried]:
    """Look up the names of each candidate's first answers, where they are not known, at once.

    If the graph does not answer, ids stand in for names.
    """
    first = [
        () if each.answer_count is None or each.first_answers else each.terms[:FIRST_ANSWERS]
        for each in tried
    ]
    names = _look_up(graph, {term for terms in first for term in terms})
    return [
        replace(each, first_answers=tuple(names.get(term, term_text(term)) for term in terms))
        if terms
        else each
        for each, terms in zip(tried, first, strict=True)
    ]


def _look_up(graph: Graph, terms: set[Term]) -> Mapping[Term, str]:
    """Look up names; there are none if the graph does not answer."""
    try:
        return name_terms(graph, terms) if terms else {}
    except GraphError as error:
        logger.warning("candidates are shown with ids instead of names: %s", error)
        return {}


def _with_named_topic(tried: Tried, names: Mapping[Term, str]) -> Tried:
    grounding = tried.grounding
    if grounding is None or grounding.crp.topic.name is not None:
        return tried
    mid = grounding.crp.topic.mid
    if mid is None or mid not in names:
        return tried
    crp = replace(grounding.crp, topic=Entity(names[mid], mid))
    return replace(tried, grounding=replace(grounding, crp=crp))


def describe_found(tried: Tried, problem_of: str) -> Iterator[str]:
    """Describe the path of a candidate that answers, and what was dropped from it, a line each.

    `problem_of` introduces its problem, as in ``Of what the model wrote``.
    """
    assert tried.grounding is not None
    assert tried.relaxation is not None
    crp, dropped = tried.grounding.crp, tried.relaxation.dropped
    yield "Path:"
    yield from (f"  {sentence}" for sentence in describe_crp(crp))
    if tried.problem is not None:
        yield f"{problem_of}: {tried.problem}."
    if dropped:
        yield "Dropped, because nothing satisfied all of it:"
        yield from (f"  {sentence}" for sentence in describe_dropped(dropped, crp))


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
