"""Measure the path model under transformers and under OpenVINO: forward passes, then questions.

    python -m tools.bench.runtimes --questions webqsp.test-half.jsonl.gz --store slice --threads 2

The first table has milliseconds for reading texts × tokens: up to 8 tokens after a prompt of 20,
60 tokens as a prompt. The second has seconds a question in batches, constrained by the graph, and
how many best texts are equal. Both run in this process and take turns, so the ratios hold on a
noisy machine. With ``KBQA_PRECISION=float32`` they compute alike. Set ``OMP_WAIT_POLICY=PASSIVE``:
else torch's threads, which wait busily, and OpenVINO's hinder each other.
"""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median

import click
import torch

from kbqa.engine.questions.question_sets import read_questions
from kbqa.engine.writing.beam_search import BatchReader, BeamSearchGenerator, ReadableModel
from kbqa.engine.writing.checkpoint import fastest_precision, open_adapter
from kbqa.engine.writing.generate import Request
from kbqa.engine.writing.openvino import OpenVinoGenerator
from kbqa.engine.writing.steering import Decoding
from kbqa.engine.writing.transformers import TransformersGenerator
from kbqa.kb.open import open_graph

_RUNTIMES: dict[str, type[BeamSearchGenerator]] = {
    "transformers": TransformersGenerator,
    "openvino": OpenVinoGenerator,
}
_SHAPES = ((5, 1), (5, 8), (1, 60), (5, 60))
_PROMPT_TOKENS = 20
_FORWARD_ROUNDS = 15
_TOKENS = 1000  # Any tokens below this are read.


def forward_ms(model: ReadableModel, texts: int, tokens: int) -> float:
    """Read random tokens once; a prompt with the logits after its last token, else after all."""
    is_prompt = tokens > _PROMPT_TOKENS
    prompts = _any_tokens(texts, tokens if is_prompt else _PROMPT_TOKENS)
    blocks = _any_tokens(texts, tokens)
    reader = BatchReader(model, prompts)
    begun = time.perf_counter()
    reader.read_prompts()
    if not is_prompt:
        begun = time.perf_counter()
        reader.read(range(texts), blocks)
    return 1000 * (time.perf_counter() - begun)


def _any_tokens(texts: int, tokens: int) -> list[list[int]]:
    return [random.choices(range(3, _TOKENS), k=tokens) for _ in range(texts)]


def write_all(
    generator: BeamSearchGenerator, requests: Sequence[Request], n: int, batch: int
) -> list[str]:
    """Return the best text for each request; empty if there is none."""
    best: list[str] = []
    for at in range(0, len(requests), batch):
        found = generator.generate(requests[at : at + batch], n)
        best += [texts[0].text if texts else "" for texts in found]
    return best


@click.command(help=__doc__)
@click.option(
    "--questions",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    metavar="FILE",
)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option("--count", type=click.IntRange(1), default=20, show_default=True)
@click.option("--n", type=click.IntRange(1), default=5, show_default=True)
@click.option("--batch", "batches", type=click.IntRange(1), multiple=True, default=(1, 8, 32))
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=torch.get_num_threads())
def main(
    file: Path,
    store: Path,
    count: int,
    n: int,
    batches: Sequence[int],
    rounds: int,
    threads: int,
) -> None:
    """Print the tables."""
    torch.set_num_threads(threads)
    adapter = open_adapter()
    models = [runtime.load_model(adapter, threads).model for runtime in _RUNTIMES.values()]
    click.echo(
        f"{fastest_precision('cpu')}, {threads} threads; medians, and the range of the ratios\n"
    )
    click.echo(f"| texts × tokens | {' | '.join(_RUNTIMES)} | ratio |\n|---|---|---|---|")
    for texts, tokens in _SHAPES:
        _compare(
            f"{texts} × {tokens}, ms",
            [partial(forward_ms, model, texts, tokens) for model in models],
            _FORWARD_ROUNDS,
        )
    questions = [question for question in read_questions(file) if question.topics][:count]
    requests = [Request(question.text, question.topics) for question in questions]
    with closing(open_graph(store)) as graph:
        decoding = Decoding("graph", graph)
        generators = [runtime(adapter, decoding, threads) for runtime in _RUNTIMES.values()]
        ours, theirs = [write_all(generator, requests, n, 8) for generator in generators]
        click.echo(
            f"\n{len(requests)} questions, n = {n}; equal best texts: "
            f"{sum(one == other for one, other in zip(ours, theirs, strict=True))}\n"
        )
        click.echo(f"| questions a batch | {' | '.join(_RUNTIMES)} | ratio |\n|---|---|---|---|")
        for batch in batches:
            _compare(
                f"{batch}, seconds a question",
                [partial(_seconds, generator, requests, n, batch) for generator in generators],
                rounds,
            )


def _seconds(
    generator: BeamSearchGenerator, requests: Sequence[Request], n: int, batch: int
) -> float:
    begun = time.perf_counter()
    write_all(generator, requests, n, batch)
    return (time.perf_counter() - begun) / len(requests)


def _compare(label: str, measures: Sequence[Callable[[], float]], rounds: int) -> None:
    """Measure in turns, after a round that is not counted, and print a row of the table."""
    measured = [[measure() for measure in measures] for _ in range(1 + rounds)][1:]
    ratios = [ours / theirs for theirs, ours in measured]
    medians = " | ".join(f"{median(column):.3g}" for column in zip(*measured, strict=True))
    click.echo(
        f"| {label} | {medians} | {median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) |"
    )


if __name__ == "__main__":
    main()
