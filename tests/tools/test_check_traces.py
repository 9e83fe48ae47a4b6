"""The rules for calls and triples, on traces of runs over HTTP and on spoilt ones."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from misbehaving_server import Answer, misbehaving_server

from kbqa.engine.cli import main as kbqa
from tools.methods.check_traces import RULES
from tools.methods.check_traces import main as check

QUESTIONS = [
    ("brother", "who is justin bieber's brother?", ["m.06w2sn5"]),
    ("both", "what do justin bieber and jamaica have?", ["m.06w2sn5", "m.03_r3"]),
    ("money", "what money is used in jamaica?", ["m.03_r3"]),
]


def by_hash(asked: Mapping[str, Any]) -> Answer:
    """Choose by the hash of the prompt: two options, or scores for three."""
    prompt = asked["messages"][-1]["content"]
    options = re.findall(r"^\d+\. (.*)$", prompt, re.MULTILINE)
    options.sort(key=lambda option: sha256((prompt + option).encode()).hexdigest())
    text = "\n".join(options[:2]) or "Kingston"
    if "score" in prompt.lower():
        text = json.dumps({option: 0.9 - 0.2 * at for at, option in enumerate(options[:3])})
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(text)}
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return Answer({"choices": [choice], "usage": usage})


@pytest.fixture(scope="module")
def runs(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run of each method that has a rule."""
    pytest.importorskip("openai", reason="needs the llm extra")
    folder = tmp_path_factory.mktemp("runs")
    questions = folder / "questions.jsonl"
    with questions.open("w") as file:
        for id_, text, mids in QUESTIONS:
            topics = [{"mid": mid} for mid in mids]
            row = {"id": id_, "question": text, "topic_entities": topics, "answers": []}
            file.write(json.dumps(row) + "\n")
    with misbehaving_server() as server:
        server.offers("by-hash")
        server.answer = by_hash
        for method in RULES:
            command = ["eval", "--questions", str(questions), "--store", str(small_store)]
            command += ["--gold-entities", "--method", method, "--llm", server.url]
            command += ["--output", str(folder / f"{method}.jsonl"), "--no-llm-cache"]
            result = CliRunner().invoke(kbqa, command, catch_exceptions=False)
            assert result.exit_code == 0, result.output
    yield folder


def checked(run: Path, *options: str) -> Result:
    return CliRunner().invoke(check, [str(run), *options], catch_exceptions=False)


def spoilt(run: Path, folder: Path, spoil: Callable[[list[dict[str, Any]]], object]) -> Path:
    """Write a run again with its steps changed, and its calls and tokens with them."""
    rows = [json.loads(line) for line in run.read_text().splitlines()]
    for row in rows:
        trace, usage = row["trace"], row["usage"]["general"]
        spoil(trace["steps"])
        asked = [step for step in trace["steps"] if "input_tokens" in step]
        usage["calls"] = trace["decisions"] = len(asked)
        for kind in ("input_tokens", "output_tokens"):
            usage[kind] = sum(step[kind] for step in asked)
    copy = folder / run.name
    copy.write_text("".join(json.dumps(row) + "\n" for row in rows))
    manifest = run.with_suffix(".manifest.json")
    (folder / manifest.name).write_text(manifest.read_text())
    return copy


@pytest.mark.parametrize("method", RULES)
def test_what_a_method_does_adds_up(method: str, runs: Path, small_store: Path) -> None:
    result = checked(runs / f"{method}.jsonl", "--store", str(small_store))
    assert result.exit_code == 0, result.output
    assert re.search(r"triples walked: [1-9]\d*; not in the graph: 0", result.output)


@pytest.mark.parametrize(
    ("method", "spoil", "problem"),
    [
        ("bpc", lambda steps: steps.append(steps[-1]), "2 answers"),
        ("bpc", lambda steps: steps[0].pop("chosen"), "by no chosen relation"),
        ("knowpath", lambda steps: steps.pop(0), "rounds"),
        ("trace", lambda steps: steps.append({**steps[0], "kind": "rank"}), "by its trajectories"),
        ("trace", lambda steps: steps.pop(2), "by its trajectories"),
        ("tog", lambda steps: steps.extend([steps[-1]] * 2), "3 calls outside the hops"),
        ("pog", lambda steps: steps.extend([steps[0]] * 2), "calls outside the hops"),
    ],
)
def test_calls_that_do_not_add_up_are_named(
    method: str,
    spoil: Callable[[list[dict[str, Any]]], object],
    problem: str,
    runs: Path,
    tmp_path: Path,
) -> None:
    result = checked(spoilt(runs / f"{method}.jsonl", tmp_path, spoil))
    assert result.exit_code == 1
    assert problem in result.output


def test_tokens_that_do_not_add_up_and_triples_that_do_not_exist_are_named(
    runs: Path, small_store: Path, tmp_path: Path
) -> None:
    run = spoilt(runs / "bpc.jsonl", tmp_path, len)
    rows = [json.loads(line) for line in run.read_text().splitlines()]
    rows[0]["usage"]["general"]["input_tokens"] += 1
    rows[1]["trace"]["walks"][0]["steps"][0][1] = "people.person.made_up"
    run.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = checked(run, "--store", str(small_store))
    assert result.exit_code == 1
    assert "input_tokens" in result.output
    assert "not in the graph: 1" in result.output


def test_runs_without_a_rule_are_refused(runs: Path, tmp_path: Path) -> None:
    run = spoilt(runs / "bpc.jsonl", tmp_path, len)
    manifest = run.with_suffix(".manifest.json")
    told = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**told, "call_budget": 5}))
    result = checked(run)
    assert result.exit_code == 1
    assert "without --call-budget" in result.output
