"""What a judge learns from, and how its three parts learn it.

A judge must learn from candidates that are like those it will see: written for questions that the
writer does not know. So the confidence model is fitted to families of questions that the writer
was held out from. They are few, but it has few weights. The cross-encoder needs thousands. It does
not see how likely a path was for the writer, so it may read any question, even one that the writer
knows: what another writer wrote for it that does not know it (`kbqa train-crp --leave-out-fold`),
or its gold path, among those that a search of the graph finds. Only the held-out families are kept
from it, and from the asker, which learns all others.

What is learnt is in two files: ``pools`` has the texts that the cross-encoder reads, ``features``
what the confidence model weighs. The second can only be written when the first has trained a
cross-encoder.

The adapter of the cross-encoder is trained listwise. A question's candidates, and "none of these",
are scored, and the scores are trained towards a distribution: a candidate by the square of its F1,
none by the square of what the best lacks. So those with the best answers share most of it, and a
path that is nearly right has some. The score of none is 0. Some questions are read without their
right candidates, as they would be if the graph lacked the facts. Others are read with a condition
that no path has (`kbqa.training.judge.wording`), and then none is right, or with words that ask
nothing.

The asker is an adapter of SmolLM2-135M that asks the question of a path. It learns the writer's
examples the other way round, from the path in words to the question.

The confidence model is a logistic regression of candidates' F1 on their outcomes. The language
model must not have been trained on the questions, or its probabilities would be higher than they
are in use. Only questions whose gold query has answers on the graph count: if the graph lacks the
facts, no candidate can be right, and there is nothing to learn about which one is. But people ask
what no graph knows, so a third of them counts once more without its right candidates.

Source: Cao et al. 2007, ListNet; Hu et al. 2022, LoRA; Rajpurkar et al. 2018, SQuAD 2.0, for
questions without an answer among those that have one; Sachan et al. 2022 (UPR), who rank passages
by how likely the question is; Platt 1999, "Probabilistic outputs for support vector machines";
Wolpert 1992, stacked generalization: fitting the last model to held-out examples is blending.
"""

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from kbqa.engine.asked import Asked
from kbqa.engine.embedding.embedder import Embedder, minilm_folder
from kbqa.engine.evaluation.scores import candidate_f1
from kbqa.engine.evaluation.statistics import calibrate
from kbqa.engine.files import drop_unfinished_line, read_json, read_rows
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.methods import Resources
from kbqa.engine.methods.kbqa import run_searched
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.running.judge import (
    ADAPTER_FILE,
    MAX_TOKENS,
    READER_VERSION,
    SETTINGS_FILE,
    AdapterSettings,
    Judge,
    reader_revision,
    text_of,
)
from kbqa.engine.running.pool import PathPool
from kbqa.engine.running.run import Runner
from kbqa.engine.running.tried import (
    ASKED_LEAD,
    ConfidenceModel,
    Features,
    Tried,
    describe_tried,
    with_first_answers,
)
from kbqa.engine.writing.checkpoint import mixed_precision, quiet_transformers
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.english import path_words
from kbqa.sparql.errors import EndpointDown, GraphError, InputError, ModelError, TrainingError
from kbqa.sparql.forms import read_crp, render_crp
from kbqa.sparql.terms import term_text
from kbqa.training.config import ALL_LAYERS, TrainingConfig
from kbqa.training.data.training_set import (
    COMPOSED_SOURCE,
    DEMO_SOURCE,
    Example,
    ExampleSet,
    Split,
    families_of,
)
from kbqa.training.grpo.questions import find_questions
from kbqa.training.judge.wording import with_condition, with_words_beside
from kbqa.training.writer import train_adapter

if TYPE_CHECKING:
    import torch
    from torch import Tensor


# Questions with gold, each with what was written for it.
Pools: TypeAlias = Sequence[tuple[Question, Sequence[Candidate]]]
Beams = Mapping[str, Sequence[Candidate]]  # what was written, by the ids of questions
POOLS_FILE, FEATURES_FILE = "pools.jsonl", "features.jsonl"
MADE_SOURCES = (COMPOSED_SOURCE, DEMO_SOURCE)  # of questions that were made with their paths

# Called with the steps done and in all, and the mean loss of the last ones in nats.
ReportStep: TypeAlias = Callable[[int, int, float], None]
_REPORTED = 50
LEARNING_RATE, FURTHER_LEARNING_RATE = 1e-3, 4e-4  # from nothing, and from another judge
_LAYERS = ["query", "key", "value", "dense"]
_L2 = 1.0  # on weights of features scaled to unit variance, in candidates
_STEPS = 50
_FOLDS = 5
_HUNDREDTHS = 100
_WRONG = 0.5  # the F1 up to which answers count as wrong
_WITHOUT_RIGHT = 3  # every third question is also fitted to without its right candidates


class ReadingExample(NamedTuple):
    """A question and what may be read for it: texts of candidates, with the F1 of their answers."""

    question: str
    candidates: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class ReadingConfig:
    """How cross-encoder and asker are trained."""

    epochs: int = Field(default=2, ge=0)  # 0 to train no cross-encoder
    asker_epochs: int = Field(default=1, ge=0)  # 0 to train no asker
    learning_rate: float = Field(default=LEARNING_RATE, gt=0)  # the highest
    warmup: float = Field(default=0.05, ge=0, le=1)  # share of the steps in which it rises
    rank: int = Field(default=16, ge=1)
    questions_a_step: int = Field(default=8, ge=1)
    candidates_a_question: int = Field(default=8, ge=2)  # read in an epoch, drawn by chance
    without_right: float = Field(default=0.25, ge=0, le=1)  # share of the questions read so
    with_condition: float = Field(default=0.3, ge=0, le=1)  # the same, that no path has
    with_words_beside: float = Field(default=0.2, ge=0, le=1)  # the same, that ask nothing
    seed: int = 42  # decides weights, order and draws


Weighed: TypeAlias = tuple[Features, float]
"""What `describe_tried` says of a candidate, and the F1 of its answers."""


class Judged(NamedTuple):
    """The candidates of a question, without those that have no answers."""

    features: Sequence[Features]  # of each, from `describe_tried`
    f1: Sequence[float]  # of the answers of each against the gold answers
    without_right: Sequence[Weighed] = ()  # those that are wrong, as if the graph had no others


class Part(NamedTuple):
    """Questions on one graph: those that are read, and those of other families held out.

    For the latter, the candidates are what the writer that will be judged wrote. It does not know
    these questions.
    """

    read: Pools
    held_out: Pools
    resources: Resources
    pool: PathPool | None  # searches further candidates


class _GoldQuestion(NamedTuple):
    id: str
    question: Question
    paths: Sequence[Candidate]


class PoolRunner:
    """Runs the written and searched candidates of questions, from linked entities as in an answer.

    Without a judge, as long as there is no cross-encoder, candidates are not read. The methods
    raise a `GraphError` if the graph does not answer.
    """

    def __init__(
        self, resources: Resources, pool: PathPool | None, judge: Judge | None = None
    ) -> None:
        self._resources, self._pool, self._judge = resources, pool, judge
        self._graph, self._schema = resources.graph, GraphSchema(resources.graph)

    def run(self, question: Question, candidates: Sequence[Candidate]) -> list[Tried]:
        """Run the candidates of a question."""
        names, timeout_s = self._resources.names, self._resources.timeout_s
        asked = Asked(question.text, linked=tuple(self._resources.linker.link(question.text)))
        runner = Runner(asked, self._graph, names, timeout_s)
        tried = runner.run(candidates)
        if self._pool is not None:
            tried += run_searched(asked, tried, self._pool, runner)
        if self._judge is not None:
            tried = self._judge.read(question.text, tried, self._graph)
        return tried

    def texts(self, question: Question, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """Return the row of a question in ``pools``."""
        tried = with_first_answers(self._graph, self.run(question, candidates))
        read = {
            text: candidate_f1(each, question)
            for each in tried
            if (text := text_of(each, self._schema)) is not None
        }
        return {"question": question.text, "candidates": sorted(read.items())}

    def features(self, question: Question, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """Return the row of a question in ``features``; candidates without answers have none."""
        tried = self.run(question, candidates)
        wrong = [each for each in tried if candidate_f1(each, question) <= _WRONG]

        def weighed(tried: Sequence[Tried]) -> list[Weighed]:
            return [
                (features, candidate_f1(each, question))
                for each, features in zip(tried, describe_tried(tried), strict=True)
                if each.terms
            ]

        return {"candidates": weighed(tried), "without_right": weighed(wrong)}


def write_rows(
    path: Path,
    pools: Pools,
    make: Callable[[Question, Sequence[Candidate]], Mapping[str, Any]],
    advance: Callable[[int], object],
) -> None:
    """Write a row for each question; those that the file has already are skipped.

    A question for which the graph fails has a row without candidates.
    """
    if path.is_file():
        drop_unfinished_line(path)
    done = {str(row["id"]) for _, row in read_rows(path)} if path.is_file() else set()
    advance(len(done))
    with path.open("a", encoding="utf-8") as rows:
        for question, candidates in pools:
            if question.id in done:
                continue
            try:
                row = make(question, candidates)
            except EndpointDown:
                raise
            except GraphError:
                row = {"question": question.text, "candidates": []}
            rows.write(json.dumps({"id": question.id, **row}, ensure_ascii=False) + "\n")
            rows.flush()
            advance(1)


def read_texts(path: Path) -> Iterator[ReadingExample]:
    """Read a file of ``pools``; an `InputError` names the row that is none."""
    for number, row in read_rows(path):
        with _explained(path, number):
            candidates = [(str(text), float(f1)) for text, f1 in row["candidates"]]
            yield ReadingExample(str(row["question"]), candidates)


def read_judged(path: Path) -> Iterator[Judged]:
    """Read a file of ``features``; an `InputError` names the row that is none."""
    for number, row in read_rows(path):
        with _explained(path, number):
            judged, wrong = (
                [(dict(features), float(f1)) for features, f1 in rows]
                for rows in (row["candidates"], row.get("without_right", ()))
            )
            features = tuple(each for each, _ in judged)
            yield Judged(features, tuple(f1 for _, f1 in judged), wrong)


@contextmanager
def _explained(path: Path, number: int) -> Iterator[None]:
    """Turn what a row lacks into an error that names the row."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"{path}, line {number}: not a row of candidates ({error!r})") from None


def near_misses(path: Candidate) -> Iterator[Candidate]:
    r"""Yield a path without each of its constraints, without its order, and a hop shorter.

    A writer often misses a condition or stops a hop too early. A judge that never sees the like
    next to the right path does not learn to tell them apart.

    >>> path = Candidate("Kenya -> a.b -> a.c\n?x -> a.d = Peru\nlargest ?x -> a.e", 0.0, 1)
    >>> for one in near_misses(path):
    ...     print(one.text.replace("\n", "; "))
    Kenya -> a.b -> a.c; largest ?x -> a.e
    Kenya -> a.b -> a.c; ?x -> a.d = Peru
    Kenya -> a.b
    """
    crp = read_crp(path.text).crp
    changes: list[dict[str, Any]] = [
        {"constraints": crp.constraints[:at] + crp.constraints[at + 1 :]}
        for at in range(len(crp.constraints))
    ]
    if crp.order is not None:
        changes.append({"order": None})
    if len(crp.path) > 1:
        kept = tuple(c for c in crp.constraints if isinstance(c.at, int) and c.at < crp.answer)
        shorter = {"path": crp.path[:-1], "constraints": kept, "order": None, "form": "select"}
        changes.append(shorter)
    for change in changes:
        try:
            changed = replace(crp, **change)
        except ValueError:  # A part that is left needs what was taken.
            continue
        yield Candidate(render_crp(changed), logprob=0.0, tokens=1)


def gather_parts(
    examples: ExampleSet,
    files: Sequence[Path],
    written: Beams,
    held_out: Beams,
    resources: Sequence[Resources],
) -> list[Part]:
    """Divide the questions that have gold answers on a graph.

    A question that is held out is not read, nor is one of its family, or one that asks the same.
    What is read is what was written for a question, or else its gold paths, and near misses of
    these.

    Others were `written` by a writer that does not know the questions, and those held out by the
    writer that will be judged. The resources are of the graph of the files, and of the demo graph
    if questions are about it.
    """
    on, *demo = resources
    golds = [
        [*_of_files(examples, files, on), *_of_paths(examples, COMPOSED_SOURCE, on)],
        *(_of_paths(examples, DEMO_SOURCE, each) for each in demo),
    ]
    away = families_of(examples.examples, held_out)
    embedder, asking = Embedder.load(), LinkingModel.load()
    return [
        Part(
            [
                (q, [*written.get(id_, paths), *chain.from_iterable(map(near_misses, paths))])
                for id_, q, paths in gold
                if id_ not in away
            ],
            [(q, held_out[id_]) for id_, q, _ in gold if id_ in held_out],
            each,
            PathPool(each.graph, embedder, asking),
        )
        for gold, each in zip(golds, resources, strict=True)
    ]


def _of_files(
    examples: ExampleSet, files: Sequence[Path], resources: Resources
) -> list[_GoldQuestion]:
    """Find the gold of questions by their gold queries, or as their records say."""
    asked = [each for each in examples.examples if each.source not in MADE_SOURCES]
    graph, timeout_s = resources.graph, resources.timeout_s
    found = find_questions(asked, files, graph, "extended", timeout_s, examples)
    paths = _gold_paths(asked)
    return [
        _GoldQuestion(id_, question, paths[id_]) for (_, id_), question in sorted(found.items())
    ]


def _of_paths(examples: ExampleSet, source: str, resources: Resources) -> list[_GoldQuestion]:
    """Find the gold of questions that were made with their paths, which lead to it."""
    runner = PoolRunner(resources, None)
    asked = [each for each in examples.examples if each.source == source]
    texts = {each.id: each.question for each in asked}
    paths = _gold_paths(asked)
    found = []
    for id_, gold in paths.items():
        question = Question(f"{source} {id_}", texts[id_], topics=(), golds=())
        [tried] = runner.run(question, gold[:1])
        if tried.table is None:
            continue
        if tried.boolean is not None or tried.count is not None:
            question = replace(question, boolean=tried.boolean, count=tried.count)
        elif answers := tuple(sorted({term_text(term) for term in tried.terms})):
            question = replace(question, golds=(answers,))
        else:
            continue
        found.append(_GoldQuestion(id_, question, gold))
    return found


def _gold_paths(examples: Iterable[Example]) -> dict[str, list[Candidate]]:
    paths: dict[str, list[Candidate]] = defaultdict(list)
    for example in examples:
        paths[example.id].append(Candidate(example.target, logprob=0.0, tokens=1))
    return paths


def train_reading(
    questions: Sequence[ReadingExample],
    folder: Path,
    config: ReadingConfig,
    report: ReportStep = lambda step, steps, loss: None,
    start: Path | None = None,
) -> None:
    """Train an adapter and write it to a folder, for `CrossEncoder.load`.

    It goes on from the adapter in `start`, of the same rank, if there is one.
    """
    import torch

    questions = [one for one in questions if one.candidates]
    if not any(f1 for one in questions for _, f1 in one.candidates):
        raise TrainingError("there is nothing to train on: no question has a right candidate")
    torch.manual_seed(config.seed)
    network = _Network(config.rank)
    if start is not None:
        network.load(start)
    # Who goes on from an adapter draws other candidates than it was trained with.
    seed = config.seed if start is None else f"{config.seed} {reader_revision(start)}"
    rng = random.Random(seed)
    steps = config.epochs * math.ceil(len(questions) / config.questions_a_step)
    optimizer = torch.optim.AdamW(network.named().values(), config.learning_rate, weight_decay=0.01)

    def rate(step: int) -> float:
        """Return the share of the highest rate: a rise, then half a cosine down to 5 %."""
        done = step / steps
        if done < config.warmup:
            return done / config.warmup
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    losses: list[float] = []
    for _ in range(config.epochs):
        shuffled = rng.sample(questions, len(questions))
        for at in range(0, len(shuffled), config.questions_a_step):
            batch = shuffled[at : at + config.questions_a_step]
            loss = network.loss([_drawn(one, config, rng) for one in batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if len(losses) % _REPORTED == 0 or len(losses) == steps:
                report(len(losses), steps, fmean(losses[-_REPORTED:]))
    network.save(folder)


class _Network:
    """MiniLM with an adapter and a linear output; only these two are trained."""

    def __init__(self, rank: int) -> None:
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModel, AutoTokenizer

        quiet_transformers()
        folder = str(minilm_folder())
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        # The approximation by which `CrossEncoder` computes.
        base = AutoModel.from_pretrained(folder, dtype=torch.float32, hidden_act="gelu_new")
        self._scale = 2.0
        adapter = LoraConfig(r=rank, lora_alpha=int(self._scale * rank), target_modules=_LAYERS)
        self._encoder = get_peft_model(base, adapter)
        self._encoder.train()
        self._head = torch.nn.Linear(base.config.hidden_size, 1)

    def loss(self, questions: Sequence[ReadingExample]) -> "Tensor":
        """Compute the mean loss of questions."""
        import torch

        pairs = [(one.question, text) for one in questions for text, _ in one.candidates]
        inputs = self._tokenizer(
            *map(list, zip(*pairs, strict=True)),
            padding=True,
            truncation="longest_first",
            max_length=MAX_TOKENS,
            return_tensors="pt",
        )
        with mixed_precision(torch.device("cpu")):
            hidden = self._encoder(**inputs).last_hidden_state.float()
        mask = inputs["attention_mask"].unsqueeze(-1)
        scores = self._head((hidden * mask).sum(1) / mask.sum(1)).squeeze(-1)
        losses = []
        for one in questions:
            mine, scores = scores[: len(one.candidates)], scores[len(one.candidates) :]
            f1 = torch.tensor([f1 for _, f1 in one.candidates])
            wanted = torch.cat([f1, 1 - f1.max().reshape(1)]) ** 2
            with_none = torch.cat([mine, torch.zeros(1)])
            losses.append(-(wanted / wanted.sum() * with_none.log_softmax(0)).sum())
        return torch.stack(losses).mean()

    def named(self) -> "dict[str, torch.nn.Parameter]":
        """Return what is trained by the names that it has in a file."""
        named = {f"head.{name}": each for name, each in self._head.named_parameters()}
        for name, each in self._encoder.named_parameters():
            module, _, kind = name.removeprefix("base_model.model.").partition(".lora_")
            if kind:
                named[f"{module}.lora_{kind[0]}"] = each
        return named

    def load(self, folder: Path) -> None:
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            saved = load_file(folder / ADAPTER_FILE)
            settings = read_json(
                folder / SETTINGS_FILE, AdapterSettings, ModelError, schema_version=READER_VERSION
            )
            named = self.named()
            if settings.scale != self._scale:
                raise ModelError(f"its scale is {settings.scale:g}, and has to be {self._scale:g}")
            if {n: t.shape for n, t in saved.items()} != {n: t.shape for n, t in named.items()}:
                raise ModelError("it was trained with another rank, or other layers")
            with torch.no_grad():
                for name, each in named.items():
                    each.copy_(saved[name])
        except (OSError, SafetensorError, ModelError) as error:
            raise ModelError(f"cannot go on from the judge in {folder}: {error}") from error

    def save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        tensors = {name: each.detach().contiguous() for name, each in self.named().items()}
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / ADAPTER_FILE)
        settings = {"schema_version": READER_VERSION, "scale": self._scale}
        (folder / SETTINGS_FILE).write_text(json.dumps(settings) + "\n", encoding="utf-8")


def _drawn(one: ReadingExample, config: ReadingConfig, rng: random.Random) -> ReadingExample:
    """Draw some candidates: one of the best and others, or now and then only wrong ones.

    Now and then the question asks for more than all of them, and none is right, or has words more.
    """
    best = max(f1 for _, f1 in one.candidates)
    right = [each for each in one.candidates if each[1] == best]
    wrong = [each for each in one.candidates if each[1] < best]
    question, wording = one.question, rng.random() - config.with_condition
    is_beyond = wording < 0
    if is_beyond:
        topic = right[0][0].partition(":")[0]  # of the path in words
        question = with_condition(question, topic, rng)
    elif wording < config.with_words_beside:
        question = with_words_beside(question, rng)
    if wrong and not is_beyond and rng.random() < config.without_right:
        kept, others = list[tuple[str, float]](), wrong
    else:
        kept = [rng.choice(right)]
        others = [each for each in one.candidates if each is not kept[0]]
    most = config.candidates_a_question - len(kept)
    drawn = [*kept, *rng.sample(others, min(len(others), most))]
    if is_beyond:
        drawn = [(text, 0.0) for text, _ in drawn]
    return ReadingExample(question, drawn)


def without_asker(question: Judged) -> Judged:
    """Leave out the features of a question's candidates that only an asker gives."""

    def without(features: Features) -> Features:
        return {name: value for name, value in features.items() if name != ASKED_LEAD}

    return question._replace(
        features=[without(each) for each in question.features],
        without_right=[(without(features), f1) for features, f1 in question.without_right],
    )


def fit_confidence(questions: Sequence[Judged], fitted_on: str, seed: int = 42) -> ConfidenceModel:
    """Fit the model to all questions, and calibrate it by cross-validation.

    There must be at least five, one for each fold. `fitted_on` describes them, for reports.
    """
    if len(questions) < _FOLDS:
        raise ValueError(
            f"{len(questions)} questions are too few to fit the confidence model; "
            f"it needs at least {_FOLDS}"
        )
    held_out: list[tuple[float, float]] = []
    best: list[float] = []
    for question, confidences in zip(questions, cross_validate(questions, seed), strict=True):
        held_out += zip(confidences, question.f1, strict=True)
        best.append(max(confidences, default=0.0))
    best.sort()
    spread = [best[at * len(best) // _HUNDREDTHS] for at in range(_HUNDREDTHS)]
    model = _fit(questions)
    return ConfidenceModel(model.bias, model.weights, fitted_on, calibrate(held_out), spread)


def cross_validate(questions: Sequence[Judged], seed: int = 42) -> list[list[float]]:
    """Compute the confidences of each question's candidates by a model fitted to other folds."""
    order = random.Random(seed).sample(range(len(questions)), len(questions))
    found: list[list[float]] = [[] for _ in questions]
    for fold in range(_FOLDS):
        model = _fit(questions[at] for place, at in enumerate(order) if place % _FOLDS != fold)
        for at in order[fold::_FOLDS]:
            found[at] = list(map(model.confidence, questions[at].features))
    return found


def _fit(questions: Iterable[Judged]) -> ConfidenceModel:
    """Maximise the likelihood by Newton's method, with a small L2 penalty."""
    import numpy as np

    candidates = list[Weighed]()
    for number, each in enumerate(questions):
        candidates += zip(each.features, each.f1, strict=True)
        candidates += each.without_right if number % _WITHOUT_RIGHT == 0 else ()
    names = sorted(set().union(*(features for features, _ in candidates)))
    x = np.array([[features.get(name, 0.0) for name in names] for features, _ in candidates])
    f1 = np.array([f1 for _, f1 in candidates])
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    x = np.column_stack([(x - mean) / scale, np.ones(len(x))])
    penalty = np.diag([_L2] * len(names) + [0.0])
    weights = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-x @ weights))
        gradient = x.T @ (p - f1) + penalty @ weights
        hessian = (x * (p * (1 - p) + 1e-6)[:, None]).T @ x + penalty
        weights -= np.linalg.solve(hessian, gradient)
    slopes = weights[:-1] / scale
    bias = float(weights[-1] - slopes @ mean)
    return ConfidenceModel(bias, dict(zip(names, slopes.tolist(), strict=True)))


def train_asker(
    examples: Iterable[Example],
    folder: Path,
    config: ReadingConfig,
    report: ReportStep,
    start: Path | None = None,
) -> None:
    """Train an asker on questions with their paths, or resume this; see `train_adapter`.

    It goes on from the asker in `start`, if there is one. Very long examples are left out.
    """
    settings = TrainingConfig(
        start="" if start is None else str(start),
        epochs=config.asker_epochs,
        batch_size=16,
        lora_rank=8,
        lora_alpha=16,
        lora_targets=ALL_LAYERS,
        max_length=160,
        valid_generate=0,
        patience=0,
        seed=config.seed,
    )
    turned = []
    for example in examples:
        words, asked = path_words(read_crp(example.target).crp), " ".join(example.question.split())
        turned.append(replace(example, question=words, target=asked, relations=()))
    train_adapter(
        Split(tuple(turned), ()),
        folder,
        settings,
        lambda progress: report(progress.step, progress.steps, progress.loss),
    )
