"""Runs on disk, as `kbqa eval` writes them, of made-up rows."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kbqa.engine.evaluation.metrics import score_best

MadeRow = dict[str, Any]


def make_row(
    id_: str,
    predicted: Sequence[str] = (),
    gold: Sequence[str] = ("m.1",),
    **changes: object,
) -> MadeRow:
    """Make a row of schema_version 2 with what follows from its answers; `changes` come last."""
    row: MadeRow = {
        "schema_version": 2,
        "id": id_,
        "question": f"question {id_}?",
        "tier": None,
        "type": None,
        "gold": [sorted(gold)],
        "gold_shape": None,
        "answers": [{"mid": one, "name": f"name of {one}"} for one in predicted],
        "scores": asdict(score_best(predicted, [frozenset(gold)])),
        "stage": "specialised" if predicted else None,
        "level": "full" if predicted else None,
        "beam": 0 if predicted else None,
        "calls": 1,
        "tokens": 100,
        "usage": {
            "specialised": {"calls": 1, "output_tokens": 100},
            "general": {"calls": 0, "cached_calls": 0, "cost_usd": 0.0},
        },
        "cost_usd": 0.0,
        "repair": {"queries": 3},
        "seconds": {"generate": 1.0, "execute": 0.5},
        "error": None,
    }
    return {**row, **changes}


def make_failed_row(id_: str, error: str = "QueryTimeout: no result", **changes: object) -> MadeRow:
    """Make the row of a question that failed, of which it is not known what it took."""
    row = make_row(id_, **changes)
    row["scores"] = dict.fromkeys(row["scores"], 0.0)
    del row["seconds"]
    unknown = ("stage", "level", "beam", "calls", "tokens", "usage", "cost_usd", "repair")
    return {**row, **dict.fromkeys(unknown), "error": error}


def write_run(
    directory: Path, rows: Sequence[MadeRow], name: str = "run", **manifest: object
) -> Path:
    """Write rows and a manifest as a run with a name, and give the file."""
    path = directory / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    said = {"schema_version": 1, "kbqa": "0.1.0", "gold_entities": False, "n": 5, **manifest}
    path.with_suffix(".manifest.json").write_text(json.dumps(said), encoding="utf-8")
    return path
