"""Train the three parts of a judge: the cross-encoder, the asker and the confidence model.

The adapter of the cross-encoder is trained listwise. A question's candidates, and "none of these",
are scored, and the scores are trained towards a distribution: a candidate by the square of its F1,
none by the square of what the best lacks. So those with the best answers share most of it, and a
path that is nearly right has some. The score of none is 0. Some questions are read without their
right candidates, as they would be if the graph lacked the facts.

The asker is an adapter of SmolLM2-135M that asks the question of a path. It learns the writer's
examples the other way round, from the path in words to the question.

The confidence model is a logistic regression of candidates' F1 on their outcomes. The language
model must not have been trained on the questions, or its probabilities would be higher than they
are in use. Only questions whose gold query has answers on the graph count: if the graph lacks the
facts, no candidate can be right, and there is nothing to learn about which one is.

Source: Cao et al. 2007, ListNet; Hu et al. 2022, LoRA; Rajpurkar et al. 2018, SQuAD 2.0, for
questions without an answer among those that have one; Sachan et al. 2022 (UPR), who rank passages
by how likely the question is; Platt 1999, "Probabilistic outputs for support vector machines".
"""

import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from kbqa.engine.embedding.bert import minilm_folder
from kbqa.engine.evaluation.statistics import calibrate
from kbqa.engine.files import read_json
from kbqa.engine.running.judge import (
    ADAPTER_FILE,
    MAX_TOKENS,
    READER_VERSION,
    SETTINGS_FILE,
    AdapterSettings,
    reader_revision,
)
from kbqa.engine.running.tried import ASKED_LEAD, ConfidenceModel, Features
from kbqa.engine.writing.checkpoint import mixed_precision, quiet_transformers
from kbqa.sparql.english import path_words
from kbqa.sparql.errors import ModelError, TrainingError
from kbqa.sparql.forms import read_crp
from kbqa.training.config import ALL_LAYERS, TrainingConfig
from kbqa.training.data.training_set import Example, Split
from kbqa.training.writer import train_adapter

if TYPE_CHECKING:
    import torch
    from torch import Tensor


ReportStep: TypeAlias = Callable[[int, int, float], None]
"""Called with the steps done and in all, and the mean loss of the last ones in nats."""

_REPORTED = 50
_LAYERS = ["query", "key", "value", "dense"]
_L2 = 1.0  # on weights of features scaled to unit variance, in candidates
_STEPS = 50
_FOLDS = 5
_HUNDREDTHS = 100


class ReadingExample(NamedTuple):
    """A question and what may be read for it: texts of candidates, with the F1 of their answers."""

    question: str
    candidates: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class ReadingConfig:
    """How cross-encoder and asker are trained."""

    epochs: int = Field(default=2, ge=0)  # 0 to train no cross-encoder
    asker_epochs: int = Field(default=1, ge=0)  # 0 to train no asker
    learning_rate: float = Field(default=1e-3, gt=0)  # the highest
    warmup: float = Field(default=0.05, ge=0, le=1)  # share of the steps in which it rises
    rank: int = Field(default=16, ge=1)
    questions_a_step: int = Field(default=8, ge=1)
    candidates_a_question: int = Field(default=8, ge=2)  # read in an epoch, drawn by chance
    without_right: float = Field(default=0.25, ge=0, le=1)  # share of the questions read so
    seed: int = 42  # decides weights, order and draws


def train_reading(
    questions: Sequence[ReadingExample],
    folder: Path,
    config: ReadingConfig,
    report: ReportStep = lambda step, steps, loss: None,
    start: Path | None = None,
) -> None:
    """Train an adapter and write it to a folder, for `CrossEncoder.load`.

    It goes on from the adapter in `start`, of the same rank, if there is one.

    Raises:
        TrainingError: No question has a candidate that is right, even in part.
        ModelError: The adapter to go on from is missing or does not fit.
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
    optimizer = torch.optim.AdamW(network.trained(), config.learning_rate, weight_decay=0.01)

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

    def trained(self) -> list["torch.nn.Parameter"]:
        adapter = [each for each in self._encoder.parameters() if each.requires_grad]
        return [*adapter, *self._head.parameters()]

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

    def _named(self) -> "dict[str, torch.nn.Parameter]":
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
            named = self._named()
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

        tensors = {name: each.detach().contiguous() for name, each in self._named().items()}
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / ADAPTER_FILE)
        settings = {"schema_version": READER_VERSION, "scale": self._scale}
        (folder / SETTINGS_FILE).write_text(json.dumps(settings) + "\n", encoding="utf-8")


def _drawn(one: ReadingExample, config: ReadingConfig, rng: random.Random) -> ReadingExample:
    """Draw some candidates: one of the best and others, or now and then only wrong ones."""
    best = max(f1 for _, f1 in one.candidates)
    right = [each for each in one.candidates if each[1] == best]
    wrong = [each for each in one.candidates if each[1] < best]
    if wrong and rng.random() < config.without_right:
        kept, others = list[tuple[str, float]](), wrong
    else:
        kept = [rng.choice(right)]
        others = [each for each in one.candidates if each is not kept[0]]
    most = config.candidates_a_question - len(kept)
    return one._replace(candidates=[*kept, *rng.sample(others, min(len(others), most))])


class Judged(NamedTuple):
    """The candidates of a question, without those that have no answers."""

    features: Sequence[Features]  # of each, from `describe_tried`
    f1: Sequence[float]  # of the answers of each against the gold answers


def without_asker(question: Judged) -> Judged:
    """Leave out the features of a question's candidates that only an asker gives."""
    return question._replace(
        features=[
            {name: value for name, value in each.items() if name != ASKED_LEAD}
            for each in question.features
        ]
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

    candidates = [pair for question in questions for pair in zip(*question, strict=True)]
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
