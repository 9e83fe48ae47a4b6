"""The command `kbqa train-retriever`."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbqa.engine.commands.run_options import check_output
from kbqa.kb.commands.options import GraphChoice, graph_options, json_option
from kbqa.kb.commands.text import print_json, print_note, print_result
from kbqa.training.options import exclude_option, output_option, print_counts
from kbqa.training.retriever.config import CHOSEN_BY, RetrieverConfig

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
    from kbqa.engine.retrieval.extraction import Caps
    from kbqa.engine.writing.models.base_models import require_lm_extra
    from kbqa.kb.schema.graph_schema import GraphSchema
    from kbqa.training.retriever.examples import Surroundings
    from kbqa.training.retriever.queries import read_queries
    from kbqa.training.retriever.report import write_reports
    from kbqa.training.retriever.run import Reports
    from kbqa.training.retriever.run import train_retriever as train

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
