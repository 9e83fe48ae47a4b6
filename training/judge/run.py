"""Train a judge from question sets and a graph, in a folder that can be resumed.

A judge must learn from candidates that are like those it will see: written for questions that the
writer does not know. So the questions are divided into folds of families. For each fold there is a
writer that was trained on all others (`kbqa train-crp --leave-out-fold`), which writes for the
fold. The cross-encoder is trained on what it wrote, and on what a search adds. The same holds for
the features that the confidence model weighs: those of a fold come from a cross-encoder that was
trained on the other folds. In the end one cross-encoder is trained on all.

Source: Wolpert 1992, stacked generalization, for features from models that do not know the example.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbqa.engine.methods.router.pool import PathPool
from kbqa.engine.running.confidence import ConfidenceModel
from kbqa.engine.running.cross_encoder import SETTINGS_FILE, CrossEncoder
from kbqa.engine.running.reading import CONFIDENCE_FILE, READER_FOLDER, CandidateReader
from kbqa.engine.setup import Resources
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.errors import TrainingError
from kbqa.training.judge.confidence import fit_confidence
from kbqa.training.judge.pools import PoolRunner, Pools, read_judged, read_texts, write_rows
from kbqa.training.judge.reading import ReadingConfig, Step, train_reading


@dataclass(frozen=True, slots=True)
class Reports:
    """Called with the progress of a run.

    Attributes:
        begun: With what is begun.
        pooled: With the number of questions whose candidates have been run since the last call.
        trained: As the cross-encoder is trained.
    """

    begun: Callable[[str], object] = lambda stage: None
    pooled: Callable[[int], object] = lambda done: None
    trained: Callable[[Step], None] = lambda step: None


def train_judge(
    folds: Sequence[Pools],
    resources: Resources,
    pool: PathPool | None,
    output: Path,
    config: ReadingConfig,
    fitted_on: str,
    reports: Reports | None = None,
) -> ConfidenceModel:
    """Train a cross-encoder and fit a confidence model to it, or resume this in the same folder.

    Args:
        folds: At least two, each with what a writer wrote that was not trained on them.
        resources: Graph, names and linker.
        pool: Searches further candidates; None if only written ones count.
        output: The folder: the cross-encoder in ``reader``, the model beside it.
        config: How the cross-encoder is trained.
        fitted_on: Describes the questions, for reports.
        reports: Called with the progress.

    Raises:
        TrainingError: There are not two folds, or nothing to learn from.
        GraphError: The graph does not answer.
    """
    if len(folds) < 2:
        raise TrainingError("a judge needs at least two folds: give the writer of each")
    reports, runner = reports or Reports(), PoolRunner(resources, pool)
    texts = [output / f"pools-{at}.jsonl" for at in range(1, len(folds) + 1)]
    for at, (fold, path) in enumerate(zip(folds, texts, strict=True), 1):
        reports.begun(f"running the candidates of fold {at}")
        write_rows(path, fold, runner.texts, reports.pooled)

    features = [output / f"features-{at}.jsonl" for at in range(1, len(folds) + 1)]
    for at, (fold, path) in enumerate(zip(folds, features, strict=True), 1):
        others = [each for each in texts if each != texts[at - 1]]
        reader = _trained(output / f"{READER_FOLDER}-{at}", others, config, reports)
        reading = CandidateReader(reader, GraphSchema(resources.graph))
        reports.begun(f"reading the candidates of fold {at}")
        read = PoolRunner(resources, pool, reading)
        write_rows(path, fold, read.features, reports.pooled)

    _trained(output / READER_FOLDER, texts, config, reports)
    model = fit_confidence(list(read_judged(features)), fitted_on, config.seed)
    model.save(output / CONFIDENCE_FILE)
    return model


def _trained(
    folder: Path, texts: Sequence[Path], config: ReadingConfig, reports: Reports
) -> CrossEncoder:
    """Train a cross-encoder, unless its folder has it already."""
    if not (folder / SETTINGS_FILE).is_file():
        reports.begun(f"training {folder.name}")
        train_reading(list(read_texts(texts)), folder, config, reports.trained)
    return CrossEncoder.load(folder)
