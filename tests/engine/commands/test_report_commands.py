import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from made_runs import make_row, write_run

from kbqa.engine.cli import main


def _call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    first = write_run(tmp_path, [make_row("q", tier="independent"), make_row("p")], "a")
    return first, write_run(tmp_path, [make_row("q", ["m.1"], tier="independent")], "b")


@pytest.mark.parametrize(
    ("options", "start"),
    [((), "Run a, linked entities\n═"), (("--markdown",), "# Run a, linked entities\n\n- **rows")],
    ids=["text", "Markdown"],
)
def test_a_report_is_printed(runs: tuple[Path, Path], options: tuple[str], start: str) -> None:
    done = _call("report", runs[0], *options)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(start)


def test_a_report_is_printed_as_json(runs: tuple[Path, Path]) -> None:
    record = json.loads(_call("report", runs[0], "--json").stdout)
    assert (record["schema_version"], record["rows"]) == (1, 2)


def test_scores_by_name_are_an_option(runs: tuple[Path, Path]) -> None:
    assert "names of answers" not in _call("report", runs[0]).stdout
    assert "Scores by the names of answers" in _call("report", runs[0], "--names").stdout


@pytest.mark.parametrize("command", ["report", "compare"])
def test_resamples_are_an_option(runs: tuple[Path, Path], command: str) -> None:
    files = runs[:1] if command == "report" else runs
    assert "1,000 resamples" in " ".join(_call(command, *files).stdout.split())
    more = _call(command, *files, "--resamples", 10_000).stdout
    assert "10,000 resamples" in " ".join(more.split())
    assert "10 is not in the range" in _call(command, *files, "--resamples", 10).stderr


def test_a_comparison_by_names_is_an_option(tmp_path: Path) -> None:
    rows = [make_row("q", ["m.1"], gold_names=[["else"]])]
    runs = write_run(tmp_path, rows, "a"), write_run(tmp_path, rows, "b")
    assert "F1, SubgraphRAG" not in _call("compare", *runs).stdout
    assert "F1, SubgraphRAG" in _call("compare", *runs, "--names").stdout


def test_pictures_are_told_on_stderr(runs: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the plots extra")
    done = _call("report", runs[0], "--json", "--plots", tmp_path / "pictures")
    [picture] = (tmp_path / "pictures").iterdir()
    assert done.stderr == f"drew {picture}\n"
    json.loads(done.stdout)


@pytest.mark.parametrize(
    ("options", "start"),
    [((), "Run b (B) against a (A)\n═"), (("--markdown",), "# Run b (B) against a (A)\n\n- **A**")],
    ids=["text", "Markdown"],
)
def test_a_comparison_is_printed(runs: tuple[Path, Path], options: tuple[str], start: str) -> None:
    done = _call("compare", *runs, *options)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(start)
    assert "Win +1.000, q" in done.stdout
    assert "Win +" not in _call("compare", *runs, "--examples", 0, *options).stdout


def test_a_comparison_is_printed_as_json(runs: tuple[Path, Path]) -> None:
    record = json.loads(_call("compare", *runs, "--json", "--metric", "hit").stdout)
    assert (record["metric"], record["only_a"], len(record["wins"])) == ("hit", 1, 1)


@pytest.mark.parametrize("options", [(), ("--markdown",), ("--json",)], ids=["text", "md", "json"])
def test_half_a_surrogate_pair_can_be_printed(tmp_path: Path, options: tuple[str, ...]) -> None:
    question = "who is \ud83d?"
    first = write_run(tmp_path, [make_row("q", question=question)], "a")
    second = write_run(tmp_path, [make_row("q", ["m.1"], question=question)], "b")
    assert "who is \\ud83d?" in _call("compare", first, second, *options).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "{a}", "--json", "--markdown"), "choose one"),
        (("compare", "{a}", "{b}", "--json", "--markdown"), "choose one"),
        (("compare", "{a}", "{b}", "--metric", "accuracy"), "'accuracy' is not one of"),
        (("report", "{none}"), "does not exist"),
        (("report", "{manifest}"), "not a row of `kbqa eval`"),
    ],
)
def test_misuse_is_told(runs: tuple[Path, Path], arguments: tuple[str, ...], message: str) -> None:
    a, b = runs
    paths = {"a": a, "b": b, "none": a.parent / "x", "manifest": a.parent / "a.manifest.json"}
    done = _call(*(argument.format(**paths) for argument in arguments))
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize("command", ["report", "compare"])
def test_help_loads_nothing_heavy(command: str) -> None:
    code = (
        "import sys; from kbqa.engine.cli import main\n"
        f"try: main(['{command}', '--help'])\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "RUN.jsonl" in done.stdout or "A.jsonl" in done.stdout
    loaded = {name.split(".")[0] for name in done.stderr.split()}
    assert not loaded & {"pydantic", "matplotlib", "pyoxigraph", "polars"}
