"""Files of candidates of a question set, for runs that start from them.

Each row is written when it is ready, and the same call again resumes an incomplete file. A manifest
beside the file records how it was made (`kbqa.engine.files.manifest`).
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbqa.engine.files.json_lines import drop_unfinished_line, read_rows
from kbqa.engine.files.manifest import claimed, file_sha256
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.crp_records import written_record, written_text
from kbqa.engine.writing.generate import Candidate, Request, write_apart
from kbqa.sparql.errors import AnsweringError, GraphError, InputError, KbqaError

Write = Callable[[Sequence[Request]], Sequence[Sequence[Candidate]]]
"""Writes the candidates of some questions, best first."""


def write_beams(
    generate: Write,
    questions: Sequence[Question],
    output: Path,
    *,
    source: Path,
    settings: dict[str, object],
    gold_entities: bool,
    batch_size: int,
    report: Callable[[int], object] = lambda done: None,
) -> None:
    """Write a row ``{"id", "crps": […], "seconds"}`` for each question.

    A path is ``{"crp", "routerkgqa", "logprob", "tokens", "topics"}``. `seconds` is the wall time
    of the question's batch, divided by its questions.

    Args:
        generate: Called with the questions of one batch.
        questions: Those that `output` already holds are skipped.
        output: JSON Lines.
        source: The file that the questions are from.
        settings: Other settings that decide the rows, for the manifest: model, candidates, graph.
        gold_entities: Give the gold topics with the questions.
        batch_size: Questions to generate for at once.
        report: Called with the number of questions already written, and then with that of each
            batch.

    Raises:
        InputError: `output` cannot be written, holds anything but beams made with these settings,
            or another process is writing to it.
        ModelError: The model failed.
        GraphError: The graph failed for some questions; those have no row.
        AnsweringError: Something else did.
    """
    settings = {
        "questions_sha256": file_sha256(source),
        "gold_entities": gold_entities,
        **settings,
    }
    with claimed(output, settings, {"questions": str(source)}) as is_begun:
        if is_begun:
            drop_unfinished_line(output)
        written = read_beams(output) if is_begun else {}
        report(len(written))
        # Questions of similar length share a batch: padding is wasted work.
        unwritten = sorted(
            (question for question in questions if question.id not in written),
            key=lambda question: len(question.text),
        )
        failed: dict[str, Exception] = {}
        with output.open("a", encoding="utf-8") as rows:
            for at in range(0, len(unwritten), batch_size):
                batch = unwritten[at : at + batch_size]
                requests = [Request(q.text, q.topics if gold_entities else ()) for q in batch]
                begun = time.perf_counter()
                written_now = write_apart(generate, requests)
                seconds = (time.perf_counter() - begun) / len(batch)
                for question, candidates in zip(batch, written_now, strict=True):
                    if isinstance(candidates, Exception):
                        failed[question.id] = candidates
                    else:
                        rows.write(_line(question.id, candidates, seconds))
                rows.flush()
                report(len(batch))
        if failed:
            first, error = next(iter(failed.items()))
            is_graph = all(isinstance(each, GraphError) for each in failed.values())
            said = str(error) if isinstance(error, KbqaError) else repr(error)
            raise (GraphError if is_graph else AnsweringError)(
                f"{'the graph' if is_graph else 'writing'} failed for {len(failed)} of "
                f"{len(questions)} questions, and nothing was written for these (the first is "
                f"{first}: {said}). Run the same command to try them again."
            )


def read_beams(path: Path) -> dict[str, list[Candidate]]:
    """Read the candidates that `kbqa crp generate` wrote.

    Raises:
        InputError: The file is missing or not of that form.
    """
    beams = {}
    for number, row in read_rows(path):
        try:
            beams[str(row["id"])] = [_candidate(crp) for crp in row["crps"]]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}, line {number}: not a row of beams ({error!r})") from None
    return beams


def _candidate(crp: Mapping[str, Any]) -> Candidate:
    topics = tuple(map(str, crp.get("topics", ())))
    return Candidate(written_text(crp), float(crp["logprob"]), int(crp.get("tokens", 1)), topics)


def _line(id_: str, candidates: Sequence[Candidate], seconds: float) -> str:
    crps = [
        {
            **written_record(candidate.text),
            "logprob": round(candidate.logprob, 4),
            "tokens": candidate.tokens,
            "topics": candidate.topics,
        }
        for candidate in candidates
    ]
    row = {"id": id_, "crps": crps, "seconds": round(seconds, 4)}
    return json.dumps(row, ensure_ascii=False) + "\n"
