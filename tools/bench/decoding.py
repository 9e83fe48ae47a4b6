"""Measure what constrained decoding costs: seconds and tokens per question, level by level.

    python -m tools.bench.decoding --questions webqsp.test-half.jsonl.gz --store slice --count 20

Every level writes for the same questions, one after the other, and the rounds alternate between
levels, because machines are noisy; the ratio is to level ``none`` in the same round. "Steering" is
the time to find out which tokens may follow. It includes the graph's answers, except those about
the topics' own relations, which are looked up before the first token.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from unittest.mock import patch

import click

from kbqa.engine.questions.question_sets import read_questions
from kbqa.engine.writing.generate import DEFAULT_ADAPTER, LEVELS, DecodingLevel, Request
from kbqa.engine.writing.steering import Decoding, SteeredText
from kbqa.engine.writing.transformers import TransformersGenerator
from kbqa.kb.open import open_graph


@dataclass(slots=True)
class Cost:
    """What one round of a level took.

    Attributes:
        seconds: Of each question.
        tokens: Of all candidates of each question.
        steering_s: Of all questions together.
        steps: Tokens that continued texts, in all beams.
    """

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    steering_s: float = 0.0
    steps: int = 0


@contextmanager
def _timed_steering(cost: Cost) -> Iterator[None]:
    follow = SteeredText.follow

    def timed(state: SteeredText, token: int) -> SteeredText | None:
        begun = time.perf_counter()
        following = follow(state, token)
        cost.steering_s += time.perf_counter() - begun
        cost.steps += 1
        return following

    with patch.object(SteeredText, "follow", timed):
        yield


def measure(generator: TransformersGenerator, requests: Sequence[Request], n: int) -> Cost:
    """Write for the requests one by one."""
    cost = Cost()
    with _timed_steering(cost):
        for request in requests:
            begun = time.perf_counter()
            [candidates] = generator.generate([request], n)
            cost.seconds.append(time.perf_counter() - begun)
            cost.tokens.append(sum(candidate.tokens for candidate in candidates))
    return cost


@click.command(help=__doc__)
@click.option(
    "--questions",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    metavar="FILE",
)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option(
    "--adapter",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=DEFAULT_ADAPTER,
)
@click.option("--count", type=click.IntRange(1), default=20, show_default=True)
@click.option("--n", type=click.IntRange(1), default=5, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--seed", default=42, show_default=True)
def main(
    file: Path, store: Path, adapter: Path, count: int, n: int, rounds: int, seed: int
) -> None:
    """Print the table."""
    questions = [question for question in read_questions(file) if question.topics]
    drawn = random.Random(seed).sample(questions, min(count, len(questions)))
    requests = [Request(question.text, question.topics) for question in drawn]
    costs: dict[DecodingLevel, list[Cost]] = {level: [] for level in LEVELS}
    with closing(open_graph(store)) as graph:
        generators = {
            level: TransformersGenerator.load(adapter, None, Decoding(level, graph))
            for level in LEVELS
        }
        for generator in generators.values():
            generator.generate(requests[:1], n)  # what is made once
        for _ in range(rounds):
            for level, generator in generators.items():
                costs[level].append(measure(generator, requests, n))
    click.echo(
        f"{len(requests)} questions, n = {n}, {rounds} rounds; medians over the rounds\n\n"
        "| level | seconds a question | ratio to none | tokens a question "
        "| steering, ms a token |\n"
        "|---|---|---|---|---|"
    )
    for level, of_level in costs.items():
        seconds = median(sum(cost.seconds) for cost in of_level) / len(requests)
        ratios = [
            sum(cost.seconds) / sum(base.seconds)
            for cost, base in zip(of_level, costs["none"], strict=True)
        ]
        tokens = sum(of_level[0].tokens) / len(requests)
        steps = sum(cost.steps for cost in of_level)
        steering = 1000 * sum(cost.steering_s for cost in of_level) / steps if steps else 0.0
        ratio = f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        click.echo(f"| {level} | {seconds:.2f} | {ratio} | {tokens:.0f} | {steering:.3f} |")


if __name__ == "__main__":
    main()
