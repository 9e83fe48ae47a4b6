"""Fine-tune a causal language model, with LoRA or as a whole, to write CRPs.

A plain loop: completion-only loss, AdamW, cosine schedule with warm-up, bf16 where it is fast. A
resumed run continues exactly as if it had never stopped. The weights of the best validation are
kept, and the run stops early when validations no longer improve. Training by reward
(`kbqa.training.grpo`) is a run of the same kind with other steps.

Source: RouterKGQA §3.2 "Specialized Model Training" and Table 9.
"""

import hashlib
import json
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kbqa.engine.writing.checkpoint import (
    adapter_sha256,
    fastest_precision,
    require_lm_extra,
)
from kbqa.engine.writing.generate import CHATML, PLAIN, PromptFormat
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.sparql.errors import TrainingError
from kbqa.training.batches import TargetLoss, Validation, Validator, collate, encode, epoch_steps
from kbqa.training.config import TrainingConfig
from kbqa.training.data.training_set import Split
from kbqa.training.run import BestState, Processes, RunFolder, TrainingCheckpoint
from kbqa.training.trained_model import TrainedModel, load_trained_model

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
"""Of the settings that identify a run."""

_REPORT_STEPS = 10

_Found = TypeVar("_Found", Validation, float)


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
        """Reserve the folder, take the steps that are left, and publish the best weights."""
        is_main = self.processes.is_main
        with self.folder.claimed(settings) if is_main else nullcontext():
            self.resume()
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
        """Set the learning rate of the next step."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, self.step, self.steps)

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

    def resume(self) -> None:
        """Go on from the last checkpoint, if there is one."""
        is_main = self.processes.is_main
        state = self.processes.from_main(self.folder.last_checkpoint() if is_main else None)
        if is_main:
            self.folder.cut_log(-1 if state is None else state["step"])
        if state is not None:
            self.take_over(state)
            logger.info("resuming %s at step %d of %d", self.folder.path, self.step, self.steps)

    def take_over(self, state: TrainingCheckpoint) -> None:
        """Set what `state` returned."""
        self.model.set_weights(state["adapter"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.started -= state.get("seconds", 0.0)


def learning_rate(config: TrainingConfig, step: int, steps: int) -> float:
    """Return the learning rate of a step: a linear warm-up, then half a cosine."""
    warmup = max(1, round(config.warmup * steps))
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    final = config.final_rate
    return config.learning_rate * (final + (1 - final) / 2 * (1 + math.cos(math.pi * done)))


def train_adapter(
    split: Split,
    output: Path,
    config: TrainingConfig,
    report: Callable[[TrainingProgress], None] = lambda progress: None,
) -> TrainingResult:
    """Train an adapter or a model, or resume an interrupted run in the same folder.

    Processes started by a launcher train together; only the main process writes and reports.

    Args:
        split: The examples.
        output: Folder of the run, for checkpoints, the log and finally the adapter itself.
        config: The settings; to resume a run, they must be the same.
        report: Called every ten steps, at the end of each epoch and after each validation.

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
        run = _GoldRun(split, folder, config, processes, device, report)
        run.complete(settings)
    return run.result()


class _GoldRun(ModelRun[Validation]):
    """A run on gold paths."""

    def __init__(
        self,
        split: Split,
        folder: RunFolder,
        config: TrainingConfig,
        processes: Processes,
        device: "torch.device",
        report: Callable[[TrainingProgress], None],
    ) -> None:
        import torch

        started = time.monotonic()
        torch.manual_seed(config.seed)  # every process starts with the same weights
        model = load_trained_model(config, device)
        model.causal.train()
        tokenizer = model.tokenizer
        prompt = _prompt_format(tokenizer, config)
        self.train, self.too_long = encode(split.train, tokenizer, prompt, config.max_length)
        if not self.train:
            raise TrainingError(
                f"there are no examples to train on: {len(self.too_long):,} are longer than "
                f"{config.max_length} tokens (--max-length); other rows were left out before"
            )
        valid = encode(split.valid, tokenizer, prompt, config.max_length).kept
        self.validator = Validator(split.valid, valid, tokenizer, prompt, config)
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
        value = self.processes.total(value, self.device)
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
        self.model.causal.eval()
        found = self.validator.validate(self.loss, self.processes)
        self.model.causal.train()
        if found is not None and self.note(found, self.step):
            self.keep()
        return found

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
        randoms = self.processes.gather(_random_states(self.device))
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
        super().take_over(state)
        randoms = state["randoms"] if "randoms" in state else [[state["random"]]]
        if self.processes.rank < len(randoms):  # false if more processes resume than before
            _set_random_states(randoms[self.processes.rank], self.device)
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


def _random_states(device: "torch.device") -> "list[Tensor]":
    """Return the states of the random generators that dropout uses."""
    import torch

    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_gpu]


def _set_random_states(states: "Sequence[Tensor]", device: "torch.device") -> None:
    import torch

    torch.set_rng_state(states[0])
    if device.type == "cuda" and len(states) > 1:
        torch.cuda.set_rng_state(states[1], device)


def _prompt_format(tokenizer: "PreTrainedTokenizerBase", config: TrainingConfig) -> PromptFormat:
    form = CHATML if "<|im_start|>" in tokenizer.get_vocab() else PLAIN
    return replace(form, crp_format=config.crp_format, relations=config.suggested_relations)
