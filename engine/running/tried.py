"""The record of a candidate's life, and how sure its answers are.

A candidate is written or searched for, read, grounded, reached, run and judged; `Tried` says how
far it came. The language model's probability says how well a path fits the question. It does not
say whether the graph holds the path, nor what it leads to; and a path that exists may still be the
wrong one, which the paper names as its limitation. A logistic model over a handful of features
weighs all of these. `kbqa.training.judge.learning` fits it on questions that the language model was
not trained on. Its confidence is the F1 to be expected of the candidate's answers.

Source: RouterKGQA, "Limitations"; Platt 1999 for reading a score as a probability.
"""

import hashlib
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from kbqa.engine.answer import Computed, rounded
from kbqa.engine.files import read_model_json
from kbqa.engine.linking.ground import Grounding
from kbqa.engine.linking.mentions import softmax
from kbqa.engine.writing.generate import Candidate, written_record
from kbqa.kb.graph import Graph, Table, name_terms
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.english import describe_crp, describe_dropped
from kbqa.sparql.errors import CrpSyntaxError, GraphError, ModelError
from kbqa.sparql.forms import read_crp, render_crp, render_routerkgqa
from kbqa.sparql.relax import Relaxation, leaves
from kbqa.sparql.terms import LiteralTerm, Term, is_mid, term_text

Fate = Literal["unreadable", "unlinked", "unreachable", "reachable", "failed", "unfit"]
"""How far a candidate came. ``unlinked``: no entity was found for its topic. ``unreachable`` or
``reachable``: its main path. ``failed``: the graph did not answer. ``unfit``: it answers another
question."""

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
    value: Computed | None = None
    """What numbers come to; None if it does not add any up."""
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
    def is_list(self) -> bool:
        """Whether it lists answers, and says neither yes or no nor a number."""
        return self.boolean is None and self.count is None and self.value is None

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
        if self.value is not None:
            return "value", frozenset({LiteralTerm(str(self.value.number))})
        if self.count is not None:
            return "count", self.count
        if self.boolean:
            return "yes", 1
        return "answers" if self.boolean is None else "no", frozenset(self.terms)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record; ``boolean``, ``count`` and ``value`` are there only if set."""
        value = None if self.value is None else self.value.number
        values = {"boolean": self.boolean, "count": self.count, "value": value}
        return {
            **written_record(self.candidate.text),
            "crp_words": self._words(),
            "source": self.candidate.source,
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

    @property
    def why_unreachable(self) -> str | None:
        """Why no written path can be trusted, in a few words; None if one of them exists."""
        written = [each for each in self.tried if not each.candidate.is_searched]
        if not written:
            return "no path was written"
        if any(e.fate == "reachable" or e.readings or e.table is not None for e in written):
            return None
        if any(each.fate == "failed" for each in written):
            return "no path that was written could be followed"
        return "no path that was written exists"


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


SHIPPED_CONFIDENCE = Path(__file__).with_name("confidence_model.json")
"""The model that comes with kbqa."""

SCHEMA_VERSION = 1

_DOUBT = 0.5
"""What is left of the confidence in answers that pass over a word of the question."""

Features = Mapping[str, float]

ASKED_LEAD = "asked lead"
"""The feature that only an asker gives."""

_GREATEST_LEAD = 8.0
"""Of a log-probability: e⁸, or 3,000 times as likely, is clear."""


def describe_tried(tried: Sequence[Tried]) -> list[Features]:
    """Measure a question's candidates, one against the other; those without answers have none.

    Shares are of the probability that the written candidates have together. What supports answers
    is the share of those that lead to them in full: a constraint that had to be dropped speaks for
    other answers, not for these. Fits are shared out alike, among all candidates with answers and
    "none of these", which the cross-encoder scores 0. Answers lead by what their best fit is above
    that of all others, none of these included. Where the asker was asked, they also lead by the
    log-probability of the question. It is known for few paths, and the least stands for the others.
    """
    said = [each.said for each in tried]
    written = [each.candidate.logprob for each in tried if not each.candidate.is_searched]
    shares = _spread(softmax(written), [not each.candidate.is_searched for each in tried])
    is_full = [each.relaxation is None or each.relaxation.level == "full" for each in tried]
    support = _summed(said, shares, is_full)
    fitting = share_fits(tried)
    leads = _leads(_best(said, [each.fit for each in tried]), at_least=0.0)
    asked = _asked_features(said, tried)
    return [
        {
            **_features(each, share, support.get(says, 0.0)),
            **_fit_features(each, fitting.get(says, 0.0), leads.get(says, 0.0)),
            **asked.get(says, {}),
        }
        if each.table is not None
        else {}
        for each, share, says in zip(tried, shares, said, strict=True)
    ]


def share_fits(tried: Sequence[Tried]) -> Mapping[Said, float]:
    """Compute the share of each answer in the fits of all candidates and of "none of these"."""
    is_read = [each.fit is not None for each in tried]
    fits = _spread(softmax([*(each.fit for each in tried if each.fit is not None), 0.0]), is_read)
    return _summed([each.said for each in tried], fits, is_read)


def _spread(values: Sequence[float], wanted: Sequence[bool]) -> list[float]:
    """Put values where they are wanted, and 0 elsewhere."""
    rest = iter(values)
    return [next(rest) if each else 0.0 for each in wanted]


def _summed(
    said: Sequence[Said], shares: Sequence[float], counts: Sequence[bool]
) -> Mapping[Said, float]:
    """Add up the shares that count of those candidates that say the same."""
    sums: dict[Said, float] = {}
    for says, share, is_counted in zip(said, shares, counts, strict=True):
        if is_counted:
            sums[says] = sums.get(says, 0.0) + share
    return sums


def _best(said: Sequence[Said], values: Sequence[float | None]) -> Mapping[Said, float]:
    """Find the best value of each answer; answers without any are not there."""
    best: dict[Said, float] = {}
    for says, value in zip(said, values, strict=True):
        if value is not None:
            best[says] = max(value, best.get(says, value))
    return best


def _leads(best: Mapping[Said, float], at_least: float = -math.inf) -> Mapping[Said, float]:
    """Compute by how much the value of each answer is above those of all others, and a least."""
    leads: dict[Said, float] = {}
    for says, value in best.items():
        others = max([at_least, *(other for said, other in best.items() if said != says)])
        leads[says] = value - others if others > -math.inf else 0.0
    return leads


def _fit_features(tried: Tried, support: float, lead: float) -> Features:
    voted = {} if tried.votes is None else {"votes": tried.votes}
    if tried.fit is None:
        return voted
    return {**voted, "fit": tried.fit, "fit support": support, "fit lead": lead}


def _asked_features(said: Sequence[Said], tried: Sequence[Tried]) -> Mapping[Said, Features]:
    best = _best(said, [each.question_logprob for each in tried])
    if not best:
        return {}
    leads, behind = _leads(best), min(best.values()) - max(best.values())
    most = _GREATEST_LEAD
    # In this order, NaN counts as the least.
    return {says: {ASKED_LEAD: max(-most, min(leads.get(says, behind), most))} for says in said}


def rank_tried(tried: Sequence[Tried]) -> list[int]:
    """Order judged candidates by how sure their answers are, the surest first; return indexes.

    Of those that are equally sure, what needed no relaxation goes first, and then what the language
    model thinks likelier. A path that nothing satisfies is rarely what was meant, so 0 and no go
    last if nothing shows them.
    """

    def key(at: int) -> tuple[bool, bool, float, bool]:
        each = tried[at]
        is_relaxed = each.relaxation is not None and each.relaxation.level != "full"
        return each.table is None, not each.terms, -(each.confidence or 0.0), is_relaxed

    return sorted(range(len(tried)), key=key)


def answer_confidences(tried: Sequence[Tried]) -> dict[Term, float]:
    """Compute how sure each answer is, in [0, 1]: that not all lists with it in them are wrong.

    Different lists count as independent of each other, equal ones as one. On held-out training
    questions this holds better than the confidence of the list alone (docs/model.md).
    """
    surest: dict[frozenset[Term], float] = {}
    for each in tried:
        if each.is_list:
            answers = frozenset(each.terms)
            surest[answers] = max(each.confidence or 0.0, surest.get(answers, 0.0))
    wrong: dict[Term, float] = {}
    for answers, confidence in surest.items():
        for term in answers:
            wrong[term] = wrong.get(term, 1.0) * (1 - confidence)
    return {term: 1 - probability for term, probability in wrong.items()}


def _features(tried: Tried, share: float, support: float) -> Features:
    assert tried.grounding is not None
    assert tried.relaxation is not None
    candidate, crp = tried.candidate, tried.grounding.crp
    answers = len(set(tried.terms)) if tried.is_list else 1
    level, dropped = tried.relaxation.level, len(tried.relaxation.dropped)
    mentioned = tried.mentioned
    if not tried.terms:
        # 0 or no, because nothing satisfies the constraints: only the main path is in the graph.
        level, dropped, mentioned = "main_path", sum(1 for _ in leaves(crp)), 0
    written = {
        "logprob": max(candidate.logprob, -20.0),
        "token_logprob": candidate.logprob / candidate.tokens,
    }
    searched = {}
    if candidate.is_searched:
        narrows = float(candidate.narrows)
        searched = {"searched": 1.0, "rank": float(candidate.rank), "narrows": narrows}
    return {
        **(searched or written),
        "share": share,
        "support": support,
        "hops": float(len(crp.path)),
        "constraints": float(len(crp.constraints) + (crp.order is not None)),
        "dropped": float(dropped),
        f"level {level}": 1.0,
        "answers": math.log(answers),
        "many answers": float(answers > 20),
        "topic": tried.topic_score,
        "mentioned": float(mentioned),
        "replaced": float(bool(tried.grounding.replaced or tried.grounding.unlinked)),
    }


@dataclass(frozen=True, slots=True)
class ConfidenceModel:
    """A logistic model of the F1 to be expected."""

    bias: float
    """Log-odds if all features are 0."""
    weights: Mapping[str, float]
    """By feature; a feature that is not named here counts nothing."""
    fitted_on: str = ""
    """What it was fitted on, in words, for reports."""
    calibration: Sequence[tuple[float, float, int]] = field(default=())
    """On questions that it was not fitted on: for each tenth of the confidences, rising, the mean
    confidence, the mean F1 and the number of candidates."""
    spread: Sequence[float] = field(default=())
    """The confidences of the best candidates there, one for each hundredth of the questions,
    rising; 0 for a question without any. Empty if it was not measured."""

    def confidence(self, features: Features) -> float:
        """Compute the confidence, in [0, 1]; without features, which means no answers, it is 0."""
        if not features:
            return 0.0
        odds = self.bias + sum(
            self.weights.get(name, 0.0) * value for name, value in features.items()
        )
        # In this order, NaN counts as the least.
        return 1 / (1 + math.exp(-max(-30.0, min(odds, 30.0))))

    def judge(self, tried: Sequence[Tried]) -> list[float]:
        """Compute how sure the answers of a question's candidates are.

        Candidates that say the same are as sure as the surest of them; half as sure, if they do not
        account for a word of the question.
        """
        said = [each.said for each in tried]
        surest: dict[Said, float] = {}
        for says, features in zip(said, describe_tried(tried), strict=True):
            surest[says] = max(self.confidence(features), surest.get(says, 0.0))
        return [surest[each.said] * (_DOUBT if each.not_understood else 1.0) for each in tried]

    def threshold(self, share: float) -> float:
        """Find the confidence below which a share in [0, 1] of the questions of `spread` stays."""
        if not self.spread:
            raise ModelError("the confidence model does not know how its confidences are spread")
        return self.spread[min(int(share * len(self.spread)), len(self.spread) - 1)]

    def digest(self) -> str:
        """Hash what decides its confidences."""
        decisive = json.dumps([self.bias, sorted(self.weights.items())])
        return hashlib.sha256(decisive.encode()).hexdigest()[:16]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        record = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path = SHIPPED_CONFIDENCE) -> "ConfidenceModel":
        """Read what `save` wrote.

        Raises:
            ModelError: The file is missing or of another form.
        """
        return read_model_json(
            path, cls, SHIPPED_CONFIDENCE, "the confidence model", schema_version=SCHEMA_VERSION
        )
