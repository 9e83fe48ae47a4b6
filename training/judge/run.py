"""Train a judge from question sets and a graph, in a folder that can be resumed.

A judge must learn from candidates that are like those it will see: written for questions that the
writer does not know. So the confidence model is fitted to families of questions that the writer
was held out from. They are few, but it has few weights. The cross-encoder needs thousands. It does
not see how likely a path was for the writer, so it may read any question, even one that the writer
knows: what another writer wrote for it that does not know it (`kbqa train-crp --leave-out-fold`),
or its gold path, among those that a search of the graph finds. Only the held-out families are kept
from it, and from the asker, which learns all others.

Source: Wolpert 1992, stacked generalization; fitting the last model to held-out examples is
blending.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile, copytree
from typing import NamedTuple

from kbqa.engine.methods.router.search.pool import PathPool
from kbqa.engine.resources import Resources
from kbqa.engine.running.asker import ASKER_FILES, ASKER_FOLDER, Asker
from kbqa.engine.running.confidence import ConfidenceModel
from kbqa.engine.running.cross_encoder import SETTINGS_FILE, CrossEncoder
from kbqa.engine.running.precedents import PRECEDENTS_FILE, Precedents
from kbqa.engine.running.reading import CONFIDENCE_FILE, READER_FOLDER, CandidateReader
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.training.data.training_set import Example
from kbqa.training.judge.asking import train_asker
from kbqa.training.judge.confidence import fit_confidence, without_asker
from kbqa.training.judge.pools import PoolRunner, Pools, read_judged, read_texts, write_rows
from kbqa.training.judge.reading import ReadingConfig, Step, train_reading
from kbqa.training.writer.report.training_log import TrainingProgress

POOLS_FILE, FEATURES_FILE = "pools.jsonl", "features.jsonl"


@dataclass(frozen=True, slots=True)
class Reports:
    """Called with the progress of a run.

    Attributes:
        begun: With what is begun.
        pooled: With the number of questions whose candidates have been run since the last call.
        trained: As the cross-encoder is trained.
        asker_trained: As the asker is trained.
    """

    begun: Callable[[str], object] = lambda stage: None
    pooled: Callable[[int], object] = lambda done: None
    trained: Callable[[Step], None] = lambda step: None
    asker_trained: Callable[[TrainingProgress], None] = lambda progress: None


class Part(NamedTuple):
    """Questions on one graph.

    Attributes:
        read: What the cross-encoder learns to read.
        held_out: What the writer that will be judged wrote for questions that it does not know,
            of none of the families in `read`.
        resources: Graph, names and linker.
        pool: Searches further candidates; None if only written ones count.
    """

    read: Pools
    held_out: Pools
    resources: Resources
    pool: PathPool | None


def train_judge(
    parts: Sequence[Part],
    precedents: Precedents,
    asker_examples: Sequence[Example],
    output: Path,
    config: ReadingConfig,
    fitted_on: str,
    reports: Reports | None = None,
    start: Path | None = None,
) -> ConfidenceModel:
    """Train cross-encoder and asker, and fit a confidence model to them, or resume this.

    Args:
        parts: The questions.
        precedents: Questions that vote; of none of the families held out.
        asker_examples: What the asker learns; of none of the families held out.
        output: The folder: the cross-encoder in ``reader``, the asker in ``asker``, precedents and
            model beside them.
        config: How they are trained; one with 0 epochs is kept as it is in `start`.
        fitted_on: Describes the held-out questions, for reports.
        reports: Called with the progress.
        start: Folder of the judge whose cross-encoder and asker to go on from; None for new ones.

    Raises:
        ModelError: The judge to go on from is missing or does not fit.
        TrainingError: There is nothing to learn from.
        GraphError: The graph does not answer.
    """
    reports = reports or Reports()
    reports.begun("running the candidates")
    texts, features = output / POOLS_FILE, output / FEATURES_FILE
    for part in parts:
        runner = PoolRunner(part.resources, part.pool)
        write_rows(texts, part.read, runner.texts, reports.pooled)
    if start is not None and not config.epochs:
        copytree(start / READER_FOLDER, output / READER_FOLDER, dirs_exist_ok=True)
        copyfile(start / PRECEDENTS_FILE, output / PRECEDENTS_FILE)
    elif not (output / READER_FOLDER / SETTINGS_FILE).is_file():
        reports.begun("training the cross-encoder")
        former = None if start is None else start / READER_FOLDER
        train_reading(
            list(read_texts(texts)), output / READER_FOLDER, config, reports.trained, former
        )
    if config.epochs:
        precedents.save(output)
    _make_asker(asker_examples, output, config, start, reports)
    encoder, asker = CrossEncoder.load(output / READER_FOLDER), Asker.of(output)
    reports.begun("reading the candidates of held-out questions")
    for part in parts:
        reader = CandidateReader(encoder, precedents, GraphSchema(part.resources.graph), asker)
        runner = PoolRunner(part.resources, part.pool, reader)
        write_rows(features, part.held_out, runner.features, reports.pooled)
    judged = list(read_judged(features))
    model = fit_confidence(list(map(without_asker, judged)), fitted_on, config.seed)
    model.save(output / CONFIDENCE_FILE)
    if asker is not None:
        model = fit_confidence(judged, fitted_on, config.seed)
        model.save(output / ASKER_FOLDER / CONFIDENCE_FILE)
    return model


def _make_asker(
    examples: Sequence[Example],
    output: Path,
    config: ReadingConfig,
    start: Path | None,
    reports: Reports,
) -> None:
    """Train an asker, or copy that of the judge to start from, unless it is there already."""
    folder = output / ASKER_FOLDER
    former = None if start is None or Asker.of(start) is None else start / ASKER_FOLDER
    if (folder / ASKER_FILES[-1]).is_file():
        return
    if config.asker_epochs or former is not None:
        (output / FEATURES_FILE).unlink(missing_ok=True)  # They are of a judge without an asker.
    if config.asker_epochs:
        reports.begun("training the asker")
        train_asker(examples, folder, config, reports.asker_trained, former)
    elif former is not None:
        folder.mkdir(exist_ok=True)
        for name in ASKER_FILES:
            copyfile(former / name, folder / name)
