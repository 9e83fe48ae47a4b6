"""The files of training: states of runs, logs, and examples that were prepared."""

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kbqa.training.judge.pools import read_judged, read_texts
from kbqa.training.retriever.labels import Labelled, load_labelled, load_names, save_labelled
from kbqa.training.run import LOG_FILE, RunFolder
from tools.fuzz.files.format import Format

_STEP = {"step": 1, "epoch": 0.5, "loss": 1.5}


@contextmanager
def training_files(folder: Path) -> Iterator[list[Format]]:
    """Files of training runs."""
    yield [*_pools(folder), *_examples(folder), *_run(folder)]


def _pools(folder: Path) -> list[Format]:
    texts, features = folder / "pools.jsonl", folder / "features.jsonl"
    row = {"id": "1", "question": "a?", "candidates": [["capital", 1.0], ["area", 0.0]]}
    texts.write_text((json.dumps(row) + "\n") * 3, encoding="utf-8")
    judged = {"id": "1", "candidates": [[{"share": 1.0}, 1.0], [{"share": 0.0}, 0.0]]}
    features.write_text((json.dumps(judged) + "\n") * 3, encoding="utf-8")
    return [
        Format("texts of a judge", texts, lambda: list(read_texts(texts)), is_rows=True),
        Format("features of a judge", features, lambda: list(read_judged(features)), is_rows=True),
    ]


def _examples(folder: Path) -> list[Format]:
    path = folder / "example.npz"
    places = np.array([0, 1], dtype=np.int32)
    save_labelled(
        path,
        Labelled(
            question="a?",
            relations=("a.b",),
            nodes=2,
            topics=1,
            heads=places,
            links=places,
            tails=places,
            stated=places,
            facts=1,
            matches=places[None],
            answers=places,
            shortest=np.array([True, False]),
            names=("A", None),
        ),
    )

    def read() -> object:
        found = load_labelled(path)
        return found.question, found.relations, found.heads.tolist(), load_names(path)

    return [Format("labelled example", path, read, is_text=False)]


def _run(folder: Path) -> list[Format]:
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    run = RunFolder(folder / "run")
    settings = {"epochs": 2, "rank": 8}
    with run.claimed(settings):
        run.log(_STEP)
        run.log({**_STEP, "step": 2})
        run.save_checkpoint(
            {"adapter": {"a": torch.ones(2)}, "optimizer": {}, "step": 2, "losses": [1.0]}
        )
    (state,) = run.path.rglob("state.pt")

    def resume() -> object:
        found = run.last_checkpoint()
        return found and (found["step"], found["adapter"]["a"].tolist(), found["losses"])

    def cut_log() -> object:
        run.cut_log(2)
        lines = (run.path / LOG_FILE).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    config = run.path / "training_config.json"
    return [
        Format("state of training", state, resume, is_text=False),
        Format("log of training", run.path / LOG_FILE, cut_log, is_rows=True),
        Format("settings of training", config, lambda: run.check(settings)),
    ]
