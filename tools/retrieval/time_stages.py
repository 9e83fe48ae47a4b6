"""Time retrieval by stage: link, extract, score, pool, and all of them.

    python -m tools.retrieval.time_stages --store slice --questions webqsp.jsonl --sample 300

Each question is linked, and then its triples are retrieved around the topics that the methods start
from, or around the gold ones with --gold-entities. Prints the median and the 95th percentile of the
milliseconds of each stage, and of the processor's time for all of it. Five questions come first
that are not counted: models and imports are warm. Measure on a machine that does nothing else.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import click
import numpy as np
from tqdm import tqdm

from kbqa.engine.asked import Clock
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.linking.linker import Linker, starting_topics
from kbqa.engine.questions.question_sets import Question, read_questions, sample_questions
from kbqa.engine.retrieval.pooling import PoolingSettings
from kbqa.engine.retrieval.retrieval import make_scorer, retrieve
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from tools.bench.measured_run import machine

_WARM = 5
_STAGES = ("link", "extract", "score", "pool", "all", "CPU")


@click.command(help=__doc__)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option(
    "--questions",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    metavar="FILE",
)
@click.option("--gold-entities", "is_gold", is_flag=True, help="Start from the gold topics.")
@click.option("--sample", type=int, metavar="N", help="Draw N questions.")
def main(store: Path, file: Path, is_gold: bool, sample: int | None) -> None:
    """Print the table."""
    questions = read_questions(file)
    if sample is not None:
        questions = sample_questions(questions, sample, seed=0)
    with closing(open_graph(store)) as graph:
        warm = questions[:_WARM]
        asked = tqdm([*warm, *questions], unit="question", disable=None)
        rows = list(_timed(asked, graph, is_gold))[len(warm) :]
    click.echo(f"{machine()}\n\n{len(rows)} questions; ms, median and 95th percentile\n")
    click.echo(f"| {' | '.join(_STAGES)} |\n{'|---' * len(_STAGES)}|")
    columns = np.percentile(np.array(rows), (50, 95), axis=0).T
    click.echo(f"| {' | '.join(f'{half:.0f}, {most:.0f}' for half, most in columns)} |")


def _timed(questions: Iterable[Question], graph: Graph, is_gold: bool) -> Iterator[list[float]]:
    """Yield the milliseconds of each stage, question by question."""
    schema, linker = GraphSchema(graph), Linker(graph, graph.names())
    score, settings = make_scorer("trained", Embedder.load()), PoolingSettings()
    for question in questions:
        clock, cpu_started = Clock(), time.process_time()
        with clock.stage("link"):
            linked = linker.link(question.text)
        found = starting_topics(question.topics if is_gold else (), linked)
        topics = [topic.mid for topic in found if topic.mid]
        retrieve(graph, schema, score, question.text, topics, 100, settings, clock=clock)
        cpu_s = time.process_time() - cpu_started
        seconds = [clock.seconds[stage] for stage in _STAGES[:4]]
        yield [1000 * each for each in (*seconds, sum(seconds), cpu_s)]


if __name__ == "__main__":
    main()
