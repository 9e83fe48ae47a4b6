"""The command `kbqa train-retriever`.

Train a scorer of triples from question sets and a graph, in a folder that can be resumed.

First the surroundings of all questions are looked up and labelled, each in a file. Then the scorer
is trained on nine tenths of the questions and validated on the others; no question is trained on
whose relatives are held out.

Source: SubgraphRAG §4.1, "Training".

The manifest, the held-out questions and the card of a training run of the scorer.
"""

import json
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kbqa.engine.commands.options import check_output
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import TextCache, git_revision, hardware, package_versions
from kbqa.engine.retrieval.retriever import ScorerCard, load_scorer, save_scorer
from kbqa.kb.commands.options import (
    GraphChoice,
    graph_options,
    json_option,
    print_json,
    print_note,
    print_result,
)
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
from kbqa.training.retriever.labels import Queries
from kbqa.training.retriever.loop import Epoch, TrainedScorer, train_scorer
from kbqa.training.run import LOG_FILE, RunFolder

if TYPE_CHECKING:
    from kbqa.training.retriever.loop import Epoch


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
    from kbqa.engine.embedding.embedder import Embedder
    from kbqa.engine.linking.linker import Linker
    from kbqa.engine.retrieval.subgraphs import Caps
    from kbqa.engine.writing.checkpoint import require_lm_extra
    from kbqa.kb.schema import GraphSchema
    from kbqa.training.retriever.examples import Surroundings
    from kbqa.training.retriever.labels import read_queries

    check_output(output)
    require_lm_extra()
    embedder = Embedder.load()
    config = RetrieverConfig(**settings)  # type: ignore[arg-type]
    queries = read_queries(files, scored)
    with closing(graph.open()) as opened:
        surroundings = Surroundings(
            opened, GraphSchema(opened), Linker(opened, opened.names()), Caps()
        )
        result = train(
            queries,
            surroundings,
            embedder,
            output,
            config,
            subgraphs=subgraphs,
            reports=Reports(_print_labelled, _print_embedded, _print_epoch),
        )
    write_reports(output, config, queries.gathered, result)
    print_counts(queries.gathered)
    if as_json:
        print_json({"scorer": str(result.scorer), **result.card.held_out})
    else:
        print_result(f"scorer in {result.scorer}; its card is {output / 'README.md'}")


def _print_labelled(done: int, of: int) -> None:
    if done % _REPORTED == 0 or done == of:
        print_note(f"{done:,} of {of:,} questions looked up")


def _print_embedded(done: int, of: int) -> None:
    print_note(f"{done:,} of {of:,} names embedded")


def _print_epoch(epoch: "Epoch") -> None:
    recall = epoch.valid_recall
    held_out = "" if recall is None else f"  held out, recall@{CHOSEN_BY} {recall:.4f}"
    print_note(f"epoch {epoch.epoch}  loss {epoch.loss:.4f}{held_out}")


SCORER_FILE = "retriever.json"
"""The scorer in the folder of a run; its weights are beside it."""

_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Reports:
    """Called with the progress of a run.

    Attributes:
        labelled: After each question, with how many are labelled, and of how many.
        embedded: After some names, with how many are embedded, and of how many.
        trained: After each epoch.
    """

    labelled: Callable[[int, int], None] = lambda done, of: None
    embedded: Callable[[int, int], None] = lambda done, of: None
    trained: Callable[[Epoch], None] = lambda epoch: None


class RetrieverResult(NamedTuple):
    """What a run came to.

    Attributes:
        scorer: The file of the scorer.
        card: What the scorer is.
        split: The questions that were trained on, and those held out.
        trained: The weights, and the best epoch.
        recall: Mean recalls on the held-out questions by `CUTOFFS`, of the scorer as written and of
            the cosine; empty if nothing is held out.
    """

    scorer: Path
    card: ScorerCard
    split: Split
    trained: TrainedScorer
    recall: dict[str, Recalls]


def train(
    queries: Queries,
    surroundings: Surroundings,
    embedder: Embedder,
    output: Path,
    config: RetrieverConfig,
    *,
    subgraphs: Path | None = None,
    reports: Reports | None = None,
) -> RetrieverResult:
    """Train a scorer, or resume an interrupted run in the same folder.

    Args:
        queries: The questions.
        surroundings: Of the questions.
        embedder: What the scorer will be used with.
        output: Folder of the run.
        config: The settings; to resume a run, they must be the same.
        subgraphs: Folder of the labelled subgraphs, which several runs may use one after another;
            by default in the folder of the run.
        reports: Called with the progress.

    Raises:
        GraphError: The graph does not answer.
        TrainingError: A folder holds another run or another process writes to it, or there is
            nothing to train on.
    """
    reports = reports or Reports()
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
                reports.labelled,
            )
            paths = {each.example: each.path for each in kept}
            names = None
            if config.entity_text == "name":
                file = subgraphs / f"names-{embedder.name.replace(' ', '-')}.sqlite"
                cache = TextCache(file, "embeddings of names")
                names = embed_names(list(paths.values()), embedder, cache, reports.embedded)
        split = split_examples(paths, len(paths) // 10)
        train, valid = (
            make_inputs([paths[each] for each in part], embedder, config, names)
            for part in (split.train, split.valid)
        )
        trained = train_scorer(train, valid, folder, config, reports.trained)
        scorer = output / SCORER_FILE
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
        save_scorer(scorer, trained.weights, card)
        recall = _held_out_recall(valid, scorer, config)
        if recall:
            card = replace(card, held_out=_summary(recall["scorer"], len(valid)))
            save_scorer(scorer, trained.weights, card)
    return RetrieverResult(scorer, card, split, trained, recall)


def _held_out_recall(
    valid: list[Inputs], scorer: Path, config: RetrieverConfig
) -> dict[str, Recalls]:
    """Measure the scorer as it is written, in float16, and the cosine."""
    if not valid:
        return {}
    weights, _ = load_scorer(scorer)
    return {
        "scorer": mean_recall(
            [measure_recall(e.score(weights, config), e.labelled) for e in valid]
        ),
        "cosine": mean_recall([measure_recall(e.cosines(), e.labelled) for e in valid]),
    }


def mean_recall(recalls: Sequence[Recalls]) -> Recalls:
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
