"""Have the candidates of a question read by the cross-encoder, with what they found.

The confidence model knows how a candidate fared, but not what it says. The cross-encoder reads the
question together with the path and its first answers, so it can tell a birthplace from a
profession. What it says is one feature of the confidence model.

Pangu (Gu et al. 2023) also lets a model only discriminate between paths of the graph, but without
their answers.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kbqa.engine.running.candidate_text import candidate_text
from kbqa.engine.running.cross_encoder import CrossEncoder
from kbqa.engine.running.precedents import Precedents
from kbqa.engine.running.tried import Tried
from kbqa.kb.schema.graph_schema import GraphSchema

READER_FOLDER, CONFIDENCE_FILE = "reader", "confidence_model.json"
"""In the folder of a judge: the adapter of the cross-encoder, and the confidence model."""

SHIPPED_JUDGE = Path(__file__).with_name("judge")
"""The judge that comes with kbqa."""


class CandidateReader:
    """Reads the candidates of any number of questions, on one graph; threads may share one.

    Args:
        encoder: Scores texts.
        precedents: Training questions, which vote.
        schema: Of the graph.
    """

    def __init__(self, encoder: CrossEncoder, precedents: Precedents, schema: GraphSchema) -> None:
        self._encoder, self._precedents, self._schema = encoder, precedents, schema
        self.revision = f"{encoder.revision} {precedents.revision}"

    def read(self, question: str, tried: Sequence[Tried]) -> list[Tried]:
        """Score how well each candidate with answers fits, as `Tried.fit` and `Tried.votes`.

        Args:
            question: As asked.
            tried: Its candidates, their first answers named.

        Raises:
            GraphError: The graph does not answer.
        """
        texts = [text_of(each, self._schema) for each in tried]
        ran = [each.relaxation.crp for each in tried if each.relaxation is not None]
        votes = dict(zip(ran, self._precedents.votes(question, ran, self._schema), strict=True))
        scores = iter(self._encoder.score(question, [text for text in texts if text is not None]))
        return [
            each
            if text is None or each.relaxation is None
            else replace(each, fit=next(scores), votes=votes[each.relaxation.crp])
            for each, text in zip(tried, texts, strict=True)
        ]


def text_of(tried: Tried, schema: GraphSchema) -> str | None:
    """Return what is read of a candidate; None if it has no answers."""
    if tried.relaxation is None or tried.table is None:
        return None
    if tried.boolean is not None:
        said = "yes" if tried.boolean else "no"
    else:
        said = str(tried.answer_count)
    return candidate_text(tried.relaxation.crp, said, tried.first_answers, schema)
