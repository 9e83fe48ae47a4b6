"""Runs on disk, as `kbqa eval` writes them, with made-up rows."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kbqa.engine.evaluation.scores import score_best

MadeRow = dict[str, Any]


def make_row(
    id_: str,
    predicted: Sequence[str] = (),
    gold: Sequence[str] = ("m.1",),
    **changes: object,
) -> MadeRow:
    """Return a row of schema_version 3 with what follows from its answers; `changes` come last.

    Changes of ``level`` and ``repair`` go into the trace.
    """
    trace = {"level": "full" if predicted else None, "beam": None, "repair": {"queries": 3}}
    trace |= {name: changes.pop(name) for name in ("level", "repair") if name in changes}
    row: MadeRow = {
        "schema_version": 3,
        "id": id_,
        "question": f"question {id_}?",
        "tier": None,
        "type": None,
        "gold": [sorted(gold)],
        "gold_shape": None,
        "answers": [{"mid": one, "name": f"name of {one}"} for one in predicted],
        "scores": asdict(score_best(predicted, [frozenset(gold)])),
        "stage": "specialised" if predicted else None,
        "trace": trace,
        "calls": 1,
        "tokens": 100,
        "usage": {
            "specialised": {
                "calls": 1,
                "input_tokens": 60,
                "output_tokens": 100,
                "best_tokens": 40,
            },
            "general": {"calls": 0, "cached_calls": 0, "cost_usd": 0.0},
        },
        "cost_usd": 0.0,
        "seconds": {"write": 1.0, "execute": 0.5},
        "error": None,
    }
    return {**row, **changes}


def make_walked_row(
    id_: str, predicted: Sequence[str] = (), *, origin: str = "graph", **changes: object
) -> MadeRow:
    """Return the row of a method that walks the graph: no stages, no relaxation, its own trace."""
    row = make_row(id_, predicted, stage=None, trace={"level": 3, "walks": [["a.b.c"]]}, **changes)
    return {**row, "answers": [{**answer, "origin": origin} for answer in row["answers"]]}


def make_failed_row(id_: str, error: str = "QueryTimeout: no result", **changes: object) -> MadeRow:
    """Return the row of a question that failed, whose cost is not known."""
    row = make_row(id_, **changes)
    row["scores"] = dict.fromkeys(row["scores"], 0.0)
    del row["seconds"]
    unknown = ("stage", "trace", "calls", "tokens", "usage", "cost_usd")
    return {**row, **dict.fromkeys(unknown), "error": error}


def write_run(
    directory: Path, rows: Sequence[MadeRow], name: str = "run", **manifest: object
) -> Path:
    """Write rows and a manifest as a run with a name, and return the file."""
    path = directory / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    said = {"schema_version": 1, "kbqa": "0.1.0", "gold_entities": False, "n": 5, **manifest}
    path.with_suffix(".manifest.json").write_text(json.dumps(said), encoding="utf-8")
    return path
