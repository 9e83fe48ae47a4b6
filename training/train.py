"""Fine-tune a causal language model with LoRA to write CRPs.

A plain loop: completion-only loss, AdamW, cosine schedule with warm-up, bf16 autocast where the
processor has it. A resumed run goes on exactly where the killed one stood. Logits are computed for
target tokens alone, which on a small model with a large vocabulary is most of the saving.

Source: RouterKGQA §3.2 "Specialized Model Training" and Table 9.
"""

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.models import require_lm_extra
from kbqa.engine.prompt import CHATML, PLAIN, PromptFormat
from kbqa.engine.transformers_generator import has_fast_bf16
from kbqa.sparql.errors import TrainingError
from kbqa.training.batches import IGNORED, Batch, Encoded, collate, encode, epoch_order, in_batches
from kbqa.training.data import Example, Split
from kbqa.training.lora import load_lora_model, write_adapter
from kbqa.training.run_folder import RunFolder

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_SCHEMA_VERSION = 1
_REPORT_STEPS = 10


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """All that decides the result of a training run, besides the examples.

    Attributes:
        base: Base model: a name that kbqa knows, a Hugging Face id, or a folder.
        epochs: Passes over the training examples.
        batch_size: Examples a step.
        learning_rate: The highest, reached at the end of the warm-up.
        warmup: Share of the steps in which the learning rate rises from 0.
        lora_rank: Rank of the update matrices.
        lora_alpha: Scale of the update, divided by the rank.
        lora_targets: Names of the linear layers that are adapted. By default all that write to
            the residual stream or attend: on a CPU the two wide MLP layers would cost as much
            time again as they are worth.
        max_length: Tokens of prompt and target together; longer examples are left out.
        seed: Decides initial weights and the order of examples.
        checkpoint_steps: Steps between checkpoints.
    """

    base: str
    epochs: int = 4
    batch_size: int = 8
    learning_rate: float = 7e-4
    warmup: float = 0.03
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")
    max_length: int = 320
    seed: int = 42
    checkpoint_steps: int = 200

    def __post_init__(self) -> None:
        counts = (self.epochs, self.batch_size, self.lora_rank, self.lora_alpha)
        if min(*counts, self.max_length, self.checkpoint_steps) < 1:
            raise ValueError("epochs, sizes and numbers of steps are at least 1")
        if self.learning_rate <= 0 or not 0 <= self.warmup <= 1:
            raise ValueError("the learning rate is positive, the warm-up a share of the steps")


class Progress(NamedTuple):
    """Where a run stands.

    Attributes:
        step: Steps done.
        steps: Steps in all.
        epoch: Epochs done, with fraction.
        loss: Mean loss per target token, natural log, since the last report.
        valid_loss: The same on the held-out examples; None but at the end of an epoch, and where
            no example is held out.
    """

    step: int
    steps: int
    epoch: float
    loss: float
    valid_loss: float | None


class TrainingResult(NamedTuple):
    """What a run made.

    Attributes:
        adapter: The folder of the adapter, in PEFT layout.
        steps: Steps in all.
        train_examples: Examples trained on, after those too long were left out.
        too_long: Examples left out for their length.
        trainable_parameters: Size of the adapter.
        valid_loss: Mean loss per target token on the held-out examples, natural log; None where no
            example is held out.
        seconds: Wall time, that of processes which this one resumed included.
    """

    adapter: Path
    steps: int
    train_examples: int
    too_long: int
    trainable_parameters: int
    valid_loss: float | None
    seconds: float


def train_adapter(
    split: Split,
    output: Path,
    config: TrainingConfig,
    report: Callable[[Progress], None] = lambda progress: None,
) -> TrainingResult:
    """Train an adapter, or go on with a run that was stopped in the same folder.

    Args:
        split: The examples.
        output: Folder of the run: checkpoints, log, and at the end the adapter itself.
        config: A run that is resumed must have the same.
        report: Called every ten steps and at the end of each epoch.

    Raises:
        ModelError: The base model is missing or broken, or the `lm` extra is not installed.
        TrainingError: The folder holds another run, there is no example of the allowed length, or
            the loss is no longer a number.
    """
    require_lm_extra()
    folder, settings = RunFolder(output), _settings(config, split)
    folder.check(settings)
    loop = _Loop(split, folder, config, report)
    # Only now, so that a model that cannot be loaded leaves nothing behind.
    folder.claim(settings)
    loop.resume()
    loop.run()
    loop.save_adapter()
    return loop.result()


def _settings(config: TrainingConfig, split: Split) -> dict[str, object]:
    """Collect what makes a run this one and no other."""
    examples = [[example.question, example.target] for example in (*split.train, *split.valid)]
    return {
        "schema_version": _SCHEMA_VERSION,
        **asdict(config),
        "train_examples": len(split.train),
        "valid_examples": len(split.valid),
        "examples_sha256": hashlib.sha256(json.dumps(examples).encode()).hexdigest(),
    }


class _Loss(NamedTuple):
    """The mean loss per target token, and the number of target tokens."""

    mean: "Tensor"
    tokens: int


class _Loop:
    """The state of a run and its steps."""

    def __init__(
        self,
        split: Split,
        folder: RunFolder,
        config: TrainingConfig,
        report: Callable[[Progress], None],
    ) -> None:
        import torch

        self.started = time.monotonic()
        torch.manual_seed(config.seed)
        self.folder, self.config, self.report = folder, config, report
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model, self.tokenizer = load_lora_model(
            config.base,
            rank=config.lora_rank,
            alpha=config.lora_alpha,
            targets=config.lora_targets,
            device=self.device,
        )
        self.model.train()
        self.prompt = _prompt_format(self.tokenizer)
        self.train = self._encode(split.train)
        self.valid = self._encode(split.valid)
        self.too_long = len(split.train) - len(self.train)
        if not self.train:
            raise TrainingError(
                f"there is no example to train on: {self.too_long:,} are longer than "
                f"{config.max_length} tokens; see also the counts of rows left out"
            )
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=config.learning_rate, weight_decay=0.0
        )
        self.steps_per_epoch = math.ceil(len(self.train) / config.batch_size)
        self.steps = self.steps_per_epoch * config.epochs
        self.step = 0
        self.losses: list[float] = []  # of the steps since the last report
        self.valid_loss = math.nan

    def _encode(self, examples: Sequence[Example]) -> list[Encoded]:
        return encode(examples, self.tokenizer, self.prompt, self.config.max_length)

    def run(self) -> None:
        while self.step < self.steps:
            epoch, position = divmod(self.step, self.steps_per_epoch)
            order = epoch_order(self.train, self.config.batch_size, self.config.seed + epoch)
            for indices in order[position:]:
                batch = collate([self.train[i] for i in indices], self.tokenizer.pad_token_id)
                self.losses.append(self._optimize(batch))
                ends_epoch = self.step % self.steps_per_epoch == 0
                if ends_epoch:
                    self.valid_loss = self._validate()
                if ends_epoch or self.step % _REPORT_STEPS == 0:
                    self._log(self.valid_loss if ends_epoch else math.nan)
                if ends_epoch or self.step % self.config.checkpoint_steps == 0:
                    self._save_checkpoint()

    def _optimize(self, batch: Batch) -> float:
        import torch

        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * self._schedule()
        loss = self._loss(batch).mean
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss is no number at step {self.step + 1}. Begin again in another --output "
                f"with a --learning-rate lower than {self.config.learning_rate:g}."
            )
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return value

    def _schedule(self) -> float:
        """Warm up linearly, then follow half a cosine down to a tenth."""
        warmup = max(1, round(self.config.warmup * self.steps))
        if self.step < warmup:
            return (self.step + 1) / warmup
        done = (self.step - warmup) / max(1, self.steps - warmup)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * done))

    def _loss(self, batch: Batch) -> "_Loss":
        import torch

        labels = batch.labels[:, 1:].to(self.device)
        wanted = labels != IGNORED
        with torch.autocast(
            self.device.type, torch.bfloat16, enabled=has_fast_bf16(self.device.type)
        ):
            causal = self.model.get_base_model()
            hidden = causal.base_model(
                input_ids=batch.input_ids.to(self.device),
                attention_mask=batch.attention_mask.to(self.device),
                use_cache=False,
            ).last_hidden_state[:, :-1]
            logits = causal.get_output_embeddings()(hidden[wanted])
        targets = labels[wanted]
        return _Loss(torch.nn.functional.cross_entropy(logits.float(), targets), len(targets))

    def _validate(self) -> float:
        import torch

        if not self.valid:
            return math.nan
        self.model.eval()
        total, tokens = 0.0, 0
        with torch.no_grad():
            batches = in_batches(self.valid, self.config.batch_size, self.tokenizer.pad_token_id)
            for batch in batches:
                loss = self._loss(batch)
                total += float(loss.mean) * loss.tokens
                tokens += loss.tokens
        self.model.train()
        return total / tokens

    def _log(self, valid_loss: float) -> None:
        progress = Progress(
            step=self.step,
            steps=self.steps,
            epoch=self.step / self.steps_per_epoch,
            loss=sum(self.losses) / len(self.losses),
            valid_loss=_known(valid_loss),
        )
        self.losses = []
        self.folder.log(progress._asdict())
        self.report(progress)

    def _save_checkpoint(self) -> None:
        import torch
        from peft import get_peft_model_state_dict

        self.folder.save_checkpoint(
            {
                "adapter": get_peft_model_state_dict(self.model, save_embedding_layers=False),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "random": torch.get_rng_state(),
                "valid_loss": self.valid_loss,
                "losses": self.losses,
                "seconds": time.monotonic() - self.started,
            }
        )

    def resume(self) -> None:
        """Go back to the last checkpoint, if there is one."""
        import torch
        from peft import set_peft_model_state_dict

        state = self.folder.last_checkpoint()
        if state is not None:
            set_peft_model_state_dict(self.model, state["adapter"])
            self.optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["random"])
            self.step, self.valid_loss = state["step"], state["valid_loss"]
            self.losses = state.get("losses", [])
            self.started -= state.get("seconds", 0.0)
            logger.info("resuming %s at step %d of %d", self.folder.path, self.step, self.steps)
        self.folder.cut_log(self.step)

    def save_adapter(self) -> None:
        def write(directory: Path) -> None:
            write_adapter(self.model, self.config.base, directory)
            self.prompt.save(directory)

        self.folder.publish_adapter(write)

    def result(self) -> TrainingResult:
        return TrainingResult(
            adapter=self.folder.path,
            steps=self.steps,
            train_examples=len(self.train),
            too_long=self.too_long,
            trainable_parameters=sum(p.numel() for p in self.parameters),
            valid_loss=_known(self.valid_loss),
            seconds=time.monotonic() - self.started,
        )


def _prompt_format(tokenizer: "PreTrainedTokenizerBase") -> PromptFormat:
    return CHATML if "<|im_start|>" in tokenizer.get_vocab() else PLAIN


def _known(loss: float) -> float | None:
    """Say None for NaN, which JSON cannot."""
    return None if math.isnan(loss) else loss
