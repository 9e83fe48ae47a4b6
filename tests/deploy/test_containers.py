"""What the image is made by and runs with. No image is built: there is no container engine here."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kbqa.engine.cli import main

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
_, FINAL_STAGE = DOCKERFILE.split("FROM python:3.12-slim\n")
KBQA_SERVICES = {"embedded", "oxigraph", "virtuoso"}


def _exec_form(instruction: str) -> list[str]:
    """Return the words of an instruction that has them as JSON."""
    [words] = re.findall(rf"\b{instruction} (\[.*\])$", FINAL_STAGE, re.MULTILINE)
    return list(json.loads(words))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    loaded = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    return dict(loaded)


def test_the_image_serves_with_options_that_exist_and_without_rights() -> None:
    program, command, *options = _exec_form("ENTRYPOINT")
    assert program == "kbqa"
    said = CliRunner().invoke(main, [command, "--help"]).output
    assert [each for each in options if each.startswith("--") and each not in said] == []
    assert FINAL_STAGE.index("\nUSER kbqa") < FINAL_STAGE.index("\nENTRYPOINT")


def test_each_profile_publishes_on_this_machine_only(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {name for name, each in services.items() if each.get("image") == "kbqa"} == KBQA_SERVICES
    for name in KBQA_SERVICES:
        assert services[name]["profiles"] == [name]
        assert services[name]["read_only"]
    published = [port for each in services.values() for port in each.get("ports", ())]
    assert len(published) == len(KBQA_SERVICES)
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_the_services_use_variables_that_kbqa_reads(compose: dict[str, Any]) -> None:
    said = CliRunner().invoke(main, ["serve", "--help"]).output
    for name in KBQA_SERVICES:
        for variable in compose["services"][name]["environment"]:
            assert f"env var: {variable}" in " ".join(said.split())


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that are sent to the build, and no others."""
    context = tmp_path_factory.mktemp("context")
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    for name in re.findall(r"^!(.+)$", ignored, re.MULTILINE):
        source, target = ROOT / name, context / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return context


@pytest.mark.slow
def test_the_script_of_the_image_installs_a_server_that_answers(sent: Path, tmp_path: Path) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "TORCH", "TORCH_INDEX")
    }
    environment["KBQA_CACHE"] = str(tmp_path / "cache")
    installed = tmp_path / "kbqa"
    script = ["sh", str(sent / "deploy" / "install.sh"), str(installed)]
    run = subprocess.run(
        script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Nairobi  (m.")
    made = {path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir()}
    assert {"demo", "smollm2"} <= made

    program, *options = _exec_form("ENTRYPOINT")
    # Not on every address: this is no container.
    options[options.index("--host") + 1] = "127.0.0.1"
    bin_ = installed / "bin"
    with subprocess.Popen(
        [bin_ / program, *options, "--port", "0"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr is not None
            [address] = re.findall(r"http://127\.0\.0\.1:\d+", server.stderr.readline())
            health = [each.replace("http://127.0.0.1:8080", address) for each in _exec_form("CMD")]
            health[0] = str(bin_ / health[0])
            is_healthy = False
            for _ in range(120):
                check = subprocess.run(health, capture_output=True, check=False)
                if is_healthy := check.returncode == 0:
                    break
            assert is_healthy
            url = f"{address}/api/v1/ask?q=what+is+the+capital+of+Kenya%3F"
            with urllib.request.urlopen(url, timeout=60) as response:
                assert json.load(response)["answers"][0]["name"] == "Nairobi"
        finally:
            server.send_signal(signal.SIGTERM)
    assert server.returncode == 0
