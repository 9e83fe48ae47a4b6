from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from made_runs import make_row, write_run

from kbqa.sparql.errors import InputError
from tools.methods.plot_sweep import main

pytest.importorskip("matplotlib", reason="needs the plots extra")


def _run(directory: Path, history: object, right: int, *, method: str = "bpc") -> Path:
    usage = {"general": {"calls": 2, "input_tokens": 100 * right, "output_tokens": 5}}
    rows = [make_row(str(at), ["m.1"] if at < right else (), usage=usage) for at in range(4)]
    rows.append(make_row("not evidenced", ["m.1"], tier="none"))
    of_method = {"name": method, "history": history, "chooser": "llm"}
    return write_run(directory, rows, f"{method}.{history}", method=of_method)


def _plot(directory: Path, *arguments: object) -> Result:
    options = ["--versus", "method.history", "--output", directory / "sweep.png", *arguments]
    return CliRunner().invoke(main, list(map(str, options)))


def test_a_sweep_is_printed_and_drawn(tmp_path: Path) -> None:
    runs = [_run(tmp_path, "full", 2), _run(tmp_path, 10, 4), _run(tmp_path, 2, 1)]
    done = _plot(tmp_path, *runs, _run(tmp_path, 2, 3, method="tog"))
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "| F1 by method.history | 2 | 10 | full |",
        "|---|---:|---:|---:|",
        "| bpc | 0.250 [0.000, 0.750] | 1.000 [1.000, 1.000] | 0.500 [0.000, 1.000] |",
        "| tog | 0.750 [0.250, 1.000] | – | – |",
    ]
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("metric", "cell"),
    [("hits_at_1", "0.500 [0.000, 1.000]"), ("input_tokens", "200.000 [200.000, 200.000]")],
)
def test_any_metric_is_drawn(tmp_path: Path, metric: str, cell: str) -> None:
    run = _run(tmp_path, 1, 2)
    done = _plot(tmp_path, run, "--metric", metric, "--line", "method.name", "--line", "n")
    assert f"| bpc, 5 | {cell} |" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--line", "method.shape"), "has no setting method.shape"),
        (("--metric", "names.f1"), "has no row with names.f1"),
        (("--line", "method.chooser"), "a second run of llm at 1"),
    ],
)
def test_runs_that_make_no_sweep_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    runs = _run(tmp_path, 1, 2), _run(tmp_path, 1, 2, method="tog")
    done = _plot(tmp_path, *runs, *arguments)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
