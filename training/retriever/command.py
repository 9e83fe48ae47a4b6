"""The command `kbqa train-retriever`: train a scorer of triples from question sets and a graph.

First the surroundings of all questions are looked up and labelled, each in a file. Then the scorer
is trained on nine tenths of the questions and validated on the others; no question is trained on
whose relatives are held out. The folder can be resumed.

Source: SubgraphRAG §4.1, "Training".
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import click

from kbqa.engine.commands.options import check_output
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import TextCache
from kbqa.engine.linking.linker import Linker
from kbqa.engine.retrieval.retriever import Caps, ScorerCard, load_scorer, save_scorer
from kbqa.engine.writing.checkpoint import require_lm_extra
from kbqa.kb.commands.options import (
    GraphChoice,
    graph_options,
    json_option,
    print_json,
    print_note,
    print_result,
)
from kbqa.kb.schema import GraphSchema
from kbqa.training.data.training_set import (
    ExampleSet,
    Split,
    data_lines,
    data_record,
    split_examples,
    write_untrained,
)
from kbqa.training.options import exclude_option, output_option, print_counts
from kbqa.training.retriever.examples import (
    CHOSEN_BY,
    CUTOFFS,
    Inputs,
    Recalls,
    RetrieverConfig,
    Surroundings,
    drawn_topics,
    embed_names,
    keep_labelled,
    make_inputs,
    measure_recall,
)
from kbqa.training.retriever.labels import Queries, read_queries
from kbqa.training.retriever.loop import Epoch, TrainedScorer, train_scorer
from kbqa.training.run import CARD_FILE, Record, RunFolder, read_log, write_card, write_manifest

SCORER_FILE = "retriever.json"
"""The scorer in the folder of a run; its weights are beside it."""

_SCHEMA_VERSION = 1  # of the settings that identify a run
_PACKAGES = ("numpy", "safetensors", "scipy", "sentence-transformers", "torch")
_DEFAULT = RetrieverConfig()
_REPORTED = 500


@click.command("train-retriever")
@click.option(
    "--data",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    required=True,
    metavar="FILE",
    help="Question set with SPARQL, ours or official; repeatable.",
)
@exclude_option
@output_option
@click.option(
    "--subgraphs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the labelled subgraphs, which runs with other settings may use again; by "
    "default in the folder of the run.",
)
@click.option(
    "--labels",
    type=click.Choice(["gold", "shortest"]),
    default=_DEFAULT.labels,
    help="Right triples: those that the gold query matches, or those on shortest paths between "
    "topics and answers.",
)
@click.option(
    "--rounds",
    type=click.IntRange(0),
    default=_DEFAULT.rounds,
    help="Rounds of the distance encoding; 0 for a scorer that sees no distances.",
)
@click.option(
    "--relation-input",
    type=click.Choice(["agreement", "words"]),
    default=_DEFAULT.relation_input,
    help="What the scorer sees of a relation: its words, or also how they agree with the question.",
)
@click.option(
    "--entity-text",
    type=click.Choice(["none", "name"]),
    default=_DEFAULT.entity_text,
    help="What the scorer sees of the ends of a triple besides their distances: nothing, or their "
    "names, which take long to embed.",
)
@click.option("--epochs", type=click.IntRange(1), default=_DEFAULT.epochs, help="At most.")
@click.option(
    "--patience",
    type=click.IntRange(1),
    default=_DEFAULT.patience,
    help="Stop after this many epochs without improvement.",
)
@click.option(
    "--negatives",
    type=click.IntRange(2),
    default=_DEFAULT.negatives,
    help="Wrong triples of a question in a step, at most.",
)
@click.option(
    "--seed",
    type=int,
    default=_DEFAULT.seed,
    help="Decides the initial weights, held-out questions, linked topics, order and draws.",
)
@graph_options
@json_option
def train_retriever(
    files: tuple[Path, ...],
    scored: tuple[Path, ...],
    output: Path,
    subgraphs: Path | None,
    graph: GraphChoice,
    as_json: bool,
    **settings: object,
) -> None:
    """Train the scorer of triples that retrieval uses.

    Looks up what is around the topics of each question, holds out a tenth of the questions, and
    keeps the weights that find most of their gold triples.
    """
    check_output(output)
    require_lm_extra()
    embedder = Embedder.load()
    config = RetrieverConfig(**settings)  # type: ignore[arg-type]
    queries = read_queries(files, scored)
    with closing(graph.open()) as opened:
        surroundings = Surroundings(
            opened, GraphSchema(opened), Linker(opened, opened.names()), Caps()
        )
        result = _train(queries, surroundings, embedder, output, config, subgraphs)
    _write_reports(output, config, queries.gathered, result)
    print_counts(queries.gathered)
    if as_json:
        print_json({"scorer": str(output / SCORER_FILE), **result.card.held_out})
    else:
        print_result(f"scorer in {output / SCORER_FILE}; its card is {output / CARD_FILE}")


class _Result(NamedTuple):
    """A run's result, with the recalls of the scorer and of the cosine on held-out questions."""

    card: ScorerCard
    split: Split
    trained: TrainedScorer
    recall: dict[str, Recalls]


def _train(
    queries: Queries,
    surroundings: Surroundings,
    embedder: Embedder,
    output: Path,
    config: RetrieverConfig,
    subgraphs: Path | None,
) -> _Result:
    """Train a scorer, or resume an interrupted run in the same folder.

    Several runs may use the folder of labelled subgraphs one after another.
    """
    looked_up = {
        "schema_version": _SCHEMA_VERSION,
        **asdict(surroundings.caps),
        **surroundings.graph.identity().settings,
        "seed": config.seed,
    }
    subgraphs = subgraphs or output / "subgraphs"
    hashes = {file.name: file.sha256 for file in queries.gathered.files}
    settings = {
        **looked_up,
        **asdict(config),
        "embedder": embedder.name,
        "data": hashes,
        "scored": {file.name: file.sha256 for file in queries.gathered.scored},
    }
    folder = RunFolder(output)
    with folder.claimed(settings):
        with RunFolder(subgraphs).claimed(looked_up):
            kept = keep_labelled(
                queries,
                replace(surroundings, with_names=config.entity_text == "name"),
                subgraphs,
                lambda example: drawn_topics(config.seed, example),
                _print_labelled,
            )
            paths = {each.example: each.path for each in kept}
            names = None
            if config.entity_text == "name":
                file = subgraphs / f"names-{embedder.name.replace(' ', '-')}.sqlite"
                cache = TextCache(file, "embeddings of names")
                names = embed_names(list(paths.values()), embedder, cache, _print_embedded)
        split = split_examples(paths, len(paths) // 10)
        train, valid = (
            make_inputs([paths[each] for each in part], embedder, config, names)
            for part in (split.train, split.valid)
        )
        trained = train_scorer(train, valid, folder, config, _print_epoch)
        card = ScorerCard(
            embedder=embedder.name,
            rounds=config.rounds,
            relation_input=config.relation_input,
            labels=config.labels,
            trained_on=dict(sorted(Counter(one.source for one in split.train).items())),
            data_sha256=hashes,
            held_out={},
            entity_text=config.entity_text,
        )
        scorer = output / SCORER_FILE
        save_scorer(scorer, trained.weights, card)
        recall = _held_out_recall(valid, scorer, config)
        if recall:
            card = replace(card, held_out=_summary(recall["scorer"], len(valid)))
            save_scorer(scorer, trained.weights, card)
    return _Result(card, split, trained, recall)


def _print_labelled(done: int, of: int) -> None:
    if done % _REPORTED == 0 or done == of:
        print_note(f"{done:,} of {of:,} questions looked up")


def _print_embedded(done: int, of: int) -> None:
    print_note(f"{done:,} of {of:,} names embedded")


def _print_epoch(epoch: Epoch) -> None:
    recall = epoch.valid_recall
    held_out = "" if recall is None else f"  held out, recall@{CHOSEN_BY} {recall:.4f}"
    print_note(f"epoch {epoch.epoch}  loss {epoch.loss:.4f}{held_out}")


def _held_out_recall(
    valid: list[Inputs], scorer: Path, config: RetrieverConfig
) -> dict[str, Recalls]:
    """Measure the scorer as it is written, in float16, and the cosine."""
    if not valid:
        return {}
    weights, _ = load_scorer(scorer)
    return {
        "scorer": _mean_recall(
            [measure_recall(e.score(weights, config), e.labelled) for e in valid]
        ),
        "cosine": _mean_recall([measure_recall(e.cosines(), e.labelled) for e in valid]),
    }


def _mean_recall(recalls: Sequence[Recalls]) -> Recalls:
    """Average recalls over questions."""
    by_measure = zip(*recalls, strict=True)
    return Recalls(*(tuple(map(fmean, zip(*each, strict=True))) for each in by_measure))


def _summary(recall: Recalls, questions: int) -> dict[str, float]:
    """Summarise held-out recalls for the scorer's card."""
    at = CUTOFFS.index(CHOSEN_BY)
    return {
        "questions": questions,
        f"triple_recall_{CHOSEN_BY}": round(recall.triples[at], 4),
        f"path_recall_{CHOSEN_BY}": round(recall.path[at], 4),
        f"answer_recall_{CHOSEN_BY}": round(recall.answers[at], 4),
    }


def _write_reports(
    output: Path, config: RetrieverConfig, gathered: ExampleSet, result: _Result
) -> None:
    """Write the manifest, the held-out questions and the card into the folder of a run."""
    record = {
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
    manifest = write_manifest(output, _PACKAGES, record)
    write_untrained(output, result.split)
    write_card(
        output,
        manifest,
        title="Scorer of triples",
        introduction=(
            "A perceptron that says how likely a triple near a question's topics helps to answer"
            " it.",
            "Written by `kbqa train-retriever`. It knows words of relations, but no facts.",
        ),
        sections={
            "Data": data_lines(manifest["data"]),
            "Training": _training(manifest, read_log(output)),
            "Measured on the held-out questions": _measured(manifest["result"]["held_out"]),
        },
    )


def _training(manifest: Record, log: Sequence[Record]) -> Iterator[str]:
    settings, result = manifest["settings"], manifest["result"]
    yield f"- embedder: {manifest['embedder']}, frozen"
    yield f"- {result['weights']:,} weights, saved in float16"
    yield (
        f"- labels: {settings['labels']}; rounds of distance encoding: {settings['rounds']};"
        f" of relations: {settings['relation_input']}; of entities: {settings['entity_text']}"
    )
    yield (
        f"- at most {settings['negatives']:,} wrong triples of a question in a step,"
        f" {settings['batch_size']} questions a step, Adam, learning rate"
        f" {settings['learning_rate']:g}, seed {settings['seed']}"
    )
    yield f"- {result['epochs']} epochs, the weights are those of epoch {result['best_epoch']}"
    yield ""
    yield f"| epoch | loss | gold facts among {CHOSEN_BY} triples, held out |"
    yield "|---|---|---|"
    for row in log:
        recall = "–" if row["valid_recall"] is None else f"{row['valid_recall']:.4f}"
        yield f"| {row['epoch']} | {row['loss']:.4f} | {recall} |"


def _measured(recall: Mapping[str, Record]) -> Iterator[str]:
    yield "Among the first triples: the share of gold facts (triples), of questions with all facts"
    yield "of one match of the gold query (path), and of answers."
    yield ""
    yield f"| scorer | recall of | {' | '.join(f'at {each}' for each in CUTOFFS)} |"
    yield f"|---|---|{'---|' * len(CUTOFFS)}"
    for name, found in recall.items():
        for measure, values in found.items():
            yield f"| {name} | {measure} | {' | '.join(f'{value:.3f}' for value in values)} |"
