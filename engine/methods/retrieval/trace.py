"""What a method that retrieves did for a question: the triples, and how they were read."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kbqa.engine.answer import term_text
from kbqa.engine.deciding.choice import Step
from kbqa.engine.methods.retrieval.settings import ReaderName
from kbqa.engine.retrieval.retrieval import Retrieved, RetrievedTriple
from kbqa.engine.running.tried import Execution, path_record
from kbqa.sparql.forms.english import describe_crp
from kbqa.sparql.terms import Term

_DRAWN = 8


@dataclass(frozen=True, slots=True)
class RetrievalTrace:
    """How a method that retrieves came to its answers.

    Attributes:
        steps: What was decided or asked.
        retrieved: What was retrieved.
        triples: Those that were read, best first.
        names: Of their nodes.
        reader: Who read them.
        execution: The paths that were run, by the reader ``kernels``.
        unmatched: Answers of a language model that name no node of the triples.
    """

    steps: tuple[Step, ...]
    retrieved: Retrieved
    triples: tuple[RetrievedTriple, ...]
    names: Mapping[Term, str]
    reader: ReaderName
    execution: Execution | None = None
    unmatched: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        tried = () if self.execution is None else self.execution.tried
        return {
            "steps": [step.to_dict() for step in self.steps],
            "reader": self.reader,
            "triples": [each.to_dict() for each in self.triples],
            "names": {
                term_text(node): name
                for node, name in sorted(self.names.items(), key=lambda each: str(each[0]))
                if isinstance(node, str) and name != node
            },
            "seen": self.retrieved.seen,
            "nodes": len(self.retrieved.subgraph.nodes),
            "truncated": self.retrieved.truncated,
            "cut": asdict(self.retrieved.subgraph.cut),
            "unmatched": list(self.unmatched),
            "decisions": len(self.steps),
            "unread": sum(1 for step in self.steps if step.unread),
            **({} if self.execution is None else path_record(self.execution.answering)),
            "beam": None if self.execution is None else self.execution.best,
            "beams": [each.to_dict("walk") for each in tried],
        }

    def describe(self) -> list[str]:
        """Return the best triples, and how they were read, in English."""
        return [*self._path(), *self._best(), *self._reading()]

    def _path(self) -> Iterator[str]:
        found = None if self.execution is None else self.execution.answering
        if found is not None and found.crp is not None:
            yield "Path:"
            yield from (f"  {sentence}" for sentence in describe_crp(found.crp))

    def _best(self) -> Iterator[str]:
        if self.triples:
            yield "Best triples:"
        for each in self.triples[:_DRAWN]:
            score = each.score if each.pooled is None else each.pooled
            subject, object_ = self.names[each.subject], self.names[each.object]
            yield f"  ({subject}, {each.relation}, {object_}) {score:.2g}"
        if len(self.triples) > _DRAWN:
            yield f"  … and {len(self.triples) - _DRAWN} more"

    def _reading(self) -> Iterator[str]:
        by = "the language model read them" if self.reader == "llm" else "their paths were run"
        yield f"Retrieved {len(self.triples)} of {self.retrieved.seen:,} triples; {by}."
        if self.unmatched:
            yield f"No node of them is called: {'; '.join(self.unmatched)[:300]}"
