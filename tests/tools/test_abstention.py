"""What it costs to decline unsure answers is measured."""

from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner
from made_runs import MadeRow, make_row, write_run

from tools.score.abstention import main as abstention


def test_thresholds_and_what_they_cost(tmp_path: Path) -> None:
    answered = [make_row(str(at), ["m.1"], confidence=at / 100) for at in range(20, 100)]
    answered.append(make_row("none", [], confidence=None))
    twins = [
        make_row(f"twin {at}", ["m.2"], gold=(), gold_unanswerable=True, confidence=at / 100)
        for at in range(10, 30)
    ]
    for twin in twins:
        twin["gold"] = []
    run = write_run(tmp_path, answered, "answered")
    other = write_run(tmp_path, twins, "twins")
    options = ["--answered", str(run), "--unanswerable", str(other), "--unsure-below", "0.25"]
    result = CliRunner().invoke(abstention, options)
    assert result.exit_code == 0, result.output
    assert "81 answerable questions, 20 others" in result.output
    assert "| 0.250 | 92.6% | 1.000 [1.000, 1.000] | 0.750 [" in result.output


def _tables(folder: Path, answered: Sequence[MadeRow], others: Sequence[MadeRow]) -> list[str]:
    """Return the table of all others, and that without the one that is answered rightly."""
    runs = (write_run(folder, answered, "answered"), write_run(folder, others, "others"))
    options = ["--answered", str(runs[0]), "--unanswerable", str(runs[1])]
    result = CliRunner().invoke(abstention, options)
    assert result.exit_code == 0, result.output
    return result.output.split("Without the 1 that are answered rightly all the same:")


def test_twins_that_are_answered_from_other_facts_count_apart(tmp_path: Path) -> None:
    answered = [make_row(id_, ["m.1"], confidence=0.9) for id_ in ("city", "river")]
    twin = {"gold": [], "gold_unanswerable": True}
    twins = [
        make_row("city", ["m.1", "m.2"], **twin, confidence=0.8),
        make_row("river", ["m.3"], **twin, confidence=0.4),
        make_row("sea", ["m.1"], **twin, confidence=0.95),
    ]
    first, rest = _tables(tmp_path, answered, twins)
    assert "2 answerable questions, 3 others; AUROC 0.667" in first
    assert "| 0.900 | 100.0% | 1.000 [1.000, 1.000] | 0.667 [" in first
    assert "2 answerable questions, 2 others; AUROC 0.500" in rest
    assert "| 0.900 | 100.0% | 1.000 [1.000, 1.000] | 0.500 [" in rest


def test_the_tier_none_has_its_own_gold_answers(tmp_path: Path) -> None:
    answered = [make_row("city", ["m.1"], confidence=0.9)]
    none = [
        make_row("river", ["m.1"], gold=("m.1",), tier="none", confidence=0.95),
        make_row("sea", ["m.2"], gold=("m.1",), tier="none", confidence=0.3),
        make_row("lake", [], gold=(), tier="none", confidence=None),
    ]
    first, rest = _tables(tmp_path, answered, none)
    assert "1 answerable questions, 3 others; AUROC 0.667" in first
    assert "1 answerable questions, 2 others; AUROC 1.000" in rest
