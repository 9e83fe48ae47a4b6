"""Train a writer by the reward of its paths, with group-relative policy optimisation (GRPO).

A step draws paths for some questions, runs them, and makes the better ones likelier. Each path of a
group is as good as its reward is above the group's mean. The probability of each of its choices is
raised or lowered accordingly, but not further than the clip allows, and a penalty keeps the model
near the one that it started from.

Only choices count. Where the graph allows one token alone, its probability is 1 whatever the model
says, so there is nothing to learn; where it allows several, probabilities are renormalised over
these. All three models (in training, at the time of the draw, at the start) are masked alike.

Nothing is drawn from the random generators of the process: what decides a draw is the seed, the
step, the question and the text so far. So a run that is resumed goes on exactly as if it had never
stopped, on the same machine.

TRL's `GRPOTrainer` (1.16) does not fit. Its `rollout_func` may draw paths by any means, but the
probabilities that are trained, old, new and at the start, are its own, over the whole vocabulary:
what the graph allows at each step cannot enter them. A resumed run draws the step's paths again
with weights that have already learnt from them, and `datasets`, pandas and pyarrow come with it.

Source: Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), §4.1, equations 3 and 4.
"""

import hashlib
import json
import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from kbqa.engine.linking.linker import Linker
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.retrieval.retriever import RelationSuggester
from kbqa.engine.writing.beam_search import beam_search
from kbqa.engine.writing.checkpoint import (
    adapter_sha256,
    fastest_precision,
    mixed_precision,
    require_lm_extra,
)
from kbqa.engine.writing.generate import MAX_NEW_TOKENS, Candidate, load_prompt_format, write_apart
from kbqa.engine.writing.grammar import Steps, start
from kbqa.engine.writing.steering import (
    CONSTRAINED_FORMS,
    Decoding,
    Pieces,
    SteeredText,
    walked_topics,
)
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.kb.commands.options import GraphChoice, print_json, print_note, print_result
from kbqa.sparql.errors import GraphError, TrainingError
from kbqa.training.card import write_writer_reports
from kbqa.training.config import GrpoConfig, TrainingConfig
from kbqa.training.data.training_set import Split
from kbqa.training.grpo.drawing import (
    Drawn,
    DrawRequest,
    RolloutServer,
    Sampling,
    ServerSampler,
    TokenChoice,
    check_rollouts,
    draw_texts,
)
from kbqa.training.grpo.questions import RewardFunction, find_questions
from kbqa.training.options import DataChoice, print_left_out
from kbqa.training.run import Processes, RunFolder, TrainingCheckpoint, read_log
from kbqa.training.trained_model import load_trained_model
from kbqa.training.writer import SCHEMA_VERSION, ModelRun, RewardResult

if TYPE_CHECKING:
    import torch
    from torch import Tensor


logger = logging.getLogger(__name__)

SPREAD_FLOOR = 0.1
"""Added to the standard deviation of a group's rewards. The paper divides by the deviation alone,
and so makes the little that paths lose for their length as important as right and wrong."""

_LEAST_SPREAD = 1e-6
_QUESTIONS_A_BATCH = 16
_MAX_GRADIENT = 1.0
_HANDED = "rollouts"  # folder of the adapters that a server draws with

_Written = TypeVar("_Written")


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


class DrawnGroup(NamedTuple):
    """The different paths that were drawn for a question, and, once they are run, their rewards."""

    question: Question
    prompt: tuple[int, ...]  # its tokens
    texts: tuple[Drawn, ...]  # how often they were drawn adds up to the group's size
    candidates: tuple[Candidate | None, ...]  # what can be run of each; None if it is not finished
    rewards: tuple[float, ...] = ()

    @property
    def mean_reward(self) -> float:
        """The mean over all that were drawn, repetitions included."""
        return _mean(self.rewards, [text.times for text in self.texts])

    @property
    def advantages(self) -> list[float] | None:
        """How much better each path is than the mean; None if all are equal."""
        return advantages(self.rewards, [text.times for text in self.texts])


class WriterPolicy:
    """The writer in training, constrained by the graph.

    Adapters are handed to a server that draws, if there is one, in the folder `handed`.
    """

    def __init__(
        self,
        config: TrainingConfig,
        grpo: GrpoConfig,
        decoding: Decoding,
        device: "torch.device",
        handed: Path,
    ) -> None:
        self.prompt = load_prompt_format(Path(config.start))
        decoding.check(self.prompt)
        self.model = load_trained_model(config, device)
        # Without dropout, which would make the old and the new probabilities of a choice differ.
        self.model.causal.eval()
        self.logits = NextTokenLogits.of(self.model.causal)
        self.decoding, self.pieces = decoding, Pieces(self.model.tokenizer)
        self._device = device
        self._end: int = self.model.tokenizer.eos_token_id
        self._sampling = Sampling(grpo.group, grpo.temperature, self._end, MAX_NEW_TOKENS)
        self.sampler: ServerSampler | None = None  # which draws instead of this process
        if grpo.rollouts:
            server, form = RolloutServer(grpo.rollouts), self.prompt.crp_format
            self.sampler = ServerSampler(server, self.model, form, config.lora_rank, handed)
        self._suggester = None
        if self.prompt.relations and decoding.graph is not None:
            self._suggester = RelationSuggester(decoding.graph, self.prompt.relations)

    def draw(self, questions: Sequence[Question], seed: str) -> list[DrawnGroup]:
        """Draw a group of paths for each question; without questions for which the graph fails.

        The seed, a question and the text so far decide the draws.
        """
        groups = _try(lambda some: self._draw(some, seed), questions)
        return [group for group in groups if group is not None]

    def write(self, questions: Sequence[Question]) -> list[Candidate | None]:
        """Write the path of each question that a greedy search finds; None if it finds none."""
        best: list[Candidate | None] = []
        for at in range(0, len(questions), _QUESTIONS_A_BATCH):
            best += _try(self._write, questions[at : at + _QUESTIONS_A_BATCH])
        return best

    def _draw(self, questions: Sequence[Question], seed: str) -> list[DrawnGroup]:
        prompts, steps = self._prompts(questions), self._steps(questions)
        asked = [
            DrawRequest(prompt, question.topics, self._start(walk), f"{seed} {question.id}")
            for question, prompt, walk in zip(questions, prompts, steps, strict=True)
        ]
        if self.sampler is not None:
            drawn = self.sampler.draw(asked, self._sampling)
        else:
            with mixed_precision(self._device):
                drawn = draw_texts(self.logits, asked, self._sampling)
        groups = []
        for question, prompt, texts, walk in zip(questions, prompts, drawn, steps, strict=True):
            candidates = (self._candidate(t.tokens, walk) if t.is_finished else None for t in texts)
            groups.append(DrawnGroup(question, tuple(prompt), tuple(texts), tuple(candidates)))
        return groups

    def _write(self, questions: Sequence[Question]) -> list[Candidate | None]:
        steps = self._steps(questions)
        with mixed_precision(self._device):
            found = beam_search(
                self.logits,
                self._prompts(questions),
                n=1,
                end=self._end,
                max_new_tokens=MAX_NEW_TOKENS,
                starts=[self._start(each) for each in steps],
            )
        return [
            self._candidate(texts[0].tokens, walk) if texts else None
            for texts, walk in zip(found, steps, strict=True)
        ]

    def _prompts(self, questions: Sequence[Question]) -> list[list[int]]:
        """Return the tokens of each question's prompt."""
        suggest = self._suggester.suggest if self._suggester else None
        texts = (
            self.prompt.render(each.text, suggest(each.text, each.topics) if suggest else ())
            for each in questions
        )
        return [self.model.tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def _steps(self, questions: Sequence[Question]) -> list[Steps | None]:
        form = self.prompt.crp_format
        return [self.decoding.steps(question.topics, form) for question in questions]

    def _start(self, steps: Steps | None) -> SteeredText:
        assert steps is not None  # which level `none` alone does not have
        return SteeredText.begin(self.pieces, start(steps))

    def _candidate(self, tokens: Sequence[int], steps: Steps | None) -> Candidate:
        text = self.model.tokenizer.decode(tokens, skip_special_tokens=True)
        return Candidate(text, 0.0, len(tokens), walked_topics(steps, text))


def _try(
    write: Callable[[Sequence[Question]], Sequence[_Written]], questions: Sequence[Question]
) -> list[_Written | None]:
    """Write for questions; None for those for which the graph fails."""
    kept: list[_Written | None] = []
    for question, written in zip(questions, write_apart(write, questions), strict=True):
        if isinstance(written, GraphError):
            logger.warning("nothing is written for %s: %s", question.id, written)
            kept.append(None)
        elif isinstance(written, Exception):
            raise written
        else:
            kept.append(written)
    return kept


def advantages(rewards: Sequence[float], counts: Sequence[int]) -> list[float] | None:
    """Compare the rewards of paths, each drawn so often, with their mean; None if all are equal.

    >>> [round(each, 2) for each in advantages([1.0, 0.0], [1, 3])]
    [1.41, -0.47]
    """
    mean = _mean(rewards, counts)
    spread = math.sqrt(_mean([(reward - mean) ** 2 for reward in rewards], counts))
    if spread < _LEAST_SPREAD:
        return None
    return [(reward - mean) / (spread + SPREAD_FLOOR) for reward in rewards]


def _mean(values: Sequence[float], counts: Sequence[int]) -> float:
    return sum(v * n for v, n in zip(values, counts, strict=True)) / sum(counts)


class Text(NamedTuple):
    """A path to learn from."""

    ids: tuple[int, ...]  # of prompt and path
    prompt_length: int
    choices: tuple[TokenChoice, ...]  # at least one
    advantage: float
    weight: float  # its share of the step: those of all texts of a step add up to 1


def texts_to_learn(groups: Iterable[DrawnGroup]) -> list[Text]:
    """Return the paths of the groups whose rewards differ, with their advantages."""
    kept = [(group, found) for group in groups if (found := group.advantages) is not None]
    texts = []
    for group, found in kept:
        total = sum(text.times for text in group.texts)
        for (tokens, choices, times, _), advantage in zip(group.texts, found, strict=True):
            if choices:
                ids, weight = (*group.prompt, *tokens), times / total / len(kept)
                texts.append(Text(ids, len(group.prompt), choices, advantage, weight))
    return texts


class Loss(NamedTuple):
    """The loss of some texts, and their shares of what a step logs."""

    loss: "Tensor"  # to be minimised
    logprobs: "Tensor"  # of the choices, without a gradient
    kl: float  # estimate of the divergence from the start for each choice, in nats
    clipped: float  # share of the choices that the clip holds back


@dataclass(frozen=True, slots=True)
class Objective:
    """Computes the loss of texts."""

    logits: NextTokenLogits
    device: "torch.device"
    config: GrpoConfig  # temperature, clip and the weight of the penalty

    def logprobs(self, texts: Sequence[Text]) -> "Tensor":
        """Compute the log-probabilities of the choices, text after text, natural log.

        They are those of the distribution that was drawn from: at its temperature, and renormalised
        over the tokens that were allowed.
        """
        import torch

        width = max(len(text.ids) for text in texts)
        ids = torch.zeros((len(texts), width), dtype=torch.long)
        mask, wanted = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for row, text in enumerate(texts):
            ids[row, : len(text.ids)] = torch.tensor(text.ids)
            mask[row, : len(text.ids)] = 1
            # A choice is made by the logits after the token before it.
            wanted[row, [text.prompt_length + choice.at - 1 for choice in text.choices]] = True
        with mixed_precision(self.device):
            logits = self.logits(
                wanted.to(self.device),
                input_ids=ids.to(self.device),
                attention_mask=mask.to(self.device),
            )
        allowed, is_allowed, chosen = (each.to(self.device) for each in _choices(texts))
        scores = logits.gather(1, allowed) / self.config.temperature
        scores = scores.masked_fill(~is_allowed, -torch.inf)
        return scores.log_softmax(-1).gather(1, chosen).squeeze(1)

    def loss(self, texts: Sequence[Text], old: "Tensor | None", reference: "Tensor") -> Loss:
        """Compute the loss of some texts of a step.

        `old` has the log-probabilities of their choices before the step, None for the present ones,
        and `reference` those by the model at the start.
        """
        import torch

        new = self.logprobs(texts)
        ratio = (new - (new.detach() if old is None else old)).exp()
        advantage = self._of_choices(texts, [text.advantage for text in texts])
        weight = self._of_choices(texts, [text.weight / len(text.choices) for text in texts])
        clip = self.config.clip
        gain = ratio * advantage
        held = ratio.clamp(1 - clip, 1 + clip) * advantage
        # k3, an estimate that is never negative: Schulman 2020, "Approximating KL divergence".
        kl = (reference - new).exp() - (reference - new) - 1
        objective = torch.minimum(gain, held) - self.config.kl * kl
        return Loss(
            loss=-(weight * objective).sum(),
            logprobs=new.detach(),
            kl=float((weight * kl).detach().sum()),
            clipped=float((weight * (held < gain)).detach().sum()),
        )

    def _of_choices(self, texts: Sequence[Text], values: Sequence[float]) -> "Tensor":
        """Repeat a value of each text for each of its choices."""
        import torch

        counts = torch.tensor([len(text.choices) for text in texts])
        return torch.tensor(values).repeat_interleave(counts).to(self.device)


def _choices(texts: Sequence[Text]) -> "tuple[Tensor, Tensor, Tensor]":
    """Return the tokens that each choice allows, where they are no padding, and which was chosen.

    Their shapes are (choices, most allowed), the same, and (choices, 1).
    """
    import torch

    choices = [
        (text.ids[text.prompt_length + choice.at], choice.allowed)
        for text in texts
        for choice in text.choices
    ]
    width = max(len(allowed) for _, allowed in choices)
    padded = torch.tensor([[*allowed, *[0] * (width - len(allowed))] for _, allowed in choices])
    sizes = torch.tensor([len(allowed) for _, allowed in choices])
    chosen = torch.tensor([[allowed.index(token)] for token, allowed in choices])
    return padded, torch.arange(width) < sizes[:, None], chosen


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
    """Train an adapter further, or resume a run with the same settings; report each step."""
    require_lm_extra()
    check_processes()
    questions = [asdict(question) for question in (*split.train, *split.valid)]
    settings = {
        "schema_version": SCHEMA_VERSION,
        "stage": "grpo",
        **asdict(config),
        **asdict(grpo),
        "rollouts": bool(grpo.rollouts),  # a resumed run may use another server
        "start_sha256": adapter_sha256(Path(config.start)),
        "precision": fastest_precision(Processes().device().type),
        "train_questions": len(split.train),
        "valid_questions": len(split.valid),
        "questions_sha256": hashlib.sha256(json.dumps(questions).encode()).hexdigest(),
    }
    folder = RunFolder(output)
    folder.check(settings)
    # The folder is made after this, so a model that cannot be loaded leaves nothing behind.
    run = _RewardRun(split, folder, config, grpo, decoding, reward, report)
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
        report: Callable[[RewardProgress], None],
    ) -> None:
        started, device = time.monotonic(), Processes().device()
        self.policy = WriterPolicy(config, grpo, decoding, device, folder.path / _HANDED)
        self.objective = Objective(self.policy.logits, device, grpo)
        self.grpo, self.reward, self.report = grpo, reward, report
        self.train = sorted(split.train, key=lambda question: question.id)
        if not self.train:
            raise TrainingError("there are no questions to train on: all were left out before")
        self.valid = sorted(split.valid, key=lambda question: question.id)
        if config.valid_generate < len(self.valid):  # chosen once for the whole run
            self.valid = random.Random(config.seed).sample(self.valid, config.valid_generate)
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
            epoch, position = divmod(self.step, self.steps_per_epoch)
            order = list(self.train)
            random.Random(self.config.seed + epoch).shuffle(order)
            questions = order[position * self.grpo.questions :][: self.grpo.questions]
            drawn = self.policy.draw(questions, f"{self.config.seed} {self.step}")
            groups = []
            for group in drawn:
                rewarded = self.reward.reward(group.question, group.candidates)
                groups.append(group._replace(rewards=tuple(each.reward for each in rewarded)))
            texts = texts_to_learn(groups)
            learnt = self._learn(texts) if texts else None
            self.step += 1
            validates = bool(self.valid) and self.is_validated
            self._log(groups, learnt, self.validate() if validates else None)
            is_last = self.step == self.steps
            if validates or is_last or self.step % self.config.checkpoint_steps == 0:
                self.folder.save_checkpoint(self.state())
        if self.policy.sampler is not None:
            self.policy.sampler.close()

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
        self, groups: Sequence[DrawnGroup], learnt: Sequence[Loss] | None, valid_f1: float | None
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
            lambda done: print_note(f"{done:,} questions looked up"),
        )
        split = Split(*(tuple(e for e in part if e.key in questions) for part in split))
        split = data.weigh(split, gathered)
        train, valid = ({e.key for e in part} for part in (split.train, split.valid))
        print_note(f"{len(train):,} questions to train on, {len(valid):,} held out")
        print_left_out(gathered)
        reward = RewardFunction(opened, names, Linker(opened, names), graph.timeout_s, grpo)
        result = train_by_reward(
            RewardSplit(*(tuple(questions[e.key] for e in part) for part in split[:2])),
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
