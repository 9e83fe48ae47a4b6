import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbqa.engine.writing.checkpoint import quiet_transformers
from kbqa.engine.writing.generate import Request
from kbqa.engine.writing.transformers import TransformersGenerator
from kbqa.sparql.errors import ModelError, TrainingError
from kbqa.training.config import TrainingConfig
from kbqa.training.data.training_set import Example, Split
from kbqa.training.run import LOG_FILE
from kbqa.training.writer import TrainingProgress, TrainingResult, train_adapter

torch = pytest.importorskip("torch", reason="needs the lm extra")

pytestmark = pytest.mark.usefixtures("one_thread", "float32")

STEPS = 24  # two epochs of twelve


class Run(NamedTuple):
    folder: Path
    result: TrainingResult
    reported: list[TrainingProgress]


class KilledError(Exception):
    """Stands in for a signal that ends the process."""


@pytest.fixture(scope="module")
def split(examples: Sequence[Example]) -> Split:
    return Split(tuple(examples[:23]), tuple(examples[23:]))


@pytest.fixture(scope="module")
def config(tiny_base: Path) -> TrainingConfig:
    return TrainingConfig(
        base=str(tiny_base), epochs=2, batch_size=2, learning_rate=2e-2, checkpoint_steps=7
    )


@pytest.fixture(scope="module")
def run(split: Split, config: TrainingConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that nothing stopped."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    reported: list[TrainingProgress] = []
    return Run(folder, train_adapter(split, folder, config, reported.append), reported)


def _weights(folder: Path) -> Mapping[str, "torch.Tensor"]:
    from safetensors.torch import load_file

    return load_file(folder / "adapter_model.safetensors")


def _assert_same(folder: Path, whole: Run) -> None:
    """The adapter and the log are those of the run that nothing stopped."""
    expected = _weights(whole.folder)
    weights = _weights(folder)
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-6)
    assert _log(folder) == [pytest.approx(row, abs=1e-6) for row in _log(whole.folder)]


def _log(folder: Path) -> list[dict[str, float | None]]:
    return [json.loads(line) for line in (folder / LOG_FILE).read_text().splitlines()]


def _kill_at(step: int) -> Callable[[TrainingProgress], None]:
    def report(progress: TrainingProgress) -> None:
        if progress.step >= step:
            raise KilledError

    return report


def test_the_loss_falls(run: Run) -> None:
    assert [progress.step for progress in run.reported] == [10, 12, 20, 24]
    assert run.reported[-1].loss < 0.7 * run.reported[0].loss
    assert run.reported[-1].epoch == 2
    [first, last] = [one.valid_loss for one in run.reported if one.valid_loss is not None]
    assert last < first
    assert run.result.valid_loss == last


def test_the_result_counts_what_was_done(run: Run) -> None:
    assert run.result.adapter == run.folder
    assert (run.result.steps, run.result.train_examples, run.result.too_long) == (STEPS, 23, ())
    sizes = [weight.numel() for weight in _weights(run.folder).values()]
    assert run.result.trainable_parameters == sum(sizes)
    assert run.result.seconds > 0


def test_what_is_reported_is_logged(run: Run) -> None:
    assert _log(run.folder) == [progress._asdict() for progress in run.reported]


def test_the_adapter_is_peft_in_bf16_and_names_its_base(run: Run, config: TrainingConfig) -> None:
    record = json.loads((run.folder / "adapter_config.json").read_text())
    assert record["base_model_name_or_path"] == config.base
    assert record["target_modules"] == sorted(config.lora_targets)
    assert {weight.dtype for weight in _weights(run.folder).values()} == {torch.bfloat16}


def test_whoever_reads_the_adapters_settings_reads_its_weights(run: Run) -> None:
    settings, weights = run.folder / "adapter_config.json", run.folder / "adapter_model.safetensors"
    assert weights.stat().st_mode == settings.stat().st_mode


def test_the_adapter_generates_under_the_prompt_of_training(
    run: Run, config: TrainingConfig
) -> None:
    assert "<|im_start|>" in json.loads((run.folder / "kbqa_prompt.json").read_text())["template"]
    named = TransformersGenerator.load(run.folder)
    [written] = named.generate([Request("what is the capital of Kenya?")], n=2)
    assert len(written) == 2
    assert all("Main Path:" in candidate.text for candidate in written)
    chosen = TransformersGenerator.load(run.folder, config.base)
    assert chosen.generate([Request("what is the capital of Kenya?")], n=2) == [written]


def test_the_same_run_gives_the_same_adapter(
    run: Run, split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    train_adapter(split, tmp_path, config)
    _assert_same(tmp_path, run)


@pytest.mark.parametrize("checkpoint_steps", [5, 7, 12, 100])
@pytest.mark.parametrize("step", [10, 12, 20, 24])
def test_a_killed_run_goes_on_as_if_nothing_had_been(
    step: int, checkpoint_steps: int, run: Run, split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    config = replace(config, checkpoint_steps=checkpoint_steps)
    with pytest.raises(KilledError):
        train_adapter(split, tmp_path, config, _kill_at(step))
    assert not (tmp_path / "adapter_config.json").exists()
    result = train_adapter(split, tmp_path, config)
    _assert_same(tmp_path, run)
    assert result._replace(adapter=run.folder, seconds=0) == run.result._replace(seconds=0)


def test_a_run_killed_in_a_log_line_goes_on(
    run: Run, split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    with pytest.raises(KilledError):
        train_adapter(split, tmp_path, config, _kill_at(10))
    with (tmp_path / LOG_FILE).open("a") as log:
        log.write('{"step": 12, "st')
    train_adapter(split, tmp_path, config)
    _assert_same(tmp_path, run)


def test_a_run_killed_in_a_checkpoint_goes_on(
    run: Run,
    split: Split,
    config: TrainingConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save = torch.save

    def save_half(state: Mapping[str, object], path: Path) -> None:
        save(state, path)
        if state["step"] == 14:
            path.write_bytes(path.read_bytes()[:1_000])
            raise KilledError

    monkeypatch.setattr(torch, "save", save_half)
    with pytest.raises(KilledError):
        train_adapter(split, tmp_path, config)
    monkeypatch.undo()
    train_adapter(split, tmp_path, config)
    _assert_same(tmp_path, run)


def test_half_an_adapter_is_none_and_is_written_again(
    run: Run,
    split: Split,
    config: TrainingConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kill(_: object, directory: Path) -> None:
        assert (directory / "adapter_config.json").is_file()
        raise KilledError

    monkeypatch.setattr("kbqa.engine.writing.generate.PromptFormat.save", kill)
    with pytest.raises(KilledError):
        train_adapter(split, tmp_path, config)
    monkeypatch.undo()
    with pytest.raises(ModelError, match="there is no adapter"):
        TransformersGenerator.load(tmp_path)
    train_adapter(split, tmp_path, config)
    _assert_same(tmp_path, run)


def test_a_finished_run_is_only_written_again(
    run: Run, split: Split, config: TrainingConfig
) -> None:
    weights, log = _weights(run.folder), _log(run.folder)
    again = train_adapter(split, run.folder, config, _kill_at(0))
    assert again.seconds > run.result.seconds / 2
    assert _log(run.folder) == log
    for name, weight in _weights(run.folder).items():
        assert torch.equal(weight, weights[name])
    assert not list(run.folder.glob("*.tmp"))


def test_an_unreadable_checkpoint_is_named(
    split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    with pytest.raises(KilledError):
        train_adapter(split, tmp_path, config, _kill_at(20))
    (tmp_path / "checkpoint-14" / "state.pt").write_bytes(b"half")
    with pytest.raises(TrainingError, match=r"(?s)checkpoint-14/state\.pt cannot.*Delete "):
        train_adapter(split, tmp_path, config)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"learning_rate": 1e-3}, "learning_rate"), ({"seed": 1, "epochs": 3}, "epochs, seed")],
)
def test_another_run_does_not_take_the_folder(
    change: Mapping[str, object], named: str, run: Run, split: Split, config: TrainingConfig
) -> None:
    with pytest.raises(TrainingError, match=rf"other settings \({named}\)"):
        train_adapter(split, run.folder, replace(config, **change))


def test_other_examples_make_another_run(run: Run, split: Split, config: TrainingConfig) -> None:
    changed = replace(split.train[0], target=split.train[1].target)
    others = split._replace(train=(changed, *split.train[1:]))
    with pytest.raises(TrainingError, match="examples_sha256"):
        train_adapter(others, run.folder, config)


def test_a_run_without_held_out_examples_has_no_such_loss(
    split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    config = replace(config, epochs=1)
    assert train_adapter(split._replace(valid=()), tmp_path, config).valid_loss is None
    assert {row["valid_loss"] for row in _log(tmp_path)} == {None}


@pytest.mark.parametrize(
    ("count", "max_length", "message"),
    [(0, 320, "no examples"), (23, 5, "no examples to train on: 23 are longer than 5 tokens")],
)
def test_nothing_to_train_on(
    count: int, max_length: int, message: str, split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    few = Split(split.train[:count], ())
    with pytest.raises(TrainingError, match=message):
        train_adapter(few, tmp_path / "run", replace(config, max_length=max_length))
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_ends_the_run(
    split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match="loss is not a number at step"):
        train_adapter(split, tmp_path, replace(config, learning_rate=1e30))


def test_a_step_averages_over_all_its_target_tokens(
    split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    _assert_a_step_averages(split, config, tmp_path, tolerance=1e-5)


def test_a_step_in_bf16_averages_nearly_over_all_its_target_tokens(
    split: Split, config: TrainingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBQA_PRECISION", "bfloat16")
    _assert_a_step_averages(split, config, tmp_path, tolerance=0.01)


def _assert_a_step_averages(
    split: Split, config: TrainingConfig, folder: Path, tolerance: float
) -> None:
    """One batch of all examples, and twelve batches of two, give the same step."""
    config = replace(config, epochs=1)
    whole = replace(config, batch_size=len(split.train))
    parts = replace(config, batch_size=2, accumulate=12)
    results = [train_adapter(split, folder / str(one.accumulate), one) for one in (whole, parts)]
    assert [result.steps for result in results] == [1, 1]
    expected = [pytest.approx(row, rel=tolerance) for row in _log(folder / "1")]
    assert _log(folder / "12") == expected


def test_training_in_bf16_differs_from_float32_by_its_rounding(
    run: Run, split: Split, config: TrainingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBQA_PRECISION", "bfloat16")
    train_adapter(split, tmp_path, config)
    first, *_, last = _log(tmp_path)
    expected, *_, expected_last = _log(run.folder)
    assert first["loss"] != expected["loss"]
    assert first["loss"] == pytest.approx(expected["loss"], rel=0.02)
    assert max(last["loss"], expected_last["loss"]) < 0.7 * first["loss"]


def test_a_run_in_bf16_is_not_resumed_in_float32(
    split: Split, config: TrainingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("KBQA_PRECISION", "bfloat16")
        with pytest.raises(KilledError):
            train_adapter(split, tmp_path, config, _kill_at(10))
    with pytest.raises(TrainingError, match=r"other settings \(precision\)"):
        train_adapter(split, tmp_path, config)


def test_a_killed_run_in_bf16_goes_on_as_if_nothing_had_been(
    split: Split, config: TrainingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBQA_PRECISION", "bfloat16")
    train_adapter(split, tmp_path / "whole", config)
    with pytest.raises(KilledError):
        train_adapter(split, tmp_path / "killed", config, _kill_at(12))
    train_adapter(split, tmp_path / "killed", config)
    assert _log(tmp_path / "killed") == _log(tmp_path / "whole")
    assert {name: one.tolist() for name, one in _weights(tmp_path / "killed").items()} == {
        name: one.tolist() for name, one in _weights(tmp_path / "whole").items()
    }


def test_gradient_checkpointing_changes_nothing(
    run: Run, split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    train_adapter(split, tmp_path, replace(config, gradient_checkpointing=True))
    _assert_same(tmp_path, run)


def test_a_run_starts_from_the_weights_of_another(
    run: Run, split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    reported: list[TrainingProgress] = []
    start = replace(config, start=str(run.folder), epochs=1, learning_rate=1e-9)
    train_adapter(split, tmp_path, start, reported.append)
    assert reported[0].loss < run.reported[0].loss
    for name, weight in _weights(run.folder).items():
        torch.testing.assert_close(_weights(tmp_path)[name], weight, msg=name)


@pytest.mark.parametrize(
    "settings",
    [
        {"use_rslora": True},
        {"use_dora": True},
        {"rank_pattern": {"q_proj": 3}, "alpha_pattern": {"q_proj": 64}},
        {"exclude_modules": ["layers.0.self_attn.v_proj"]},
        {"target_modules": r".*\.1\..*q_proj"},
    ],
    ids=str,
)
def test_the_settings_of_a_start_are_kept(
    settings: dict[str, Any], split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    first = _adapter(config.base, tmp_path / "first", **settings)
    start = replace(config, start=str(first), lora_rank=4, lora_alpha=16, epochs=1)
    train_adapter(split, tmp_path / "second", replace(start, learning_rate=1e-9))
    expected, found = (
        json.loads((folder / "adapter_config.json").read_text())
        for folder in (first, tmp_path / "second")
    )
    assert found == expected
    for name, weight in _weights(first).items():
        torch.testing.assert_close(_weights(tmp_path / "second")[name], weight, msg=name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bias": "all"}, "sets bias, which kbqa cannot train further"),
        ({"modules_to_save": ["lm_head"]}, "sets modules_to_save, which kbqa"),
        ({"init_lora_weights": "pissa"}, "sets init_lora_weights, which kbqa"),
    ],
    ids=str,
)
def test_a_start_of_which_more_would_have_to_be_trained_is_refused(
    settings: dict[str, Any],
    message: str,
    split: Split,
    config: TrainingConfig,
    tmp_path: Path,
) -> None:
    first = _adapter(config.base, tmp_path / "first", **settings)
    start = replace(config, start=str(first), lora_rank=4, lora_alpha=16)
    with pytest.raises(ModelError, match=message):
        train_adapter(split, tmp_path / "second", start)


def _adapter(base: str, folder: Path, **settings: Any) -> Path:
    """Save an adapter in bf16, as kbqa does."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    quiet_transformers()
    defaults = {"target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    config = LoraConfig(**{"r": 4, "lora_alpha": 16, **defaults, **settings})
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    model.to(torch.bfloat16).save_pretrained(str(folder))
    path = folder / "adapter_config.json"
    record = json.loads(path.read_text())
    if isinstance(record["target_modules"], list):
        record["target_modules"].sort()
    path.write_text(json.dumps(record))
    return folder


def test_a_killed_run_goes_on_from_its_checkpoint_and_not_from_its_start(
    run: Run, split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    start = replace(config, start=str(run.folder), seed=7)
    train_adapter(split, tmp_path / "whole", start)
    with pytest.raises(KilledError):
        train_adapter(split, tmp_path / "killed", start, _kill_at(10))
    train_adapter(split, tmp_path / "killed", start)
    for name, weight in _weights(tmp_path / "whole").items():
        assert torch.equal(_weights(tmp_path / "killed")[name], weight), name


def test_a_start_of_another_shape_is_refused(
    run: Run, split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    start = replace(config, start=str(run.folder), lora_rank=config.lora_rank * 2)
    with pytest.raises(ModelError, match=f"the adapter in {run.folder} cannot be loaded"):
        train_adapter(split, tmp_path / "run", start)
    assert not (tmp_path / "run").exists()


def test_all_linear_layers_are_those_of_attention_and_mlp(
    split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    train_adapter(split, tmp_path, replace(config, epochs=1, lora_targets=("all",)))
    record = json.loads((tmp_path / "adapter_config.json").read_text())
    attention, mlp = ["k_proj", "o_proj", "q_proj", "v_proj"], ["down_proj", "gate_proj", "up_proj"]
    assert record["target_modules"] == sorted(attention + mlp)


def test_a_model_that_is_trained_whole_is_written_whole(
    split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config = replace(config, full=True, learning_rate=5e-3)
    with pytest.raises(KilledError):
        train_adapter(split, tmp_path / "killed", config, _kill_at(20))
    train_adapter(split, tmp_path / "killed", config)
    result = train_adapter(split, tmp_path / "whole", config)
    assert _log(tmp_path / "killed") == _log(tmp_path / "whole")
    models = [AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("killed", "whole")]
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert one.dtype == torch.bfloat16
        assert torch.equal(one, other)
    assert result.trainable_parameters == sum(one.numel() for one in models[0].parameters())
    assert len(AutoTokenizer.from_pretrained(tmp_path / "whole")) == models[0].config.vocab_size
    generator = TransformersGenerator.load(tmp_path / "whole")
    assert generator.name.startswith(f"{tmp_path / 'whole'} + whole ")
    [written] = generator.generate([Request(split.train[0].question)], n=1)
    assert [candidate.text.split("\n")[0] for candidate in written] == ["Main Path:"]


def test_the_best_weights_are_written_and_the_run_stops_when_none_are_better(
    examples: Sequence[Example], config: TrainingConfig, tmp_path: Path
) -> None:
    # What is held out contradicts what is learnt: it soon becomes unlikely.
    wrong = tuple(
        replace(one, target=other.target)
        for one, other in zip(examples[:6], examples[6:12], strict=True)
    )
    split = Split(tuple(examples), wrong)
    config = replace(config, epochs=20, patience=2, valid_generate=0)
    result = train_adapter(split, tmp_path, config)
    losses = [row["valid_loss"] for row in _log(tmp_path) if row["valid_loss"] is not None]
    assert result.stopped_early
    assert len(losses) < config.epochs
    assert result.best_step == 12 * (len(losses) - config.patience)
    assert result.valid_loss == min(losses)
    with pytest.raises(KilledError):
        train_adapter(split, tmp_path / "killed", config, _kill_at(result.best_step))
    best, written = _weights(tmp_path / "killed" / "best"), _weights(tmp_path)
    assert all(torch.equal(weight, best[name]) for name, weight in written.items())
    again = train_adapter(split, tmp_path, config, _kill_at(0))
    assert again._replace(seconds=0) == result._replace(seconds=0)


def test_validations_come_as_often_as_asked(
    split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    train_adapter(split, tmp_path, replace(config, validate_every=9, valid_generate=0))
    validated = [row for row in _log(tmp_path) if row["valid_loss"] is not None]
    assert [row["step"] for row in validated] == [9, 18, STEPS]
    assert {row["valid_main_path"] for row in validated} == {None}


def test_a_run_of_the_first_kbqa_goes_on(
    run: Run, split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    with pytest.raises(KilledError):
        train_adapter(split, tmp_path, config, _kill_at(20))
    settings = json.loads((tmp_path / "training_config.json").read_text())
    for name in (
        "accumulate",
        "precision",
        "final_rate",
        "full",
        "lora_dropout",
        "crp_format",
        "patience",
    ):
        del settings[name]
    (tmp_path / "training_config.json").write_text(json.dumps(settings))
    path = tmp_path / "checkpoint-14" / "state.pt"
    state = torch.load(path)
    [[random]] = state.pop("randoms")
    del state["best"], state["stale"]
    torch.save({**state, "random": random, "valid_loss": 1.0}, path)
    train_adapter(split, tmp_path, config)
    _assert_same(tmp_path, run)


def _without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _with_broken_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"half")


def _without_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


@pytest.mark.parametrize("damage", [_without_weights, _with_broken_weights, _without_tokenizer])
def test_a_broken_base_model_leaves_nothing_behind(
    damage: Callable[[Path], None], split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for path in Path(config.base).iterdir():
        (base / path.name).write_bytes(path.read_bytes())
    damage(base)
    with pytest.raises(ModelError, match=str(base)) as raised:
        train_adapter(split, tmp_path / "run", replace(config, base=str(base)))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_a_base_model_without_the_adapted_layers_is_told(
    split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="c_attn"):
        train_adapter(split, tmp_path / "run", replace(config, lora_targets=("c_attn",)))


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"learning_rate": 0.0},
        {"warmup": 1.5},
        {"patience": -1},
        {"lora_dropout": 1.0},
    ],
)
def test_settings_without_meaning_are_refused(
    change: Mapping[str, object], config: TrainingConfig
) -> None:
    with pytest.raises(ValueError, match=r"should be (greater|less) than"):
        replace(config, **change)


def test_a_second_process_does_not_write_to_the_same_folder(
    split: Split, config: TrainingConfig, tmp_path: Path
) -> None:
    def begin_another(_: TrainingProgress) -> None:
        train_adapter(split, tmp_path, config)

    with pytest.raises(TrainingError, match="another process is writing to"):
        train_adapter(split, tmp_path, config, begin_another)
