"""Have the candidates of a question read by the cross-encoder, with what they found.

The confidence model knows how a candidate fared, but not what it says. The cross-encoder reads the
question together with the path and its first answers, so it can tell a birthplace from a
profession. What it says is one feature of the confidence model. Where it is in doubt, the asker
says how likely the question is, given each of the paths that fit best.

Pangu (Gu et al. 2023) also lets a model only discriminate between paths of the graph, but without
their answers.

A small cross-encoder: it scores pairs of a question and a text.

It is the packaged all-MiniLM-L6-v2 (`kbqa.engine.embedding.bert`), with a LoRA adapter merged into
it and a linear output over the mean of the last layer.

Source: Nogueira and Cho 2019, cross-encoders that rank; Hu et al. 2022, LoRA.

The asker: how likely a question is, given a path.

It is SmolLM2-135M with an adapter of its own, which has learnt to ask the question of a path. A
writer says how likely a path is, given the question, and a path with common relations is likely for
many questions. The asker must explain all words of the question by the path, so a path that lacks a
condition or has another topic scores lower.

Source: Sachan et al. 2022, "Improving Passage Retrieval with Zero-Shot Question Generation" (UPR).
"""

import importlib.util
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from kbqa.engine.embedding.bert import Bert, linear, load_minilm, tanh_gelu
from kbqa.engine.files import read_json
from kbqa.engine.running.confidence import Tried, share_fits
from kbqa.engine.running.precedents import Precedents
from kbqa.engine.writing.beam_search import LoadedModel, read_continuation
from kbqa.engine.writing.checkpoint import (
    Adapter,
    files_sha256,
    merge_lora,
    open_adapter,
    openvino_precision,
)
from kbqa.engine.writing.generate import PROMPT_FILE
from kbqa.engine.writing.model_choice import Backend, ModelChoice
from kbqa.engine.writing.openvino import prepare_model
from kbqa.engine.writing.steering import Tokenizer
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Hop
from kbqa.sparql.english import path_words, relation_words
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    import tokenizers
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Weights = Mapping[str, Floats]


ASKER_FOLDER = "asker"
"""In the folder of a judge."""

ASKER_FILES = ("adapter_model.safetensors", PROMPT_FILE, "adapter_config.json")
"""What is needed of the folder that it was trained in; the last one shows that it is whole."""

MAX_QUESTION_TOKENS = 128
"""A longer question is cut at its end. Those of the test halves have up to 90."""


class Asker:
    """Says how likely questions are; threads take turns.

    Args:
        adapter: The adapter and its prompt.
        threads: Threads to compute with; None for one a core.
    """

    def __init__(self, adapter: Adapter, threads: int | None = None) -> None:
        self._adapter, self._threads = adapter, threads
        self._prompt, self.revision = adapter.prompt, adapter.revision
        self._lock = threading.Lock()

    @classmethod
    def of(cls, judge: Path, threads: int | None = None) -> Self | None:
        """Check the asker of a judge, and make once what loading it needs; None if it has none.

        The model itself is loaded when it is first asked: many questions do without.

        Args:
            judge: The folder.
            threads: Threads to compute with; None for one a core.

        Raises:
            ModelError: A package, the base model or a file is missing, or the cache cannot be
                written.
        """
        folder = judge / ASKER_FOLDER
        if not folder.is_dir():
            return None
        for name in ASKER_FILES:
            if not (folder / name).is_file():
                raise ModelError(
                    f"the asker in {folder} is not whole: {name} is missing. Run `kbqa train-judge`"
                    " again, or leave it out: --set asker=no."
                )
        backend = _backend()
        ModelChoice(None, folder, n=1, backend=backend).check()
        adapter = open_adapter(folder)
        if backend == "openvino":
            prepare_model(adapter, openvino_precision())
        return cls(adapter, threads)

    def logprobs(self, question: str, paths: Sequence[str]) -> list[float]:
        """Compute the log-probability of a question, given each path; natural log.

        Args:
            question: As asked.
            paths: In words, as `path_words` writes them.

        Raises:
            ModelError: The model cannot be loaded.
        """
        if not paths:
            return []
        with self._lock:
            model, tokenizer = self._loaded
            prompts = [_tokens(tokenizer, self._prompt.render(path)) for path in paths]
            question_tokens = _tokens(tokenizer, " ".join(question.split()))[:MAX_QUESTION_TOKENS]
            text = [*question_tokens, tokenizer.eos_token_id]
            return [sum(each) for each in read_continuation(model, prompts, text)]

    @cached_property
    def _loaded(self) -> LoadedModel:
        if _backend() == "openvino":
            from kbqa.engine.writing.openvino import OpenVinoGenerator

            return OpenVinoGenerator.load_model(self._adapter, self._threads)
        from kbqa.engine.writing.transformers import TransformersGenerator

        return TransformersGenerator.load_model(self._adapter, self._threads)


def _backend() -> Backend:
    """Return what runs it: OpenVINO if it is there, even beside a GPU."""
    return "openvino" if importlib.util.find_spec("openvino") else "transformers"


def _tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


NAMED_ANSWERS = 3
"""The answers that are named."""

_LONGEST_NAME = 40


def candidate_text(crp: Crp, said: str, answers: Sequence[str], schema: GraphSchema) -> str:
    """Describe a candidate and what it found, for a judge.

    Args:
        crp: As it was run, relaxed or in full.
        said: ``yes``, ``no``, or the number of its answers.
        answers: The names of the first of them.
        schema: Says of which type the answers are.
    """
    names = ", ".join(name[:_LONGEST_NAME] for name in answers[:NAMED_ANSWERS])
    found = " ".join(filter(None, (said, _answer_type(crp, schema))))
    return f"{path_words(crp)} = {found}: {names}"


def _answer_type(crp: Crp, schema: GraphSchema) -> str:
    last = crp.path[-1]
    if not isinstance(last, Hop):
        return ""
    stated = schema.of([last.relation]).property(last.relation)
    if stated is None:
        return ""
    return relation_words((stated.domain if last.inverse else stated.expected_type) or "")


MAX_TOKENS = 96
"""Of question and text together; if they have more, the longer one is cut at its end."""

ADAPTER_FILE = "adapter.safetensors"
SETTINGS_FILE = "adapter.json"

SCHEMA_VERSION = 2

_MATRIX = re.compile(r"(.+)\.lora_([AB])")


class AdapterSettings(NamedTuple):
    """What the file of an adapter's settings holds."""

    scale: float


class CrossEncoder:
    """Scores pairs of texts. Any number of threads may use one.

    Args:
        weights: Of the model with its adapter merged, and of the output, by their names in BERT's
            checkpoints; the output is ``head``.
        tokenizer: Of the model.
        revision: Identifies the weights, for manifests.
    """

    def __init__(
        self, weights: "Weights", tokenizer: "tokenizers.Tokenizer", revision: str = ""
    ) -> None:
        tokenizer.enable_truncation(MAX_TOKENS, strategy="longest_first")
        # The adapter is trained with this activation.
        self._bert, self._head = Bert(weights, tokenizer, tanh_gelu), linear(weights, "head")
        self.revision = revision

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the packaged model, and merge an adapter that `kbqa train-judge` wrote.

        Raises:
            ModelError: A package or a file is missing or broken.
        """
        weights, tokenizer = load_minilm()
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            adapter = load_file(folder / ADAPTER_FILE)
            settings = read_json(
                folder / SETTINGS_FILE, AdapterSettings, ModelError, schema_version=SCHEMA_VERSION
            )
            merged = merge_adapter(weights, adapter, settings.scale)
            return cls(merged, tokenizer, reader_revision(folder))
        except (OSError, ValueError, KeyError, SafetensorError, ModelError) as error:
            raise ModelError(f"the judge in {folder} cannot be loaded: {error}") from error

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """Score how well each text fits a question; higher is better, without bounds."""
        if not texts:
            return []
        scores = self._head(self._bert.mean([(question, text) for text in texts]))
        return [float(score) for score in scores[:, 0]]


def reader_revision(folder: Path) -> str:
    """Hash an adapter and its scale, to tell it from others.

    Raises:
        OSError: They cannot be read.
    """
    return files_sha256([folder / ADAPTER_FILE, folder / SETTINGS_FILE])[:8]


def merge_adapter(weights: "Weights", adapter: "Weights", scale: float) -> dict[str, "Floats"]:
    """Add the product of an adapter's matrices to the weights that they adapt.

    Args:
        weights: Of the model.
        adapter: For each adapted ``NAME.weight`` of them, ``NAME.lora_A`` of shape (rank, inputs)
            and ``NAME.lora_B`` of shape (outputs, rank); and the output, ``head``, which is added.
        scale: Of the products.

    Raises:
        ValueError: There is anything else in the adapter, or it does not fit the weights.
    """
    head = {name: adapter[name] for name in adapter if name.startswith("head.")}
    lora = {name: adapter[name] for name in adapter if name not in head}
    return {**merge_lora(weights, lora, scale, _MATRIX), **head}


READER_FOLDER, CONFIDENCE_FILE = "reader", "confidence_model.json"
"""In the folder of a judge: the adapter of the cross-encoder, and the confidence model."""

_CLEAR = 0.8
"""The share of the fits from which the best answers are clear, and the asker is not asked."""

_ASKED_PATHS = 3
"""The paths that it is asked about. On held-out questions, more of them, or asking always, gained
nothing more."""

SHIPPED_JUDGE = Path(__file__).with_name("judge_model")
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
