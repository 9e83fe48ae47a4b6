"""What `kbqa train-crp --stage grpo` does: from question sets and a graph to an adapter.

Train a writer by the reward of its paths, with group-relative policy optimisation (GRPO).

This is the entry point. It reserves the folder of the run; `kbqa.training.grpo.train` trains.

Source: Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), §4.1.

The steps of training by reward: draw paths, run them, and make the better ones likelier.

Nothing is drawn from the random generators of the process: what decides a draw is the seed, the
step, the question and the text so far. So a run that is resumed goes on exactly as if it had never
stopped, on the same machine.

TRL's GRPO trainer does not fit: what the graph allows at each step has to enter the probabilities
that are trained, and TRL takes them over the whole vocabulary.
"""

import hashlib
import json
import logging
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
from kbqa.engine.writing.checkpoint import (
    Precision,
    adapter_sha256,
    fastest_precision,
    require_lm_extra,
)
from kbqa.engine.writing.generate import load_prompt_format
from kbqa.engine.writing.steering import CONSTRAINED_FORMS, Decoding
from kbqa.kb.commands.options import GraphChoice, print_json, print_note, print_result
from kbqa.kb.names.search import open_names
from kbqa.sparql.errors import TrainingError
from kbqa.training.card import write_reward_manifest
from kbqa.training.config import GrpoConfig, TrainingConfig
from kbqa.training.data.training_set import Split
from kbqa.training.grpo.policy import (
    DrawnGroup,
    JudgedGroup,
    Objective,
    Text,
    WriterPolicy,
    texts_to_learn,
)
from kbqa.training.grpo.questions import GoldFinder, RewardFunction, find_questions
from kbqa.training.grpo.rollouts import check_rollouts
from kbqa.training.options import DataChoice, print_left_out, write_reports
from kbqa.training.run import Processes, RewardProgress, RewardResult, RunFolder, read_reward_log
from kbqa.training.writer import learning_rate

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


_SCHEMA_VERSION = 1


def check_processes() -> None:
    """Check that a launcher has started only this process.

    Raises:
        TrainingError: It has started several.
    """
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

    Args:
        split: The questions.
        output: Folder of the run, for checkpoints, the log and finally the adapter itself.
        config: The settings; `start` is the adapter to start from. To resume a run, these and
            those of `grpo` must be the same.
        grpo: The settings that only this training has.
        decoding: Constrains the paths, at level ``graph``.
        reward: Rewards the paths.
        report: Called after each step.

    Raises:
        InputError: ``KBQA_PRECISION`` names no precision.
        ModelError: The base model or the adapter is missing or broken, the adapter's texts cannot
            be constrained, a server that draws paths failed, or an extra is not installed.
        EndpointDown: Nothing answers at the graph's endpoint.
        TrainingError: The folder holds another run or another process writes to it, there is
            nothing to train on, a gradient is not a number, or a launcher started several
            processes.
    """
    require_lm_extra()
    check_processes()
    device = Processes().device()
    settings = _settings(config, grpo, split, fastest_precision(device.type))
    folder = RunFolder(output)
    folder.check(settings)
    loop = RewardLoop(split, folder, config, grpo, decoding, reward, device, report)
    # Only now, so that a model that cannot be loaded leaves nothing behind.
    with folder.claimed(settings):
        loop.resume()
        loop.run()
        loop.finish()
    return loop.result()


def _settings(
    config: TrainingConfig, grpo: GrpoConfig, split: RewardSplit, precision: Precision
) -> dict[str, object]:
    """Collect everything that identifies a run."""
    questions = [asdict(question) for question in (*split.train, *split.valid)]
    return {
        "schema_version": _SCHEMA_VERSION,
        "stage": "grpo",
        **asdict(config),
        **asdict(grpo),
        "rollouts": bool(grpo.rollouts),  # a resumed run may use another server
        "start_sha256": adapter_sha256(Path(config.start)),
        "precision": precision,
        "train_questions": len(split.train),
        "valid_questions": len(split.valid),
        "questions_sha256": hashlib.sha256(json.dumps(questions).encode()).hexdigest(),
    }


def train_on_graph(
    data: DataChoice,
    output: Path,
    config: TrainingConfig,
    grpo: GrpoConfig,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Train an adapter by reward and write its reports, or resume the run in the same folder."""
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
    with closing(graph.open()) as opened, closing(open_names(opened, graph.timeout_s)) as names:
        gathered = data.load(form, opened)
        # Split before the graph is asked, so that what supervised training held out is held out.
        split = data.split(gathered)
        decoding = Decoding("graph", opened)
        finder = GoldFinder(opened, decoding, form, graph.timeout_s)
        questions = find_questions(
            gathered.examples, data.files, finder, gathered, _print_looked_up
        )
        split = data.weigh(
            Split(*(tuple(e for e in part if e.key in questions) for part in split)),
            gathered,
        )
        _print_counts(split)
        print_left_out(gathered)
        reward = RewardFunction(opened, names, Linker(opened, names), graph.timeout_s, grpo)
        result = train_by_reward(
            RewardSplit(
                *(tuple(questions[e.key] for e in part) for part in (split.train, split.valid))
            ),
            output,
            config,
            grpo,
            decoding,
            reward,
            _print_progress,
        )
        settings = {**asdict(grpo), "graph": opened.identity().settings}
    write_reward_manifest(output, settings, config, gathered, split, result)
    write_reports(output, split, "grpo")
    _print_result(result, as_json)


def _print_looked_up(done: int) -> None:
    print_note(f"{done:,} questions looked up")


def _print_counts(split: Split) -> None:
    train, valid = (len({e.key for e in part}) for part in (split.train, split.valid))
    print_note(f"{train:,} questions to train on, {valid:,} held out")


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


def _print_result(result: RewardResult, as_json: bool) -> None:
    if as_json:
        print_json({**result._asdict(), "adapter": str(result.adapter)})
        return
    if result.valid_f1 is not None and result.start_f1 is not None:
        print_note(f"F1 held out: {result.start_f1:.3f} → {result.valid_f1:.3f}")
    print_result(f"adapter in {result.adapter}: ask with `kbqa ask --adapter {result.adapter}`")
