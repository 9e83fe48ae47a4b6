"""Paths drawn by vLLM's own server, started here with the base model of the shipped adapter.

`pytest -m vllm tests/training/grpo/test_rollouts_by_vllm.py`, in an environment that has
vLLM; on two cores it takes some minutes.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbqa.engine.linking.linker import Linker
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.checkpoint import DEFAULT_BASE, adapter_config, base_model
from kbqa.engine.writing.ebnf import GRAPH_PROCESSOR
from kbqa.engine.writing.generate import DEFAULT_ADAPTER
from kbqa.engine.writing.server import ServerGenerator
from kbqa.engine.writing.steering import Decoding
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity
from kbqa.training.config import GrpoConfig, TrainingConfig
from kbqa.training.grpo.drawing import check_rollouts
from kbqa.training.grpo.questions import as_request
from kbqa.training.grpo.train import WriterPolicy

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("float32")]

QUESTIONS = (
    "what is the capital of Kenya?",
    "which languages are spoken in Switzerland?",
    "where was Barack Obama born?",
)
STARTS_WITHIN_S = 600.0
GROUP = 6


@pytest.fixture(scope="module")
def url(demo_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    options = {
        "--model": base_model(DEFAULT_BASE),
        "--served-model-name": "base",
        "--dtype": "float32",
        "--max-model-len": "2048",
        "--generation-config": "vllm",
        "--host": "127.0.0.1",
        "--port": str(port),
        "--max-lora-rank": "16",
        "--max-logprobs": "32",
        "--max-num-batched-tokens": "16384",
        "--logits-processors": GRAPH_PROCESSOR,
    }
    flags = ["--enable-lora", "--enforce-eager", "--no-enable-chunked-prefill"]
    named = [word for option in options.items() for word in option]
    variables = {
        "KBQA_STORE": str(demo_store),
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
    }
    with log.open("w") as written:
        server = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *named, *flags],
            env=os.environ | variables,
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait(server, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)


def _wait(server: subprocess.Popen[bytes], page: str, log: Path) -> None:
    ends_at = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < ends_at and server.poll() is None:
        try:
            urllib.request.urlopen(page, timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(1)
        else:
            return
    pytest.fail(f"the server did not start:\n{log.read_text()[-3000:]}")


@pytest.mark.filterwarnings("ignore")  # of vLLM's own
def test_vllm_draws_with_the_adapter_in_training(
    url: str, demo_store: Path, tmp_path: Path
) -> None:
    import torch

    made = adapter_config(DEFAULT_ADAPTER)
    config = TrainingConfig(
        base=made["base_model_name_or_path"],
        start=str(DEFAULT_ADAPTER),
        lora_rank=made["r"],
        lora_alpha=made["lora_alpha"],
        lora_targets=tuple(made["target_modules"]),
    )
    check_rollouts(url, config)
    with closing(open_graph(demo_store)) as graph, closing(graph.names()) as names:
        linker = Linker(graph, names)
        questions = [
            Question(text, text, tuple(Entity(one.name, one.mid) for one in linker.link(text)), ())
            for text in QUESTIONS
        ]
        decoding, grpo = Decoding("graph", graph), GrpoConfig(group=GROUP, rollouts=url)
        policy = WriterPolicy(config, grpo, decoding, torch.device("cpu"), tmp_path / "handed")
        drawn = policy.draw(questions, "seed")
        assert [group.question for group in drawn] == questions
        for group in drawn:
            assert sum(text.times for text in group.texts) == GROUP

        [adapter] = policy.sampler.server.served() - {"base"}  # type: ignore[union-attr]
        by_server = ServerGenerator(url, policy.prompt, adapter, decoding, timeout_s=600)
        found = by_server.generate([as_request(question) for question in questions], 1)
        written = policy.write(questions)
        assert [[one.text for one in some] for some in found] == [
            [] if one is None else [one.text] for one in written
        ]

        for weight in policy.model.parameters().values():
            weight.data = torch.randn_like(weight) * 0.05
        [broken] = policy.draw(questions[:1], "seed")
        assert broken.texts != drawn[0].texts
        assert policy.sampler.server.served() - {"base", adapter}  # type: ignore[union-attr]
        policy.sampler.close()
        assert policy.sampler.server.served() == {"base"}  # type: ignore[union-attr]
