"""What a question gets: answers, and everything that shows where they come from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from typing import Literal as Choice

from kbqa.engine.chat.model import Usage
from kbqa.engine.crp_records import written_record
from kbqa.engine.linker import LinkedEntity
from kbqa.engine.repair.repair import Repair
from kbqa.sparql.crp import Constraint, Crp, Order
from kbqa.sparql.relax import Level
from kbqa.sparql.routerkgqa import render_routerkgqa
from kbqa.sparql.terms import Literal, Term
from kbqa.sparql.text import render_crp
from kbqa.sparql.words import describe_crp, describe_dropped

Fate = Choice["unreadable", "unlinked", "unreachable", "reachable", "failed"]

Stage = Choice["specialised", "general"]
"""What found the path that answers: the small model, or repair (RouterKGQA's stages 1 and 2)."""


def term_text(term: Term) -> str:
    """Write a term as its id, or as a literal's text."""
    return term.text if isinstance(term, Literal) else term


@dataclass(frozen=True, slots=True)
class AnswerEntity:
    """One answer: an entity with its name, or a literal, whose name is its text."""

    term: Term
    name: str

    def to_dict(self) -> dict[str, str]:
        """Make the record of `kbqa eval`: ``mid`` or ``value``, and ``name``."""
        if isinstance(self.term, Literal):
            return {"value": self.term.text, "name": self.name}
        return {"mid": self.term, "name": self.name}


@dataclass(frozen=True, slots=True)
class EvidenceTriple:
    """A triple of the graph on the way from the topic to an answer, with the ends' names."""

    subject: Term
    relation: str
    object: Term
    subject_name: str
    object_name: str

    def to_dict(self) -> dict[str, str]:
        """Make a JSON record; a literal stands as its text."""
        return {
            "subject": term_text(self.subject),
            "subject_name": self.subject_name,
            "relation": self.relation,
            "object": term_text(self.object),
            "object_name": self.object_name,
        }


@dataclass(frozen=True, slots=True)
class Beam:
    """One candidate of the small model and what became of it.

    Attributes:
        text: What the model wrote.
        logprob: Sum of its tokens' log-probabilities, natural log.
        fate: ``unreadable`` as a CRP, ``unlinked`` topic, ``unreachable`` or ``reachable`` main
            path, or ``failed`` where the graph did not answer.
        problem: What was wrong, where something was: also which names were taken for somebody who
            does not bear them.
        readings: Readings of its names whose main path exists that were tried; the last of them is
            the one that answered, if it did.
        confidence: The F1 that is to be expected of its answers, in [0, 1]; None where the
            candidates were not weighed against each other.
    """

    text: str
    logprob: float
    fate: Fate
    problem: str | None = None
    readings: int = 0
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The CRP that was executed and answered.

    Attributes:
        beam: Index of the candidate that it comes from.
        crp: As the model meant it, grounded as far as possible, before relaxation.
        executed: After relaxation: what the query says.
        level: How far it was relaxed.
        dropped: What relaxation dropped.
        sparql: The query that was run.
    """

    beam: int
    crp: Crp
    executed: Crp
    level: Level
    dropped: tuple[Constraint | Order, ...]
    sparql: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, with its proof.

    Attributes:
        question: As asked.
        answers: Best first: by value for superlatives; else, where candidates were weighed, by how
            sure those are that lead to each; else as the graph gave them. Empty where no path was
            found or nothing satisfies it; `problem` then says which.
        result: The CRP that answered; None where none did.
        evidence: Triples that join the topic to the answers, for the first answers.
        linked: Entities that the question mentions, best first.
        beams: The candidates looked at, best first.
        seconds: Wall time by stage.
        problem: Why there is no answer, in a sentence; None where there is one.
        truncated: More answers exist than were fetched.
        stage: What found the path; None where there is no answer.
        repair: What repair was asked and came to; None where none was needed.
        usage: Of the general model.
    """

    question: str
    answers: tuple[AnswerEntity, ...]
    result: Result | None
    evidence: tuple[EvidenceTriple, ...]
    linked: tuple[LinkedEntity, ...]
    beams: tuple[Beam, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)
    problem: str | None = None
    truncated: bool = False
    stage: Stage | None = None
    repair: Repair | None = None
    usage: Usage = field(default_factory=Usage)

    @property
    def confidence(self) -> float | None:
        """How sure the answers are, in [0, 1]: the F1 that is to be expected of them."""
        return None if self.result is None else self.beams[self.result.beam].confidence

    def to_dict(self) -> dict[str, Any]:
        """Make a JSON-ready record of everything."""
        record: dict[str, Any] = {
            "question": self.question,
            "answers": [answer.to_dict() for answer in self.answers],
            "confidence": _rounded(self.confidence),
            "truncated": self.truncated,
            "problem": self.problem,
            "stage": self.stage,
        }
        record.update(_result_fields(self.result))
        record["evidence"] = [triple.to_dict() for triple in self.evidence]
        record["linked"] = [
            {"mid": e.mid, "name": e.name, "mention": e.mention, "score": round(e.score, 4)}
            for e in self.linked
        ]
        record["beams"] = [
            {
                **written_record(beam.text),
                "logprob": round(beam.logprob, 4),
                "fate": beam.fate,
                "problem": beam.problem,
                "readings": beam.readings,
                "confidence": _rounded(beam.confidence),
            }
            for beam in self.beams
        ]
        record["repair"] = None if self.repair is None else self.repair.to_dict()
        record["usage"] = {"general": asdict(self.usage)}
        record["seconds"] = {stage: round(s, 4) for stage, s in self.seconds.items()}
        return record


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 4)


def _result_fields(result: Result | None) -> dict[str, Any]:
    if result is None:
        return dict.fromkeys(
            ("topic", "crp", "routerkgqa", "crp_words", "sparql", "beam", "level", "dropped")
        )
    topic = result.crp.topic
    return {
        "topic": {"mid": topic.mid, "name": str(topic)},
        "crp": render_crp(result.crp),
        "routerkgqa": render_routerkgqa(result.crp),
        "crp_words": describe_crp(result.crp),
        "sparql": result.sparql,
        "beam": result.beam,
        "level": result.level,
        "dropped": describe_dropped(result.dropped, result.crp),
    }
