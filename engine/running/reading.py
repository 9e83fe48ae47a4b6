"""Have the candidates of a question read by the cross-encoder, with what they found.

The confidence model knows how a candidate fared, but not what it says. The cross-encoder reads the
question together with the path and its first answers, so it can tell a birthplace from a
profession. What it says is one feature of the confidence model. Where it is in doubt, the asker
says how likely the question is, given each of the paths that fit best.

Pangu (Gu et al. 2023) also lets a model only discriminate between paths of the graph, but without
their answers.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kbqa.engine.running.asker import ASKER_FOLDER, Asker
from kbqa.engine.running.candidate_text import candidate_text, path_words
from kbqa.engine.running.confidence import share_fits
from kbqa.engine.running.cross_encoder import CrossEncoder
from kbqa.engine.running.precedents import Precedents
from kbqa.engine.running.tried import Tried
from kbqa.kb.schema.graph_schema import GraphSchema

READER_FOLDER, CONFIDENCE_FILE = "reader", "confidence_model.json"
"""In the folder of a judge: the adapter of the cross-encoder, and the confidence model."""

_CLEAR = 0.8
"""The share of the fits from which the best answers are clear, and the asker is not asked."""

_ASKED_PATHS = 3
"""The paths that it is asked about. On held-out questions, more of them, or asking always, gained
nothing more."""

SHIPPED_JUDGE = Path(__file__).with_name("judge")
"""The judge that comes with kbqa."""


class CandidateReader:
    """Reads the candidates of any number of questions, on one graph; threads may share one.

    Args:
        encoder: Scores texts.
        precedents: Training questions, which vote.
        schema: Of the graph.
        asker: Says how likely the question is; None if it is not asked.
    """

    def __init__(
        self,
        encoder: CrossEncoder,
        precedents: Precedents,
        schema: GraphSchema,
        asker: Asker | None = None,
    ) -> None:
        self._encoder, self._precedents, self._schema = encoder, precedents, schema
        self._asker = asker
        self.is_asking = asker is not None
        second = "" if asker is None else f" {asker.revision}"
        self.revision = f"{encoder.revision} {precedents.revision}{second}"

    def read(self, question: str, tried: Sequence[Tried]) -> list[Tried]:
        """Score each candidate with answers: `Tried.fit`, `votes` and `question_logprob`.

        Args:
            question: As asked.
            tried: Its candidates, their first answers named.

        Raises:
            GraphError: The graph does not answer.
            ModelError: The asker cannot be loaded.
        """
        texts = [text_of(each, self._schema) for each in tried]
        ran = [each.relaxation.crp for each in tried if each.relaxation is not None]
        votes = dict(zip(ran, self._precedents.votes(question, ran, self._schema), strict=True))
        scores = iter(self._encoder.score(question, [text for text in texts if text is not None]))
        read = [
            each
            if text is None or each.relaxation is None
            else replace(each, fit=next(scores), votes=votes[each.relaxation.crp])
            for each, text in zip(tried, texts, strict=True)
        ]
        shares = share_fits(read)
        if self._asker is None or len(shares) < 2 or max(shares.values()) >= _CLEAR:
            return read
        return _ask_back(self._asker, question, read)


def confidence_file(judge: Path, *, is_asking: bool) -> Path:
    """Return the file of a judge's confidence model: a judge with an asker has one for each case.

    Args:
        judge: Its folder.
        is_asking: Whether its asker is asked.
    """
    return judge / ASKER_FOLDER / CONFIDENCE_FILE if is_asking else judge / CONFIDENCE_FILE


def _ask_back(asker: Asker, question: str, read: Sequence[Tried]) -> list[Tried]:
    """Ask about the paths that fit best."""
    words = [
        path_words(each.relaxation.crp)
        if each.relaxation is not None and each.fit is not None
        else None
        for each in read
    ]
    fits: dict[str, float] = {}
    for text, each in zip(words, read, strict=True):
        if text is not None and each.fit is not None:
            fits[text] = max(each.fit, fits.get(text, each.fit))
    paths = sorted(fits, key=fits.__getitem__, reverse=True)[:_ASKED_PATHS]
    logprobs = dict(zip(paths, asker.logprobs(question, paths), strict=True))
    return [
        replace(each, question_logprob=None if text is None else logprobs.get(text))
        for each, text in zip(read, words, strict=True)
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
