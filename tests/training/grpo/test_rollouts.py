"""Paths drawn by a server that plays vLLM's on loopback, and what it cannot do."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from misbehaving_server import Answer, MisbehavingServer, misbehaving_server
from played_vllm import PlayedVllm, refusal

from kbqa.engine.cli import main
from kbqa.engine.questions.question_sets import Question
from kbqa.sparql.errors import InputError, ModelError
from kbqa.training.config import GrpoConfig, TrainingConfig
from kbqa.training.grpo.drawing import check_rollouts
from kbqa.training.grpo.train import (
    RewardProgress,
    RewardSplit,
    WriterPolicy,
    train_by_reward,
)
from kbqa.training.writer import RewardResult

torch = pytest.importorskip("torch", reason="needs the lm extra")
pytest.importorskip("openai", reason="needs the llm extra")
pytestmark = pytest.mark.usefixtures("one_thread", "float32")

NO_ROUTE = Answer({"detail": "Not Found"}, 404)


class KilledError(Exception):
    """Stands in for a signal that ends the process."""


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    with misbehaving_server() as started:
        yield started


@pytest.fixture
def vllm(server: MisbehavingServer, tiny_base: Path, small_graph) -> PlayedVllm:
    return PlayedVllm(server, tiny_base, small_graph.decoding)


def _policy(config, small_graph, folder: Path, group: int, url: str = "") -> WriterPolicy:
    grpo = GrpoConfig(group=group, rollouts=url)
    device = torch.device("cpu")
    return WriterPolicy(config, grpo, small_graph.decoding, device, folder)


def test_a_server_draws_what_the_model_in_training_draws(
    server, vllm, start_config, small_graph, asked_questions, tmp_path
) -> None:
    group, asked_questions = 10, asked_questions[:4]
    ours = _policy(start_config, small_graph, tmp_path, group)
    theirs = _policy(start_config, small_graph, tmp_path, group, server.url)
    for policy in (ours, theirs):
        # Weights that bf16 cannot hold, so that it matters that they are handed over exactly.
        torch.manual_seed(3)
        for weight in policy.model.parameters().values():
            weight.data += 0.01 * torch.randn_like(weight)
    common = 0
    for here, there in zip(
        ours.draw(asked_questions, "a"), theirs.draw(asked_questions, "a"), strict=True
    ):
        assert (here.question, here.prompt) == (there.question, there.prompt)
        assert sum(text.times for text in there.texts) == group
        assert there.texts == tuple(sorted(there.texts))
        known = {
            text.tokens: (text, candidate)
            for text, candidate in zip(here.texts, here.candidates, strict=True)
        }
        for text, candidate in zip(there.texts, there.candidates, strict=True):
            if text.tokens in known:
                common += 1
                same, expected = known[text.tokens]
                assert text._replace(times=same.times) == same
                assert candidate == expected
    assert common > 2
    assert {asked["temperature"] for asked in server.asked if "n" in asked} == {1.0}
    assert len({asked["seed"] for asked in server.asked if "n" in asked}) == len(asked_questions)


Train = Callable[..., RewardResult]


@pytest.fixture
def train(asked_questions: Sequence[Question], start_config: TrainingConfig, small_graph) -> Train:
    split = RewardSplit(tuple(asked_questions[:4]), tuple(asked_questions[5:6]))
    config = replace(start_config, epochs=2, validate_every=2, checkpoint_steps=1, patience=0)

    def run(folder: Path, url: str, report=lambda progress: None) -> RewardResult:
        return train_by_reward(
            split,
            folder,
            config,
            GrpoConfig(group=6, questions=2, rollouts=url),
            small_graph.decoding,
            small_graph.reward,
            report,
        )

    return run


def test_each_step_draws_with_the_adapter_of_the_step_before(
    server: MisbehavingServer, vllm: PlayedVllm, train: Train, tmp_path: Path
) -> None:
    folders = []

    def report(progress: RewardProgress) -> None:
        folders.append({path.name for path in (tmp_path / "rollouts").glob("*")})

    result = train(tmp_path, server.url, report)
    log = [json.loads(line) for line in (tmp_path / "training_log.jsonl").read_text().splitlines()]
    learnt = [row["kl"] is not None for row in log[1:]]
    assert sum(learnt) > 1
    drawn_with = vllm.used[::2]  # two questions a step
    assert drawn_with == vllm.used[1::2]
    assert len(drawn_with) == result.steps == 4
    changes = [one != other for one, other in pairwise(drawn_with)]
    assert changes == learnt[:-1]
    assert folders[1:] == [{name} for name in drawn_with]
    assert vllm.served == {"base"}, "the last one was unloaded"
    assert not (tmp_path / "rollouts").exists()


def test_a_killed_run_is_resumed_by_another_server(
    server: MisbehavingServer, vllm: PlayedVllm, train: Train, tiny_base, small_graph, tmp_path
) -> None:
    def kill(progress: RewardProgress) -> None:
        if progress.step == 3:
            raise KilledError

    with pytest.raises(KilledError):
        train(tmp_path, server.url, kill)
    assert len(vllm.served) == 2
    with misbehaving_server() as other:
        second = PlayedVllm(other, tiny_base, small_graph.decoding)
        assert train(tmp_path, other.url).steps == 4
        assert second.served == {"base"}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"prompt": Answer({"choices": [{}]})}, r"does not follow the graph.*--logits-processors"),
        ({"prompt": refusal("no such field")}, "no such field"),
        ({"unload": NO_ROUTE}, r"takes no adapters.*VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"),
        ({"load": NO_ROUTE}, r"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"),
        (
            {"load": refusal("Loading lora kbqa failed: No adapter found for /x", 404)},
            r"The server must see the folder under the same name: /",
        ),
        (
            {"load": refusal("LoRA rank 16 is greater than max_lora_rank 8.", 500)},
            r"Start the server with --max-lora-rank 16\.",
        ),
        ({"load": refusal("LoRA is not enabled.", 500)}, "with --enable-lora"),
        ({"load": refusal("size mismatch", 500)}, "Does the server run the adapter's base model"),
        ({"unload": refusal("out of memory", 500)}, "was not unloaded: .*out of memory"),
    ],
    ids=[
        *("no logits processor", "refusal", "no route", "no route to load", "no folder"),
        *("rank", "not enabled", "other failure", "not unloaded"),
    ],
)
def test_a_server_that_cannot_draw_is_reported(
    server: MisbehavingServer,
    vllm: PlayedVllm,
    start_config: TrainingConfig,
    how: dict[str, Answer],
    message: str,
) -> None:
    def answer(asked):
        kind = "load" if "lora_path" in asked else "unload" if "lora_name" in asked else "prompt"
        return how.get(kind) or vllm.answer(asked)

    server.answer = answer
    with pytest.raises(ModelError, match=message):
        check_rollouts(server.url, start_config)


def test_a_server_that_can_draw_keeps_nothing_of_the_check(
    server: MisbehavingServer, vllm: PlayedVllm, start_config: TrainingConfig
) -> None:
    check_rollouts(server.url, start_config)
    assert vllm.served == {"base"}


def _choice(*tokens: int) -> dict[str, object]:
    top = [{f"token_id:{token}": -1.0} for token in tokens]
    return {"token_ids": tokens, "logprobs": {"top_logprobs": top}}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer({"choices": [_choice(7, 7)] * 2}), r"where the graph does not allow it"),
        (Answer({"choices": [_choice(0)] * 2}), r"gave up a path that may go on.*another graph"),
        (Answer({"choices": [_choice(7)]}), "sent 1 texts instead of 2"),
        (Answer({"choices": [{"token_ids": [7]}] * 2}), "does not send the tokens"),
        (Answer({"choices": [{"logprobs": {}}] * 2}), "does not send the tokens"),
        (
            refusal("Requested sample logprobs of 32, which is greater than max allowed: 20"),
            r"Start it with --max-logprobs 32\.",
        ),
        (Answer({}, 503), "refused"),
    ],
    ids=["refused", "given up", "too few", "no likeliest", "no tokens", "max logprobs", "busy"],
)
def test_texts_that_cannot_be_used_are_reported(
    server: MisbehavingServer,
    vllm: PlayedVllm,
    start_config: TrainingConfig,
    small_graph,
    asked_questions: Sequence[Question],
    tmp_path: Path,
    answer: Answer,
    message: str,
) -> None:
    server.answer = lambda asked: answer if "prompt" in asked else vllm.answer(asked)
    policy = _policy(start_config, small_graph, tmp_path, 2, server.url)
    with pytest.raises(ModelError, match=message):
        policy.draw(asked_questions[:2], "seed")


def test_a_question_for_which_the_servers_graph_fails_is_left_out(
    server: MisbehavingServer, vllm, start_config, small_graph, asked_questions, tmp_path, caplog
) -> None:
    first, second = asked_questions[:2]
    policy = _policy(start_config, small_graph, tmp_path, 2, server.url)
    tokens = policy.model.tokenizer.encode(policy.prompt.render(second.text))

    def answer(asked):
        if asked.get("prompt") == tokens:
            return Answer({"choices": [_choice(0)] * 2})
        return vllm.answer(asked)

    server.answer = answer
    assert [group.question for group in policy.draw([first, second], "seed")] == [first]
    assert f"nothing is written for {second.id}: {server.url} gave up a path" in caplog.text


def test_a_server_that_is_gone_at_the_end_is_a_warning(
    server: MisbehavingServer, vllm, start_config, small_graph, asked_questions, tmp_path, caplog
) -> None:
    policy = _policy(start_config, small_graph, tmp_path, 2, server.url)
    policy.draw(asked_questions[:1], "seed")
    server.answer = lambda _: NO_ROUTE
    policy.sampler.close()
    assert "still has an adapter of this run" in caplog.text


def test_what_is_no_url_is_refused(start_config: TrainingConfig) -> None:
    with pytest.raises(InputError, match="'nonsense' is not the URL of a server"):
        check_rollouts("nonsense", start_config)


def test_a_run_with_a_server_is_documented(
    server: MisbehavingServer,
    vllm: PlayedVllm,
    asked_file: Path,
    start: Path,
    small_store: Path,
    tmp_path: Path,
) -> None:
    arguments = ["--stage", "grpo", "--data", asked_file, "--start", start, "--store", small_store]
    more = ["--rollouts", server.url, "--preset", "grpo-8b", "--group", "4", "--output", tmp_path]
    result = CliRunner().invoke(main, ["train-crp", *map(str, [*arguments, *more])])
    assert result.exit_code == 0, result.stderr
    manifest = json.loads((tmp_path / "training_manifest.json").read_text())
    chosen = ("rollouts", "group", "questions", "learning_rate", "batch_size", "epochs")
    assert [manifest["settings"][name] for name in chosen] == [server.url, 4, 32, 1e-5, 4, 1]
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "the paths were drawn by a vLLM server" in card
    assert {asked["n"] for asked in server.asked if "n" in asked} == {4}


def test_an_absent_server_is_reported_before_anything_is_asked(
    asked_file: Path, start: Path, small_store: Path, tmp_path: Path
) -> None:
    url = "http://127.0.0.1:9/v1"
    arguments = ["--stage", "grpo", "--data", asked_file, "--start", start, "--store", small_store]
    more = ["--rollouts", url, "--output", tmp_path / "run"]
    result = CliRunner().invoke(main, ["train-crp", *map(str, [*arguments, *more])])
    assert result.exit_code == 1
    assert f"no server answers at {url}" in result.stderr
    assert "looked up" not in result.stderr
    assert not (tmp_path / "run").exists()
