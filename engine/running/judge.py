"""The judge: it reads the candidates of a question with what they found, and chooses among them.

The confidence model knows how a candidate fared, but not what it says. So a small cross-encoder
reads the question together with the path and its first answers: it can tell a birthplace from a
profession. Precedents, the training questions most like the question, vote for the relations of
their own paths. Where this leaves a doubt, the asker says how likely the question is, given each of
the paths that fit best. All three are features of the confidence model, and the candidate whose
answers are surest answers the question.

Pangu (Gu et al. 2023) also lets a model only discriminate between paths of the graph, but without
their answers.
"""

import importlib.util
import json
import logging
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from kbqa.engine.embedding.embedder import Bert, Embedder, linear, load_minilm, tanh_gelu
from kbqa.engine.files import file_sha256, read_json
from kbqa.engine.linking.mentions import named_entities
from kbqa.engine.running.tried import (
    ConfidenceModel,
    Execution,
    Tried,
    answer_confidences,
    rank_tried,
    share_fits,
    with_first_answers,
)
from kbqa.engine.writing.beam_search import LoadedModel, read_continuation
from kbqa.engine.writing.checkpoint import (
    Adapter,
    merge_lora,
    open_adapter,
    openvino_precision,
)
from kbqa.engine.writing.generate import PROMPT_FILE, Backend, ModelChoice, Tokenizer
from kbqa.engine.writing.openvino import prepare_model
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Hop
from kbqa.sparql.english import path_words, relation_words
from kbqa.sparql.errors import ModelError
from kbqa.sparql.terms import Term

if TYPE_CHECKING:
    import numpy as np
    import tokenizers
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Weights = Mapping[str, Floats]

logger = logging.getLogger(__name__)

SHIPPED_JUDGE = Path(__file__).with_name("judge_model")
"""The judge that comes with kbqa."""

READER_FOLDER, ASKER_FOLDER = "reader", "asker"
CONFIDENCE_FILE, PRECEDENTS_FILE = "confidence_model.json", "precedents.safetensors"
"""In the folder of a judge. One with an asker has a confidence model for it in its folder, too."""

_CLEAR = 0.8
"""The share of the fits from which the best answers are clear, and the asker is not asked."""

_ASKED_PATHS = 3
"""The paths that it is asked about. On held-out questions, more of them, or asking always, gained
nothing more."""


class Judge:
    """Chooses among the candidates of questions on one graph. Threads may share one.

    Args:
        schema: Of the graph.
        model: Weighs what is known of a candidate.
        encoder: Scores how well a candidate fits; None to choose by the model alone.
        precedents: Training questions, which vote.
        asker: Says how likely the question is; None if it is not asked.
    """

    def __init__(
        self,
        schema: GraphSchema,
        model: ConfidenceModel,
        encoder: "CrossEncoder | None" = None,
        precedents: "Precedents | None" = None,
        asker: "Asker | None" = None,
    ) -> None:
        self.model, self._schema = model, schema
        self._encoder, self._precedents, self._asker = encoder, precedents, asker
        parts = [each.revision for each in (encoder, precedents, asker) if each is not None]
        self.revision = " ".join(parts) or None
        """Identifies what reads the candidates, for manifests; None if nothing does."""

    @classmethod
    def load(
        cls,
        folder: Path,
        schema: GraphSchema,
        *,
        asks: bool = True,
        may_lack_asker: bool = False,
        threads: int | None = None,
    ) -> Self:
        """Load a judge that `kbqa train-judge` wrote.

        Args:
            folder: Of the judge.
            schema: Of the graph.
            asks: Whether to use its asker, if it has one.
            may_lack_asker: Whether to go without an asker that is broken, with a warning.
            threads: Threads that the asker computes with; None for one a core.

        Raises:
            ModelError: A package or a file is missing or broken.
        """
        encoder = CrossEncoder.load(folder / READER_FOLDER)
        precedents = Precedents.load(Embedder.load(), folder)
        asker = None
        try:
            asker = Asker.of(folder, threads) if asks else None
        except ModelError as error:
            if not may_lack_asker:
                raise
            logger.warning("the judge does without its asker: %s", error)
        of_model = folder if asker is None else folder / ASKER_FOLDER
        model = ConfidenceModel.load(of_model / CONFIDENCE_FILE)
        return cls(schema, model, encoder, precedents, asker)

    def over(self, schema: GraphSchema) -> Self:
        """Return it for another graph; the models are shared."""
        other = copy(self)
        other._schema = schema
        return other

    @property
    def reads(self) -> bool:
        """Whether it reads candidates, and not only weighs how they fared."""
        return self._encoder is not None

    def read(self, question: str, tried: Sequence[Tried], graph: Graph) -> list[Tried]:
        """Score each candidate with answers: `Tried.fit`, `votes` and `question_logprob`.

        Args:
            question: As asked.
            tried: Its candidates.
            graph: Names their first answers, as long as the question has time.

        Raises:
            GraphError: The graph does not answer.
            ModelError: The asker cannot be loaded.
        """
        if self._encoder is None or self._precedents is None:
            return list(tried)
        tried = with_first_answers(graph, tried)
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

    def choose(self, tried: Sequence[Tried]) -> Execution:
        """Choose the candidate whose answers are likeliest to be right.

        Its answers that other candidates lead to as well are surer, and come first unless the query
        orders them.
        """
        confidences = self.model.judge(tried)
        judged = [replace(t, confidence=c) for t, c in zip(tried, confidences, strict=True)]
        best = next((at for at in rank_tried(judged) if judged[at].table is not None), None)
        if best is not None:
            judged[best] = _with_surest_first(judged[best], judged)
        return Execution(tuple(judged), best)


def _with_surest_first(best: Tried, tried: Sequence[Tried]) -> Tried:
    """Say how sure each answer is, and sort them by it, unless the query orders them."""
    table, relaxation = best.table, best.relaxation
    assert table is not None
    assert relaxation is not None
    if best.boolean is not None or best.value is not None:
        return best
    confidences = answer_confidences(tried)

    def rank(row: tuple[Term | None, ...]) -> float:
        return 0.0 if row[0] is None else -confidences.get(row[0], 0.0)

    if relaxation.crp.order is None:
        table = replace(table, rows=tuple(sorted(table.rows, key=rank)))
    sure = confidences if best.count is None else {}
    return replace(best, table=table, answer_confidences=sure)


def _ask_back(asker: "Asker", question: str, read: Sequence[Tried]) -> list[Tried]:
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

READER_VERSION = 2

_MATRIX = re.compile(r"(.+)\.lora_([AB])")


class AdapterSettings(NamedTuple):
    """What the file of an adapter's settings holds."""

    scale: float


class CrossEncoder:
    """Scores pairs of a question and a text. Any number of threads may use one.

    It is the packaged all-MiniLM-L6-v2 with a LoRA adapter merged into it and a linear output over
    the mean of the last layer.

    Source: Nogueira and Cho 2019, cross-encoders that rank; Hu et al. 2022, LoRA.

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
        """Load the packaged model, and merge an adapter that `kbqa train-judge` wrote."""
        weights, tokenizer = load_minilm()
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            adapter = load_file(folder / ADAPTER_FILE)
            settings = read_json(
                folder / SETTINGS_FILE, AdapterSettings, ModelError, schema_version=READER_VERSION
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
    """Hash an adapter and its scale, to tell it from others."""
    return file_sha256(folder / ADAPTER_FILE, folder / SETTINGS_FILE)[:8]


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


_PRECEDENTS_VERSION = 1

_NEAREST = 20
_TEMPERATURE = 0.1
"""Of cosines. On held-out questions 0.05 and 0.2, or 10 and 50 questions, made no difference, nor
did it gain anything to count those with the same main path as well."""


class Precedents:
    """Training questions, without the names in them, with the last relations of their paths.

    The most similar ones vote for theirs. Any number of threads may use one.

    Source: Das et al. 2021, Case-based Reasoning for Natural Language Queries over Knowledge Bases.

    Args:
        embedder: Embeds questions.
        vectors: Of the questions without names; integers of any scale, shape (questions,
            dimensions).
        places: The place in `relations` of the last relation of each.
        relations: As `last_relation` writes them.
        revision: Identifies the questions, for manifests.
    """

    def __init__(
        self,
        embedder: Embedder,
        vectors: "NDArray[np.int8]",
        places: "NDArray[np.int32]",
        relations: Sequence[str],
        revision: str = "",
    ) -> None:
        import numpy as np

        self._embedder, self._kept = embedder, vectors
        self._vectors = vectors.astype(np.float32)
        self._vectors /= np.linalg.norm(self._vectors, axis=1, keepdims=True)
        self._places, self._relations, self.revision = places, relations, revision

    @classmethod
    def of(
        cls, embedder: Embedder, schema: GraphSchema, answered: Sequence[tuple[str, Crp]]
    ) -> Self:
        """Keep questions, each with its CRP."""
        import numpy as np

        vectors = embedder.embed([without_names(question, [crp]) for question, crp in answered])
        last = [last_relation(crp, schema) for _, crp in answered]
        relations = sorted(set(last))
        places = {relation: at for at, relation in enumerate(relations)}
        scale = 127 / np.abs(vectors).max(initial=1e-9)
        small = np.round(vectors * scale).astype(np.int8)
        return cls(embedder, small, np.array([places[each] for each in last], np.int32), relations)

    def __len__(self) -> int:
        """Count the questions."""
        return len(self._places)

    def votes(self, question: str, crps: Sequence[Crp], schema: GraphSchema) -> list[float]:
        """Count the votes for each CRP that may answer a question.

        Returns:
            The share of the most similar questions, weighted by their cosines, whose path ends with
            the same relation, in [0, 1].
        """
        import numpy as np

        if not crps or not len(self):
            return [0.0] * len(crps)
        cosines = self._vectors @ self._embedder.embed([without_names(question, crps)])[0]
        nearest = np.argsort(-cosines, kind="stable")[:_NEAREST]
        weights = np.exp((cosines[nearest] - cosines[nearest[0]]) / _TEMPERATURE)
        votes = defaultdict[str, float](float)
        for place, weight in zip(self._places[nearest], weights / weights.sum(), strict=True):
            votes[self._relations[place]] += float(weight)
        return [votes[last_relation(crp, schema)] for crp in crps]

    def save(self, folder: Path) -> None:
        """Write them into the folder of a judge."""
        from safetensors.numpy import save_file

        metadata = {
            "schema_version": str(_PRECEDENTS_VERSION),
            "embedder": self._embedder.name,
            "relations": json.dumps(self._relations),
        }
        arrays = {"vectors": self._kept, "places": self._places}
        save_file(arrays, folder / PRECEDENTS_FILE, metadata)

    @classmethod
    def load(cls, embedder: Embedder, folder: Path) -> Self:
        """Read what `save` wrote; another embedder's is refused."""
        from safetensors import SafetensorError, safe_open

        file = folder / PRECEDENTS_FILE
        try:
            with safe_open(file, framework="np") as opened:
                stated = opened.metadata() or {}
                vectors, places = (opened.get_tensor(name) for name in ("vectors", "places"))
            if stated.get("schema_version") != str(_PRECEDENTS_VERSION):
                raise ValueError(f"its schema_version is not {_PRECEDENTS_VERSION}")
            if stated["embedder"] != embedder.name:
                raise ValueError(f"its embedder is {stated['embedder']}, not {embedder.name}")
            relations = [str(each) for each in json.loads(stated["relations"])]
            return cls(embedder, vectors, places, relations, file_sha256(file)[:8])
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            raise ModelError(
                f"the judge in {folder} has no precedents that can be read: {error!r}. "
                "Train it again: kbqa train-judge."
            ) from error


def last_relation(crp: Crp, schema: GraphSchema) -> str:
    """Return the last relation of a main path, the same for both names of an edge.

    It begins with ``^`` if it is followed backwards, and is empty if the path forks there.
    """
    last = crp.path[-1]
    if not isinstance(last, Hop):
        return ""
    [hop] = schema.canonical([last])
    return f"{'^' if hop.inverse else ''}{hop.relation}"


def without_names(question: str, crps: Iterable[Crp]) -> str:
    """Put *it* for the names in a question of the entities of CRPs.

    >>> from kbqa.sparql.crp import Entity
    >>> crp = Crp(Entity("Kenya"), (Hop("location.country.capital"),))
    >>> without_names("what is the capital of Kenya?", [crp])
    'what is the capital of it?'
    """
    names = {each.name for crp in crps for each in named_entities(crp) if each.name}
    for name in sorted(names, key=lambda each: (-len(each), each)):
        pattern = rf"(?<!\w){re.escape(name)}(?!\w)"
        question = re.sub(pattern, "it", question, flags=re.IGNORECASE)
    return question


ASKER_FILES = ("adapter_model.safetensors", PROMPT_FILE, "adapter_config.json")
"""What is needed of the folder that it was trained in; the last one shows that it is whole."""

MAX_QUESTION_TOKENS = 128
"""A longer question is cut at its end. Those of the test halves have up to 90."""


class Asker:
    """Says how likely a question is, given a path; threads take turns.

    It is SmolLM2-135M with an adapter of its own, which has learnt to ask the question of a path. A
    writer says how likely a path is, and one with common relations is likely for many questions.
    The asker must explain all words of the question by the path, so a path that lacks a condition
    or has another topic scores lower.

    Source: Sachan et al. 2022, "Improving Passage Retrieval with Zero-Shot Question Generation"
    (UPR).

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
        """Compute the log-probability of a question, given each path in words; natural log."""
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
