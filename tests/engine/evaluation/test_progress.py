from made_runs import make_failed_row, make_row

from kbqa.engine.evaluation.progress import RunProgress
from kbqa.engine.evaluation.runs.rows import Row
from kbqa.engine.evaluation.scores.metrics import METRICS


def _row(f1: float | None, general_calls: int | None) -> Row:
    if general_calls is None:
        return Row.model_validate(make_failed_row("a"))
    scores = None if f1 is None else {**dict.fromkeys(METRICS, 0.0), "f1": f1, "hit": float(f1 > 0)}
    usage = {"general": {"calls": general_calls}}
    return Row.model_validate(make_row("a", scores=scores, usage=usage))


def test_nothing_is_known_before_the_first_row() -> None:
    progress = RunProgress(3)
    assert progress.left == 3
    assert progress.figures()["F1"] == "0.000"


def test_rows_are_added_up() -> None:
    progress = RunProgress(6)
    for row in (_row(0.5, 2), _row(1.0, 0), _row(None, 0), _row(0.0, None)):
        progress.add(row)
    assert progress.left == 3
    assert progress.figures() == {
        "n": "3",
        "F1": "0.500",
        "hit": "0.667",
        "errors": "1",
        "general calls": "0.50",
    }
