"""Fine-tune a causal language model, with LoRA or as a whole, to write CRPs.

A plain loop: completion-only loss, AdamW, cosine schedule with warm-up, bf16 where it is fast. The
batches are of examples of similar length, the same every time. A resumed run continues exactly as
if it had never stopped. The weights of the best validation are kept, and the run stops early when
validations no longer improve. Training by reward (`kbqa.training.grpo`) is a run of the same kind
with other steps.

A validation measures the share of held-out questions whose main path is written exactly by greedy
decoding. The rest of an answer depends on it, and it often still improves while the loss already
rises. The questions are a sample, chosen once by the seed. Entities are not compared, because
linking corrects them.

Source: RouterKGQA §3.2 "Specialized Model Training" and Table 9.
"""

import hashlib
import json
import logging
import math
import random
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kbqa.engine.writing.beam_search import beam_search
from kbqa.engine.writing.checkpoint import (
    adapter_sha256,
    fastest_precision,
    mixed_precision,
    require_lm_extra,
)
from kbqa.engine.writing.generate import (
    MAX_NEW_TOKENS,
    PROMPT_FILE,
    PromptFormat,
    load_prompt_format,
    prompt_template,
)
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.sparql.crp import Step
from kbqa.sparql.errors import CrpSyntaxError, TrainingError
from kbqa.sparql.forms import read_crp
from kbqa.training.config import DEFAULT_TEMPLATE, TrainingConfig
from kbqa.training.data.training_set import Example, Split
from kbqa.training.run import BestState, Processes, RunFolder, TrainingCheckpoint
from kbqa.training.trained_model import TrainedModel, load_trained_model

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1  # of the settings that identify a run
IGNORED = -100  # the label that torch's cross entropy ignores
_BUCKET_BATCHES = 50
_REPORT_STEPS = 10
_QUESTIONS_A_BATCH = 32


class TrainingProgress(NamedTuple):
    """How far a run has come. Losses are means per target token, natural log.

    What is validated is None between validations, or if nothing is held out.
    """

    step: int
    steps: int  # unless the run stops early
    epoch: float
    loss: float  # since the last report
    valid_loss: float | None
    valid_main_path: float | None = None  # share of main paths written exactly


class TrainingResult(NamedTuple):
    """The result of a run."""

    adapter: Path  # the folder of the adapter, in PEFT layout, or of the whole model
    steps: int
    best_step: int  # the step whose weights are written
    stopped_early: bool
    train_examples: int  # without those that are too long
    too_long: tuple[str, ...]  # set and id of each
    trained_tokens: int  # of prompts and targets in all steps, without padding
    trainable_parameters: int
    base_revision: str | None  # the commit, or the SHA-256 of the weights
    valid_loss: float | None  # of the written weights
    valid_main_path: float | None
    seconds: float  # with those of the processes that this one resumed


class RewardResult(NamedTuple):
    """The result of a run by reward."""

    adapter: Path  # its folder, in PEFT layout
    steps: int
    best_step: int  # the step whose weights are written; 0 if none were better than the start
    stopped_early: bool
    train_questions: int
    trainable_parameters: int
    base_revision: str | None  # the commit, or the SHA-256 of the weights
    start_f1: float | None  # mean F1 of the start on the held-out questions
    valid_f1: float | None  # the same of the written weights
    seconds: float  # with those of the processes that this one resumed


class Encoded(NamedTuple):
    """Token ids of prompt and target, and the length of the prompt."""

    ids: tuple[int, ...]
    prompt_length: int

    @property
    def target_length(self) -> int:
        """Count the tokens that carry loss."""
        return len(self.ids) - self.prompt_length


class Encoding(NamedTuple):
    """Examples as tokens, and the set and id of examples that are too long."""

    kept: list[Encoded]
    too_long: list[str]


class Batch(NamedTuple):
    """Right-padded tensors, each of shape (examples, tokens)."""

    input_ids: "Tensor"
    attention_mask: "Tensor"
    labels: "Tensor"


def encode(
    examples: Sequence[Example],
    tokenizer: "PreTrainedTokenizerBase",
    prompt: PromptFormat,
    max_length: int,
) -> Encoding:
    """Tokenise examples; those longer than `max_length` tokens are left out, never cut."""
    encoding = Encoding([], [])
    for example in examples:
        text = prompt.render(example.question, example.relations)
        prompt_ids = tokenizer.encode(text, add_special_tokens=False)
        target_ids = tokenizer.encode(example.target, add_special_tokens=False)
        ids = (*prompt_ids, *target_ids, tokenizer.eos_token_id)
        if len(ids) <= max_length:
            encoding.kept.append(Encoded(ids, len(prompt_ids)))
        else:
            encoding.too_long.append(f"{example.source} {example.id}")
    return encoding


def epoch_steps(
    encoded: Sequence[Encoded], batch_size: int, accumulate: int, seed: int
) -> list[list[list[int]]]:
    """Choose the batches of each step of one epoch; the last step may have fewer."""
    batches = epoch_order(encoded, batch_size, seed)
    return [batches[at : at + accumulate] for at in range(0, len(batches), accumulate)]


def epoch_order(encoded: Sequence[Encoded], batch_size: int, seed: int) -> list[list[int]]:
    """Choose the batches of one epoch, as indices: shuffled, then sorted by length in buckets.

    The seed decides everything; give each epoch its own.
    """
    rng = random.Random(seed)
    order = list(range(len(encoded)))
    rng.shuffle(order)
    size = batch_size * _BUCKET_BATCHES
    batches = []
    for start in range(0, len(order), size):
        bucket = sorted(order[start : start + size], key=lambda index: len(encoded[index].ids))
        batches += [bucket[at : at + batch_size] for at in range(0, len(bucket), batch_size)]
    rng.shuffle(batches)
    return batches


def collate(examples: Sequence[Encoded], pad_id: int) -> Batch:
    """Pad examples to one length."""
    import torch

    width = max(len(example.ids) for example in examples)
    shape = (len(examples), width)
    input_ids = torch.full(shape, pad_id)
    mask = torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, IGNORED)
    for row, (ids, prompt_length) in enumerate(examples):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        mask[row, : len(ids)] = 1
        labels[row, prompt_length : len(ids)] = torch.tensor(ids[prompt_length:])
    return Batch(input_ids, mask, labels)


def in_batches(encoded: Sequence[Encoded], batch_size: int, pad_id: int) -> Iterator[Batch]:
    """Yield all examples once, in order of length."""
    ordered = sorted(encoded, key=lambda example: len(example.ids))
    for start in range(0, len(ordered), batch_size):
        yield collate(ordered[start : start + batch_size], pad_id)


@dataclass(frozen=True, slots=True)
class TargetLoss:
    """Computes the loss of batches."""

    logits: NextTokenLogits
    device: "torch.device"

    def __call__(self, batch: Batch) -> "Tensor":
        """Sum the negative log-likelihood, natural log, of a batch's target tokens."""
        import torch

        labels = batch.labels.to(self.device)
        wanted = torch.zeros_like(labels, dtype=torch.bool)
        wanted[:, :-1] = labels[:, 1:] != IGNORED
        with mixed_precision(self.device):
            logits = self.logits(
                wanted,
                input_ids=batch.input_ids.to(self.device),
                attention_mask=batch.attention_mask.to(self.device),
            )
        targets = labels[:, 1:][wanted[:, :-1]]
        return torch.nn.functional.cross_entropy(logits, targets, reduction="sum")


class Validation(NamedTuple):
    """The result of a validation."""

    loss: float  # mean per target token of all held-out examples, natural log
    main_path: float | None  # share of the questions asked whose main path is right

    def is_better_than(self, other: "Validation") -> bool:
        """Compare the main paths, or the losses if these are equal."""
        if self.main_path is not None and self.main_path != other.main_path:
            return other.main_path is None or self.main_path > other.main_path
        return self.loss < other.loss


_Found = TypeVar("_Found", Validation, float)


class ModelRun(ABC, Generic[_Found]):
    """A run that trains a writer: its state, which survives a kill, and its best weights.

    It has `started` before its model was loaded, as `time.monotonic` counts.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: TrainingConfig,
        model: TrainedModel,
        prompt: PromptFormat,
        steps_per_epoch: int,
        processes: Processes,
        started: float,
    ) -> None:
        import torch

        self.folder, self.config, self.model, self.prompt = folder, config, model, prompt
        self.processes, self.started = processes, started
        self.parameters = list(model.parameters().values())
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=config.learning_rate, weight_decay=0.0
        )
        self.steps_per_epoch = steps_per_epoch
        self.steps = steps_per_epoch * config.epochs
        self.step = 0
        self.best: _Found | None = None
        self.best_step = 0
        self.stale = 0  # validations since the best one

    def complete(self, settings: Mapping[str, object]) -> None:
        """Reserve the folder, resume a run, take the steps left, and publish the best weights."""
        is_main = self.processes.is_main
        with self.folder.claimed(settings) if is_main else nullcontext():
            state = self.processes.from_main(self.folder.last_checkpoint() if is_main else None)
            if is_main:
                self.folder.cut_log(-1 if state is None else state["step"])
            if state is not None:
                self.take_over(state)
                logger.info("resuming %s at step %d of %d", self.folder.path, self.step, self.steps)
            self.run()
            if self.best is None and self.validate() is None:  # nothing is held out
                self.best_step = self.step
                self.keep()
            if is_main:
                self.folder.publish_best()

    @abstractmethod
    def run(self) -> None:
        """Take the remaining steps."""

    @abstractmethod
    def validate(self) -> _Found | None:
        """Validate the model, and keep it if it is the best so far; None if nothing is held out."""

    @abstractmethod
    def is_better(self, found: _Found, best: _Found) -> bool:
        """Return whether a validation is better than the best before."""

    @property
    def stops_early(self) -> bool:
        """Whether validations have not improved for `patience` times."""
        return 0 < self.config.patience <= self.stale

    @property
    def is_validated(self) -> bool:
        """Whether a validation is due after this step."""
        every = self.config.validate_every or self.steps_per_epoch
        return self.step % every == 0 or self.step == self.steps

    def set_rate(self) -> None:
        """Set the learning rate of the next step: a linear warm-up, then half a cosine."""
        config = self.config
        warmup = max(1, round(config.warmup * self.steps))
        if self.step < warmup:
            rate = config.learning_rate * (self.step + 1) / warmup
        else:
            done, final = (self.step - warmup) / max(1, self.steps - warmup), config.final_rate
            share = final + (1 - final) / 2 * (1 + math.cos(math.pi * done))
            rate = config.learning_rate * share
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def note(self, found: _Found, step: int) -> bool:
        """Count a validation after a step; return whether it is the best so far."""
        self.stale += 1
        if self.best is not None and not self.is_better(found, self.best):
            return False
        self.best, self.best_step, self.stale = found, step, 0
        return True

    def keep(self) -> None:
        """Keep the weights as the best so far."""

        def write(directory: Path) -> None:
            self.model.save(directory)
            self.prompt.save(directory)

        if self.processes.is_main:
            self.folder.keep_best(write)

    def state(self) -> TrainingCheckpoint:
        """Return what the checkpoint of any run has."""
        return {
            "adapter": self.model.weights(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": time.monotonic() - self.started,
        }

    def take_over(self, state: TrainingCheckpoint) -> None:
        """Set what `state` returned."""
        self.model.set_weights(state["adapter"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.started -= state.get("seconds", 0.0)


def train_adapter(
    split: Split,
    output: Path,
    config: TrainingConfig,
    report: Callable[[TrainingProgress], None] = lambda progress: None,
) -> TrainingResult:
    """Train an adapter or a model, or resume an interrupted run with the same settings.

    Processes started by a launcher train together; only the main process writes and reports.
    `report` is called every ten steps, at the end of each epoch and after each validation.

    Raises:
        ModelError: The base model is missing or broken, or the `lm` extra is not installed.
        TrainingError: The folder holds another run or another process writes to it, no example is
            short enough, the loss is not a number, or there are more processes than batches in a
            step.
    """
    require_lm_extra()
    processes = Processes.from_environment()
    if processes.count > config.accumulate:
        raise TrainingError(
            f"{processes.count} processes cannot share the batches of a step: there are only "
            f"{config.accumulate}. Use --accumulate {processes.count} or a multiple of it."
        )
    device = processes.device()
    examples = [[one.question, one.target, *one.relations] for one in (*split.train, *split.valid)]
    settings = {
        "schema_version": SCHEMA_VERSION,
        **asdict(config),
        **({"start_sha256": adapter_sha256(Path(config.start))} if config.start else {}),
        "precision": fastest_precision(device.type),
        "train_examples": len(split.train),
        "valid_examples": len(split.valid),
        "examples_sha256": hashlib.sha256(json.dumps(examples).encode()).hexdigest(),
    }
    folder = RunFolder(output)
    with processes.joined(device):
        if processes.is_main:
            folder.check(settings)
        # The folder is made after this, so a model that cannot be loaded leaves nothing behind.
        run = _GoldRun(split, folder, config, processes, report)
        run.complete(settings)
    return run.result()


def _template(config: TrainingConfig, tokenizer: "PreTrainedTokenizerBase") -> str:
    """Return the whole prompt of a run."""
    start = Path(config.start)
    if config.start and config.template == DEFAULT_TEMPLATE and (start / PROMPT_FILE).exists():
        return load_prompt_format(start).template
    chat = tokenizer.chat_template
    chat_template = chat if isinstance(chat, str) else ""
    return prompt_template(tokenizer.get_vocab(), chat_template, config.template)


class _GoldRun(ModelRun[Validation]):
    """A run on gold paths."""

    def __init__(
        self,
        split: Split,
        folder: RunFolder,
        config: TrainingConfig,
        processes: Processes,
        report: Callable[[TrainingProgress], None],
    ) -> None:
        import torch

        started, device = time.monotonic(), processes.device()
        torch.manual_seed(config.seed)  # every process starts with the same weights
        model = load_trained_model(config, device)
        model.causal.train()
        tokenizer = model.tokenizer
        template = _template(config, tokenizer)
        prompt = PromptFormat(template, config.crp_format, config.suggested_relations)
        self.train, self.too_long = encode(split.train, tokenizer, prompt, config.max_length)
        if not self.train:
            raise TrainingError(
                f"there are no examples to train on: {len(self.too_long):,} are longer than "
                f"{config.max_length} tokens (--max-length); other rows were left out before"
            )
        self.valid = encode(split.valid, tokenizer, prompt, config.max_length).kept
        self.gold = defaultdict[str, set[tuple[Step, ...]]](set)  # main paths by question
        for example in split.valid:
            self.gold[example.question].add(read_crp(example.target).crp.path)
        asked = sorted(self.gold)
        if config.valid_generate < len(asked):
            asked = random.Random(config.seed).sample(asked, config.valid_generate)
        relations = {each.question: each.relations for each in split.valid}
        self.asked = {each: prompt.render(each, relations[each]) for each in asked}
        self.loss = TargetLoss(NextTokenLogits.of(model.causal), device)
        self.device, self.report = device, report
        self.losses: list[float] = []  # of the steps since the last report
        steps_per_epoch = math.ceil(len(self.train) / config.batch_size / config.accumulate)
        super().__init__(folder, config, model, prompt, steps_per_epoch, processes, started)
        if processes.rank:
            torch.manual_seed(config.seed + processes.rank)  # its own dropout

    def run(self) -> None:
        while self.step < self.steps and not self.stops_early:
            epoch, position = divmod(self.step, self.steps_per_epoch)
            for batches in self._epoch_steps(epoch)[position:]:
                self.losses.append(self._optimize(batches))
                self._watch()
                if self.stops_early:
                    return

    def _epoch_steps(self, epoch: int) -> list[list[list[int]]]:
        config = self.config
        return epoch_steps(self.train, config.batch_size, config.accumulate, config.seed + epoch)

    def _optimize(self, batches: Sequence[Sequence[int]]) -> float:
        """Take a step; the loss is the mean over all target tokens of its batches."""
        import torch

        self.set_rate()
        tokens = sum(self.train[index].target_length for batch in batches for index in batch)
        value = 0.0
        for indices in self.processes.share(batches):
            examples = [self.train[index] for index in indices]
            loss = self.loss(collate(examples, self.model.tokenizer.pad_token_id)) / tokens
            loss.backward()  # type: ignore[no-untyped-call]
            value += float(loss.detach())
        value = self.processes.total(value)
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss is not a number at step {self.step + 1}. Start again in another "
                f"--output with a --learning-rate below {self.config.learning_rate:g}."
            )
        self.processes.sum_gradients(self.parameters)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return value

    def _watch(self) -> None:
        """After a step, validate, log and save if it is time."""
        validates = self.is_validated
        found = self.validate() if validates else None
        ends = validates or self.step % self.steps_per_epoch == 0
        if ends or self.step % _REPORT_STEPS == 0:
            self._log(found)
        if ends or self.step % self.config.checkpoint_steps == 0:
            self._save_checkpoint()

    def validate(self) -> Validation | None:
        if not self.valid:
            return None
        self.model.causal.eval()
        right = self.processes.total(self._right())
        found = Validation(self._valid_loss(), right / len(self.asked) if self.asked else None)
        self.model.causal.train()
        if self.note(found, self.step):
            self.keep()
        return found

    def _valid_loss(self) -> float:
        import torch

        pad_id, total = self.model.tokenizer.pad_token_id, 0.0
        batches = list(in_batches(self.valid, self.config.batch_size, pad_id))
        with torch.no_grad():
            for batch in self.processes.share(batches):
                total += float(self.loss(batch))
        return self.processes.total(total) / sum(one.target_length for one in self.valid)

    def _right(self) -> int:
        """Count the questions in this process's share whose main path is written exactly."""
        questions = self.processes.share(sorted(self.asked, key=lambda q: (len(q), q)))
        right = 0
        for start in range(0, len(questions), _QUESTIONS_A_BATCH):
            asked = questions[start : start + _QUESTIONS_A_BATCH]
            for question, text in zip(asked, self._write(asked), strict=True):
                with suppress(CrpSyntaxError):
                    right += read_crp(text).crp.path in self.gold[question]
        return right

    def _write(self, questions: Sequence[str]) -> list[str]:
        tokenizer = self.model.tokenizer
        longest = max(one.target_length for one in self.valid)
        with mixed_precision(self.device):
            found = beam_search(
                self.loss.logits,
                [
                    tokenizer.encode(self.asked[each], add_special_tokens=False)
                    for each in questions
                ],
                n=1,
                end=tokenizer.eos_token_id,
                max_new_tokens=min(MAX_NEW_TOKENS, longest),
            )
        return [tokenizer.decode(texts[0].tokens) if texts else "" for texts in found]

    def is_better(self, found: Validation, best: Validation) -> bool:
        return found.is_better_than(best)

    def _log(self, found: Validation | None) -> None:
        progress = TrainingProgress(
            step=self.step,
            steps=self.steps,
            epoch=self.step / self.steps_per_epoch,
            loss=sum(self.losses) / len(self.losses),
            valid_loss=found and found.loss,
            valid_main_path=found and found.main_path,
        )
        self.losses = []
        if self.processes.is_main:
            self.folder.log(progress._asdict())
            self.report(progress)

    def _save_checkpoint(self) -> None:
        import torch

        random_states = [torch.get_rng_state()]  # of the generators that dropout uses
        if self.device.type == "cuda":
            random_states.append(torch.cuda.get_rng_state(self.device))
        randoms = self.processes.gather(random_states)
        if self.processes.is_main:
            best = self.best and BestState(
                step=self.best_step, loss=self.best.loss, main_path=self.best.main_path
            )
            self.folder.save_checkpoint(
                {
                    **self.state(),
                    "randoms": randoms,
                    "best": best,
                    "stale": self.stale,
                    "losses": self.losses,
                }
            )

    def take_over(self, state: TrainingCheckpoint) -> None:
        import torch

        super().take_over(state)
        randoms = state["randoms"] if "randoms" in state else [[state["random"]]]
        if self.processes.rank < len(randoms):  # false if more processes resume than before
            of_cpu, *of_gpu = randoms[self.processes.rank]
            torch.set_rng_state(of_cpu)
            if self.device.type == "cuda" and of_gpu:
                torch.cuda.set_rng_state(of_gpu[0], self.device)
        self.losses, self.stale = state.get("losses", []), state.get("stale", 0)
        best = state.get("best")
        if best is not None:
            self.best_step = best["step"]
            self.best = Validation(best["loss"], best["main_path"])

    def result(self) -> TrainingResult:
        """Return the result of the run."""
        return TrainingResult(
            adapter=self.folder.path,
            steps=self.step,
            best_step=self.best_step,
            stopped_early=self.step < self.steps,
            train_examples=len(self.train),
            too_long=tuple(self.too_long),
            trained_tokens=self._trained_tokens(),
            trainable_parameters=sum(p.numel() for p in self.parameters),
            base_revision=self.model.revision,
            valid_loss=self.best and self.best.loss,
            valid_main_path=self.best and self.best.main_path,
            seconds=time.monotonic() - self.started,
        )

    def _trained_tokens(self) -> int:
        whole, rest = divmod(self.step, self.steps_per_epoch)
        tokens = whole * sum(len(one.ids) for one in self.train)
        for batches in self._epoch_steps(whole)[:rest]:
            tokens += sum(len(self.train[index].ids) for batch in batches for index in batch)
        return tokens
