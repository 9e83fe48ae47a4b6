"""What a manifest and a card tell about the questions of a training run."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kbqa.training.data.training_set import NAMED_SKIPS, Example, ExampleSet, Split


def data_record(
    gathered: ExampleSet, split: Split, also_left_out: Mapping[str, tuple[str, ...]]
) -> dict[str, object]:
    """Record which questions were used, and which were left out and why.

    Args:
        gathered: The examples, and what was left out.
        split: The examples that were trained on, and those held out.
        also_left_out: Set and id of examples that the training itself left out, by reason.
    """
    return {
        "files": [one._asdict() for one in gathered.files],
        "scored": [one._asdict() for one in gathered.scored],
        "sets": list(_sets(split)),
        "left_out": [*_left_out(gathered), *_left_out_in_training(also_left_out)],
    }


def write_untrained(output: Path, split: Split) -> None:
    """Write the questions that a model was not trained on to files in its run's folder.

    What is fitted to it, such as the confidence model to what the writer writes, needs them. Each
    set has `held_out.SET.jsonl`, and `fold.SET.jsonl` if a fold was left out. A row is
    ``{"id", "question"}``, as `kbqa crp generate` reads it.
    """
    _write_questions(output, "held_out", split.valid)
    _write_questions(output, "fold", split.in_fold)


def _write_questions(output: Path, part: str, examples: Iterable[Example]) -> None:
    sets: dict[str, dict[str, str]] = defaultdict(dict)
    for example in examples:
        sets[example.source][example.id] = example.question
    for source, questions in sets.items():
        rows = [
            json.dumps({"id": row_id, "question": question}, ensure_ascii=False) + "\n"
            for row_id, question in questions.items()
        ]
        (output / f"{part}.{source}.jsonl").write_text("".join(rows), encoding="utf-8")


def data_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """Write a record of `data_record` in Markdown, for a card."""
    yield "| question set | trained on | held out |"
    yield "|---|---|---|"
    for one in data["sets"]:
        yield f"| {one['name']} | {one['trained_on']:,} | {one['held_out']:,} |"
    yield from ("", "Left out, by reason:", "")
    if not data["left_out"]:
        yield "- none"
    for one in data["left_out"]:
        yield f"- {one['count']:,}: {one['reason']}"
    yield ""
    yield "Rows marked `test_parent` are never used: a test question was made from each of them, or"
    yield "they from one. No training question is held out, or was made from one that is."
    yield ""
    for file in data["files"]:
        yield f"- `{file['name']}`: SHA-256 {file['sha256']}"
    for file in data["scored"]:
        yield (
            f"- test set `{file['name']}` (neither its questions nor related ones are used):"
            f" SHA-256 {file['sha256']}"
        )


def _sets(split: Split) -> Iterator[Mapping[str, object]]:
    train = Counter(example.source for example in split.train)
    valid = Counter(example.source for example in split.valid)
    for source in sorted({*train, *valid}):
        yield {"name": source, "trained_on": train[source], "held_out": valid[source]}


def _left_out(gathered: ExampleSet) -> Iterator[Mapping[str, object]]:
    """Count the rows left out by reason, and name the first few."""
    for reason, count in sorted(gathered.skipped.items()):
        yield {"reason": reason, "count": count, "rows": gathered.skipped_rows.get(reason, [])}


def _left_out_in_training(
    also_left_out: Mapping[str, tuple[str, ...]],
) -> Iterator[Mapping[str, object]]:
    for reason, rows in also_left_out.items():
        if rows:
            yield {"reason": reason, "count": len(rows), "rows": list(rows[:NAMED_SKIPS])}
