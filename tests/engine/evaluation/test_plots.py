import sys
from itertools import combinations
from pathlib import Path

import pytest
from made_runs import make_row, make_walked_row, write_run

from kbqa.engine.evaluation.plots import draw_figures, draw_report
from kbqa.engine.evaluation.report import Report, make_report
from kbqa.engine.evaluation.rows import read_run
from kbqa.sparql.errors import InputError

TYPES = ("comparative", "composition", "conjunction", "superlative")
TIERS = ("independent", "annotated", "none")
STAGES = ("specialised", "general")


@pytest.fixture
def report(tmp_path: Path) -> Report:
    rows = [
        make_row(
            str(at),
            ["m.1"] if at % 7 else (),
            type=TYPES[at % 4],
            tier=TIERS[at % 3],
            stage=STAGES[at % 2] if at % 7 else None,
            level=("full", "string")[at % 5 == 0],
            confidence=at / 60 if at % 7 else None,
            gold_shape={"hops": 1 + at % 5, "constraints": at % 4, "ordered": False},
        )
        for at in range(60)
    ]
    return make_report(read_run(write_run(tmp_path, rows)))


def test_pictures_are_drawn_of_what_is_known(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the plots extra")
    pictures = draw_report(report, tmp_path / "new" / "folder")
    assert [picture.name for picture in pictures] == [
        "run.f1-by-type.png",
        "run.f1-by-depth.png",
        "run.f1-by-constraints.png",
        "run.answered-by-stage.png",
        "run.confidence.png",
        "run.coverage.png",
    ]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_no_texts_overlap(report: Report) -> None:
    pytest.importorskip("matplotlib", reason="needs the plots extra")
    for name, figure in draw_figures(report).items():
        figure.canvas.draw()
        [axes] = figure.axes
        texts = [*axes.get_xticklabels(), *axes.get_yticklabels(), *axes.texts]
        texts += [axes.xaxis.label, axes.yaxis.label]
        boxes = {
            f"{text.get_text()} {at}": text.get_window_extent()
            for at, text in enumerate(texts)
            if text.get_text()
        }
        for (first, box), (second, other) in combinations(boxes.items(), 2):
            assert not box.overlaps(other), f"{name}: {first!r} and {second!r}"
        for label, box in boxes.items():
            assert figure.bbox.padded(1).containsx(box.x0), f"{name}: {label!r} is cut"
            assert figure.bbox.padded(1).containsx(box.x1), f"{name}: {label!r} is cut"


def test_stages_of_any_method_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the plots extra")
    stages = ("walk", "guess", "ask", "other")
    rows = [make_walked_row(stage, ["m.1"]) | {"stage": stage} for stage in stages]
    report = make_report(read_run(write_run(tmp_path, [*rows, make_walked_row("none")])))
    figure = draw_figures(report)["answered-by-stage"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [*sorted(stages), "no answer"]


def test_questions_without_gold_queries_have_one_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the plots extra")
    report = make_report(read_run(write_run(tmp_path, [make_row("a", ["m.1"])])))
    assert list(draw_figures(report)) == ["answered-by-stage"]


def test_a_missing_matplotlib_is_reported(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'kbqa\[plots\]'"):
        draw_report(report, tmp_path)


def test_a_folder_that_cannot_be_made_is_reported(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the plots extra")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        draw_report(report, tmp_path / "file")
