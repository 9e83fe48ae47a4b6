"""The questions that a run held out, as question sets of their own.

Whatever is fitted to what a model writes, as the confidence model is, wants questions that the
model was not trained on.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from kbqa.training.data import Example


def write_held_out(output: Path, held_out: Iterable[Example]) -> None:
    """Write each question set's held-out questions to `held_out.SET.jsonl` in a run's folder.

    A row is ``{"id", "question"}``, as `kbqa crp generate` reads it.
    """
    sets: dict[str, dict[str, str]] = defaultdict(dict)
    for example in held_out:
        sets[example.source][example.id] = example.question
    for source, questions in sets.items():
        rows = [
            json.dumps({"id": row_id, "question": question}, ensure_ascii=False) + "\n"
            for row_id, question in questions.items()
        ]
        (output / f"held_out.{source}.jsonl").write_text("".join(rows), encoding="utf-8")
