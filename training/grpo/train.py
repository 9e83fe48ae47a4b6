"""Train a writer by the reward of its paths, with group-relative policy optimisation (GRPO).

A step draws paths for some questions, runs them, and makes the better ones likelier. Nothing is
drawn from the random generators of the process: what decides a draw is the seed, the step, the
question and the text so far. So a run that is resumed goes on exactly as if it had never stopped,
on the same machine.

TRL's `GRPOTrainer` (1.16) does not fit. Its `rollout_func` may draw paths by any means, but the
probabilities that are trained, old, new and at the start, are its own, over the whole vocabulary:
what the graph allows at each step cannot enter them. A resumed run draws the step's paths again
with weights that have already learnt from them, and `datasets`, pandas and pyarrow come with it.

Source: Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), §4.1.
"""

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import click

from kbqa.engine.linking.linker import Linker
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.checkpoint import adapter_sha256, fastest_precision, require_lm_extra
from kbqa.engine.writing.generate import load_prompt_format
from kbqa.engine.writing.steering import CONSTRAINED_FORMS, Decoding
from kbqa.kb.commands.options import GraphChoice, print_json, print_note, print_result
from kbqa.sparql.errors import TrainingError
from kbqa.training.card import write_writer_reports
from kbqa.training.config import GrpoConfig, TrainingConfig
from kbqa.training.data.training_set import Split
from kbqa.training.grpo.policy import (
    DrawnGroup,
    Loss,
    Objective,
    Text,
    WriterPolicy,
    texts_to_learn,
)
from kbqa.training.grpo.questions import RewardFunction, find_questions
from kbqa.training.grpo.rollouts import check_rollouts
from kbqa.training.options import DataChoice, print_left_out
from kbqa.training.run import Processes, RunFolder, TrainingCheckpoint, read_log
from kbqa.training.writer import SCHEMA_VERSION, ModelRun, RewardResult

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_MAX_GRADIENT = 1.0
_HANDED = "rollouts"  # folder of the adapters that a server draws with


class RewardSplit(NamedTuple):
    """Questions to train on, and held-out questions that choose the best weights."""

    train: tuple[Question, ...]
    valid: tuple[Question, ...]


class RewardProgress(NamedTuple):
    """How far a run has come. The numbers of step 0 are those of the start."""

    step: int
    steps: int  # unless the run stops early
    epoch: float
    reward: float | None  # mean of the paths drawn in the step
    spread: float | None  # share of the questions whose paths differ in reward: only they teach
    kl: float | None  # estimate of the divergence from the start for each choice, in nats
    clipped: float | None  # share of the choices that the clip held back in the last update
    valid_f1: float | None  # of the best paths for held-out questions; None between validations


def check_processes() -> None:
    """Raise a `TrainingError` if a launcher has started several processes."""
    count = Processes.from_environment().count
    if count > 1:
        raise TrainingError(
            f"--stage grpo trains in one process, and {count} were started. Start it without "
            "torchrun."
        )


def train_by_reward(
    split: RewardSplit,
    output: Path,
    config: TrainingConfig,
    grpo: GrpoConfig,
    decoding: Decoding,
    reward: RewardFunction,
    report: Callable[[RewardProgress], None] = lambda progress: None,
) -> RewardResult:
    """Train an adapter further, or resume an interrupted run in the same folder.

    To resume a run, all settings must be the same. `report` is called after each step.

    Raises:
        ModelError: A model or an extra is missing, its texts cannot be constrained, or a server
            that draws paths failed.
        EndpointDown: Nothing answers at the graph's endpoint.
        TrainingError: The folder holds another run or another process writes to it, there is
            nothing to train on, or a gradient is not a number.
    """
    require_lm_extra()
    check_processes()
    device = Processes().device()
    questions = [asdict(question) for question in (*split.train, *split.valid)]
    settings = {
        "schema_version": SCHEMA_VERSION,
        "stage": "grpo",
        **asdict(config),
        **asdict(grpo),
        "rollouts": bool(grpo.rollouts),  # a resumed run may use another server
        "start_sha256": adapter_sha256(Path(config.start)),
        "precision": fastest_precision(device.type),
        "train_questions": len(split.train),
        "valid_questions": len(split.valid),
        "questions_sha256": hashlib.sha256(json.dumps(questions).encode()).hexdigest(),
    }
    folder = RunFolder(output)
    folder.check(settings)
    # The folder is made after this, so a model that cannot be loaded leaves nothing behind.
    run = _RewardRun(split, folder, config, grpo, decoding, reward, device, report)
    run.complete(settings)
    return run.result()


class _RewardRun(ModelRun[float]):
    """A run by reward; a validation is the mean F1 of the best paths for held-out questions."""

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
        started = time.monotonic()
        self.policy = WriterPolicy(config, grpo, decoding, device, folder.path / _HANDED)
        self.objective = Objective(self.policy.logits, device, grpo)
        self.grpo, self.reward, self.report = grpo, reward, report
        self.train = sorted(split.train, key=lambda question: question.id)
        if not self.train:
            raise TrainingError("there are no questions to train on: all were left out before")
        self.valid = _sample(split.valid, config)
        self.start_f1: float | None = None
        steps_per_epoch = -(-len(self.train) // grpo.questions)
        model, prompt = self.policy.model, self.policy.prompt
        super().__init__(folder, config, model, prompt, steps_per_epoch, Processes(), started)
        self.start_weights = [one.detach().clone() for one in self.parameters]

    def run(self) -> None:
        if self.step == 0 and self.valid:
            self.start_f1 = self.validate()
            self._log((), None, self.start_f1)
        while self.step < self.steps and not self.stops_early:
            drawn = self.policy.draw(self._questions(), f"{self.config.seed} {self.step}")
            groups = [self._rewarded(group) for group in drawn]
            texts = texts_to_learn(groups)
            learnt = self._learn(texts) if texts else None
            self.step += 1
            validates = bool(self.valid) and self.is_validated
            self._log(groups, learnt, self.validate() if validates else None)
            is_last = self.step == self.steps
            if validates or is_last or self.step % self.config.checkpoint_steps == 0:
                self.folder.save_checkpoint(self.state())
        self.policy.sampler.close()

    def _questions(self) -> list[Question]:
        """Return the questions of the next step."""
        epoch, position = divmod(self.step, self.steps_per_epoch)
        order = list(self.train)
        random.Random(self.config.seed + epoch).shuffle(order)
        return order[position * self.grpo.questions :][: self.grpo.questions]

    def _rewarded(self, group: DrawnGroup) -> DrawnGroup:
        rewarded = self.reward.reward(group.question, group.candidates)
        return group._replace(rewards=tuple(each.reward for each in rewarded))

    def _learn(self, texts: Sequence[Text]) -> list[Loss]:
        """Update the weights a few times, and return the losses of the last time."""
        import torch

        ordered = sorted(texts, key=lambda text: len(text.ids))
        size = self.config.batch_size
        batches = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        with torch.no_grad(), self._at_start():
            reference = [self.objective.logprobs(batch) for batch in batches]
        old: list[Tensor | None] = [None] * len(batches)
        losses: list[Loss] = []
        self.set_rate()
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
        return losses

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

    def validate(self) -> float | None:
        if not self.valid:
            return None
        written = self.policy.write(self.valid)
        f1 = fmean(
            self.reward.reward(question, [candidate])[0].f1
            for question, candidate in zip(self.valid, written, strict=True)
        )
        if self.note(f1, self.step):
            self.keep()
        return f1

    def is_better(self, found: float, best: float) -> bool:
        return found > best

    def _log(
        self,
        groups: Sequence[DrawnGroup],
        learnt: Sequence[Loss] | None,
        valid_f1: float | None,
    ) -> None:
        progress = RewardProgress(
            step=self.step,
            steps=self.steps,
            epoch=self.step / self.steps_per_epoch,
            reward=fmean(each.mean_reward for each in groups) if groups else None,
            spread=fmean(each.advantages is not None for each in groups) if groups else None,
            kl=sum(each.kl for each in learnt) if learnt else None,
            clipped=sum(each.clipped for each in learnt) if learnt else None,
            valid_f1=valid_f1,
        )
        self.folder.log(progress._asdict())
        self.report(progress)

    def take_over(self, state: TrainingCheckpoint) -> None:
        """Set what `state` returned; the log knows the validations before it."""
        super().take_over(state)
        for row in read_log(self.folder.path):
            if row["valid_f1"] is not None:
                self.note(row["valid_f1"], row["step"])
                if row["step"] == 0:
                    self.start_f1 = row["valid_f1"]

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
            start_f1=self.start_f1,
            valid_f1=self.best,
            seconds=time.monotonic() - self.started,
        )


def _sample(questions: Sequence[Question], config: TrainingConfig) -> list[Question]:
    """Choose the held-out questions to ask, once for the whole run."""
    ordered = sorted(questions, key=lambda question: question.id)
    if config.valid_generate >= len(ordered):
        return ordered
    return random.Random(config.seed).sample(ordered, config.valid_generate)


def train_on_graph(
    data: DataChoice,
    output: Path,
    config: TrainingConfig,
    grpo: GrpoConfig,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Do what `kbqa train-crp --stage grpo` does: from question sets and a graph to an adapter."""
    check_processes()
    written = load_prompt_format(Path(config.start)).crp_format
    form = next((each for each in CONSTRAINED_FORMS if each == written), None)
    if form is None:
        raise click.UsageError(
            f"--start {config.start}: it writes paths in the form {written!r}, which cannot be "
            "constrained. Start from an adapter that was trained with another --format."
        )
    if grpo.rollouts:
        check_rollouts(grpo.rollouts, config)  # now, not after minutes of looking up questions
    config = replace(config, crp_format=form)
    data = replace(data, demo_questions=0)  # the demo graph is another graph
    with closing(graph.open()) as opened, closing(opened.names(graph.timeout_s)) as names:
        gathered = data.load(form, opened)
        # Split before the graph is asked, so that what supervised training held out is held out.
        split = data.split(gathered)
        questions = find_questions(
            gathered.examples,
            data.files,
            opened,
            form,
            graph.timeout_s,
            gathered,
            _print_looked_up,
        )
        split = Split(*(tuple(e for e in part if e.key in questions) for part in split))
        split = data.weigh(split, gathered)
        train, valid = ({e.key for e in part} for part in (split.train, split.valid))
        print_note(f"{len(train):,} questions to train on, {len(valid):,} held out")
        print_left_out(gathered)
        reward = RewardFunction(opened, names, Linker(opened, names), graph.timeout_s, grpo)
        result = train_by_reward(
            RewardSplit(
                *(tuple(questions[e.key] for e in part) for part in (split.train, split.valid))
            ),
            output,
            config,
            grpo,
            Decoding("graph", opened),
            reward,
            _print_progress,
        )
        settings = {**asdict(grpo), "graph": opened.identity().settings}
    write_writer_reports(output, config, gathered, split, result, settings)
    if as_json:
        print_json({**result._asdict(), "adapter": str(result.adapter)})
        return
    if result.valid_f1 is not None and result.start_f1 is not None:
        print_note(f"F1 held out: {result.start_f1:.3f} → {result.valid_f1:.3f}")
    print_result(f"adapter in {result.adapter}: ask with `kbqa ask --adapter {result.adapter}`")


def _print_looked_up(done: int) -> None:
    print_note(f"{done:,} questions looked up")


def _print_progress(progress: RewardProgress) -> None:
    shares = {
        "reward": progress.reward,
        "with spread": progress.spread,
        "clipped": progress.clipped,
        "KL": progress.kl,
        "F1 held out": progress.valid_f1,
    }
    shown = "".join(f"  {name} {n:.3f}" for name, n in shares.items() if n is not None)
    print_note(f"step {progress.step:,}/{progress.steps:,}{shown}")
