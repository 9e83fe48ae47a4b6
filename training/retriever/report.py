"""The manifest, the held-out questions and the card of a training run of the scorer."""

import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kbqa.engine.files.provenance import git_revision, hardware, package_versions
from kbqa.training.data.data_record import data_lines, data_record, write_untrained
from kbqa.training.data.training_set import ExampleSet
from kbqa.training.retriever.config import CHOSEN_BY, RetrieverConfig
from kbqa.training.retriever.recall import CUTOFFS, Recalls
from kbqa.training.retriever.run import RetrieverResult
from kbqa.training.writer.run_folder import LOG_FILE

MANIFEST_FILE = "training_manifest.json"
CARD_FILE = "README.md"
SCHEMA_VERSION = 1

_PACKAGES = ("numpy", "safetensors", "scipy", "sentence-transformers", "torch")


def write_reports(
    output: Path, config: RetrieverConfig, gathered: ExampleSet, result: RetrieverResult
) -> None:
    """Write the manifest, the held-out questions and the card into the folder of a run.

    Args:
        output: Folder of the run, with its log.
        config: The settings of the run.
        gathered: The questions, and what was left out.
        result: What `train_retriever` returned.
    """
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kbqa": version("kbqa"),
        "git": git_revision(),
        "python": platform.python_version(),
        "packages": package_versions(_PACKAGES),
        "hardware": hardware(),
        "embedder": result.card.embedder,
        "settings": asdict(config),
        "data": data_record(gathered, result.split, {}),
        "result": {
            "epochs": result.trained.epochs,
            "best_epoch": result.trained.best.epoch,
            "weights": result.trained.weights.size,
            "cutoffs": CUTOFFS,
            "held_out": {name: found._asdict() for name, found in result.recall.items()},
        },
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    (output / MANIFEST_FILE).write_text(text, encoding="utf-8")
    write_untrained(output, result.split)
    lines = _card(record, result.recall, output)
    (output / CARD_FILE).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _recall_lines(recall: Mapping[str, Recalls]) -> Iterator[str]:
    """Tabulate recalls in Markdown, a row for each scorer and measure."""
    yield f"| scorer | recall of | {' | '.join(f'at {each}' for each in CUTOFFS)} |"
    yield f"|---|---|{'---|' * len(CUTOFFS)}"
    for name, found in recall.items():
        for measure, values in found._asdict().items():
            yield f"| {name} | {measure} | {' | '.join(f'{value:.3f}' for value in values)} |"


def _card(manifest: Mapping[str, Any], recall: Mapping[str, Recalls], output: Path) -> list[str]:
    settings, result = manifest["settings"], manifest["result"]
    return [
        "# Scorer of triples",
        "",
        "A perceptron that says how likely a triple near a question's topics helps to answer it.",
        "Written by `kbqa train-retriever`. It knows words of relations, but no facts.",
        "",
        "## Data",
        "",
        *data_lines(manifest["data"]),
        "",
        "## Training",
        "",
        f"- embedder: {manifest['embedder']}, frozen",
        f"- {result['weights']:,} weights, saved in float16",
        f"- labels: {settings['labels']}; rounds of distance encoding: {settings['rounds']};"
        f" of relations: {settings['relation_input']}; of entities: {settings['entity_text']}",
        f"- at most {settings['negatives']:,} wrong triples of a question in a step,"
        f" {settings['batch_size']} questions a step, Adam, learning rate"
        f" {settings['learning_rate']:g}, seed {settings['seed']}",
        f"- {result['epochs']} epochs, the weights are those of epoch {result['best_epoch']}",
        "",
        f"| epoch | loss | gold facts among {CHOSEN_BY} triples, held out |",
        "|---|---|---|",
        *_epochs(output),
        "",
        "## Measured on the held-out questions",
        "",
        "Among the first triples: the share of gold facts (triples), of questions with all facts",
        "of one match of the gold query (path), and of answers.",
        "",
        *_recall_lines(recall),
        "",
        "## Versions",
        "",
        f"- kbqa {manifest['kbqa']}, git {manifest['git'] or 'unknown'}",
        f"- Python {manifest['python']}",
        *(f"- {name} {found}" for name, found in manifest["packages"].items() if found),
    ]


def _epochs(output: Path) -> Iterator[str]:
    for line in (output / LOG_FILE).read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        held_out = one["valid_recall"]
        shown = "–" if held_out is None else f"{held_out:.4f}"
        yield f"| {one['epoch']} | {one['loss']:.4f} | {shown} |"
