"""The steps of training by reward: draw paths, run them, and make the better ones likelier.

Nothing is drawn from the random generators of the process: what decides a draw is the seed, the
step, the question and the text so far. So a run that is resumed goes on exactly as if it had never
stopped, on the same machine.

TRL's GRPO trainer does not fit: what the graph allows at each step has to enter the probabilities
that are trained, and TRL takes them over the whole vocabulary.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.constraints.decoding import Decoding
from kbqa.sparql.errors import TrainingError
from kbqa.training.writer.config import TrainingConfig
from kbqa.training.writer.grpo.config import GrpoConfig
from kbqa.training.writer.grpo.objective import JudgedGroup, Objective, Text, texts_to_learn
from kbqa.training.writer.grpo.policy import DrawnGroup, WriterPolicy
from kbqa.training.writer.grpo.reward import RewardFunction
from kbqa.training.writer.loop import learning_rate
from kbqa.training.writer.report.training_log import RewardProgress, read_reward_log
from kbqa.training.writer.run_folder import RewardResult, RunFolder

if TYPE_CHECKING:
    import torch
    from torch import Tensor

logger = logging.getLogger(__name__)

_MAX_GRADIENT = 1.0
_HANDED = "rollouts"  # folder of the adapters that a server draws with


class RewardSplit(NamedTuple):
    """Questions to train on, and held-out questions that choose the best weights."""

    train: tuple[Question, ...]
    valid: tuple[Question, ...]


class _Learnt(NamedTuple):
    """What the updates of a step came to, over all choices: see `objective.Loss`."""

    kl: float
    clipped: float


class RewardLoop:
    """The state of a run and its steps: `resume`, `run`, `finish`, then `result`."""

    def __init__(
        self,
        split: RewardSplit,
        folder: RunFolder,
        config: TrainingConfig,
        grpo: GrpoConfig,
        decoding: Decoding,
        reward: RewardFunction,
        device: "torch.device",
        report: Callable[[RewardProgress], None],
    ) -> None:
        import torch

        self.started = time.monotonic()
        self.folder, self.config, self.grpo, self.report = folder, config, grpo, report
        self.policy = WriterPolicy.load(config, grpo, decoding, device, folder.path / _HANDED)
        self.model = self.policy.model
        self.objective = Objective(self.policy.logits, device, grpo)
        self.reward = reward
        self.train = sorted(split.train, key=lambda question: question.id)
        if not self.train:
            raise TrainingError("there are no questions to train on: all were left out before")
        self.valid = _sample(split.valid, config)
        self.parameters = list(self.model.parameters().values())
        self.start_weights = [one.detach().clone() for one in self.parameters]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=config.learning_rate, weight_decay=0.0
        )
        self.steps_per_epoch = -(-len(self.train) // grpo.questions)
        self.steps = self.steps_per_epoch * config.epochs
        self.step = 0
        self.validated: dict[int, float] = {}
        """The F1 of each validation so far, by its step."""

    @property
    def best_step(self) -> int:
        """The step of the best validation so far; the last step if nothing is held out."""
        return max(self.validated, key=lambda at: (self.validated[at], -at), default=self.step)

    @property
    def stops_early(self) -> bool:
        """Whether validations have not improved for `patience` times."""
        stale = sum(at > self.best_step for at in self.validated)
        return 0 < self.config.patience <= stale

    def run(self) -> None:
        """Validate the start, and take the remaining steps."""
        if self.step == 0 and self.valid and not self.validated:
            self._log((), None, self._validate())
        while self.step < self.steps and not self.stops_early:
            drawn = self.policy.draw(self._questions(), f"{self.config.seed} {self.step}")
            groups = [self._judge(group) for group in drawn]
            texts = texts_to_learn(groups)
            learnt = self._learn(texts) if texts else None
            self.step += 1
            is_last = self.step == self.steps
            every = self.config.validate_every or self.steps_per_epoch
            validates = self.valid and (is_last or self.step % every == 0)
            self._log(groups, learnt, self._validate() if validates else None)
            if validates or is_last or self.step % self.config.checkpoint_steps == 0:
                self._save_checkpoint()

    def _questions(self) -> list[Question]:
        """Return the questions of the next step."""
        epoch, position = divmod(self.step, self.steps_per_epoch)
        order = list(self.train)
        random.Random(self.config.seed + epoch).shuffle(order)
        return order[position * self.grpo.questions :][: self.grpo.questions]

    def _judge(self, group: DrawnGroup) -> JudgedGroup:
        candidates = [sample.candidate for sample in group.samples]
        rewarded = self.reward.reward(group.question, candidates)
        return JudgedGroup(group, tuple(each.reward for each in rewarded))

    def _learn(self, texts: Sequence[Text]) -> _Learnt:
        """Update the weights a few times, and return the means of the last time."""
        import torch

        ordered = sorted(texts, key=lambda text: len(text.ids))
        size = self.config.batch_size
        batches = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        with torch.no_grad(), self._at_start():
            reference = [self.objective.logprobs(batch) for batch in batches]
        old: list[Tensor | None] = [None] * len(batches)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, self.step, self.steps)
        for number in range(self.grpo.passes):
            losses = []
            for batch, before, at_start in zip(batches, old, reference, strict=True):
                losses.append(self.objective.loss(batch, before, at_start))
                losses[-1].loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, _MAX_GRADIENT)
            if not torch.isfinite(norm):
                raise TrainingError(
                    f"the gradient is not a number at step {self.step + 1}. Start again in another "
                    f"--output with a --learning-rate below {self.config.learning_rate:g}."
                )
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if number == 0:
                old = [each.logprobs for each in losses]
        return _Learnt(sum(each.kl for each in losses), sum(each.clipped for each in losses))

    @contextmanager
    def _at_start(self) -> Iterator[None]:
        """Give the model the weights of the start inside the block."""
        trained = [one.data for one in self.parameters]
        for parameter, weights in zip(self.parameters, self.start_weights, strict=True):
            parameter.data = weights
        try:
            yield
        finally:
            for parameter, weights in zip(self.parameters, trained, strict=True):
                parameter.data = weights

    def _validate(self) -> float:
        """Compute the mean F1 of the best paths for the held-out questions; keep the best model."""
        written = self.policy.write(self.valid)
        f1 = fmean(
            self.reward.reward(question, [candidate])[0].f1
            for question, candidate in zip(self.valid, written, strict=True)
        )
        is_better = all(f1 > before for before in self.validated.values())
        self.validated[self.step] = f1
        if is_better:
            self._keep()
        return f1

    def _keep(self) -> None:
        def write(directory: Path) -> None:
            self.model.save(directory)
            self.policy.prompt.save(directory)

        self.folder.keep_best(write)

    def _log(
        self, groups: Sequence[JudgedGroup], learnt: _Learnt | None, valid_f1: float | None
    ) -> None:
        progress = RewardProgress(
            step=self.step,
            steps=self.steps,
            epoch=self.step / self.steps_per_epoch,
            reward=fmean(each.mean_reward for each in groups) if groups else None,
            spread=fmean(each.advantages is not None for each in groups) if groups else None,
            kl=learnt and learnt.kl,
            clipped=learnt and learnt.clipped,
            valid_f1=valid_f1,
        )
        self.folder.log(progress._asdict())
        self.report(progress)

    def _save_checkpoint(self) -> None:
        self.folder.save_checkpoint(
            {
                "adapter": self.model.weights(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "seconds": time.monotonic() - self.started,
            }
        )

    def resume(self) -> None:
        """Load the last checkpoint, if there is one; the log knows the validations before it."""
        state = self.folder.last_checkpoint()
        self.folder.cut_log(-1 if state is None else state["step"])
        if state is None:
            return
        self.model.set_weights(state["adapter"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.validated = {
            row.step: row.valid_f1
            for row in read_reward_log(self.folder.path)
            if row.valid_f1 is not None
        }
        self.started -= state.get("seconds", 0.0)
        logger.info("resuming %s at step %d of %d", self.folder.path, self.step, self.steps)

    def finish(self) -> None:
        """Publish the best weights, or the last ones if nothing is held out."""
        if not self.validated:
            self._keep()
        self.folder.publish_best()
        self.policy.sampler.close()

    def result(self) -> RewardResult:
        """Return the result of the run."""
        return RewardResult(
            adapter=self.folder.path,
            steps=self.step,
            best_step=self.best_step,
            stopped_early=self.step < self.steps,
            train_questions=len(self.train),
            trainable_parameters=sum(one.numel() for one in self.parameters),
            base_revision=self.model.revision,
            start_f1=self.validated.get(0),
            valid_f1=self.validated.get(self.best_step),
            seconds=time.monotonic() - self.started,
        )


def _sample(questions: Sequence[Question], config: TrainingConfig) -> list[Question]:
    """Choose the held-out questions to ask, once for the whole run."""
    ordered = sorted(questions, key=lambda question: question.id)
    if config.valid_generate >= len(ordered):
        return ordered
    return random.Random(config.seed).sample(ordered, config.valid_generate)
