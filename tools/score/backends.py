"""Compare what back ends write: is the best path of each question the same text?

    kbqa crp generate --questions 100.jsonl --n 1 --output transformers.jsonl
    kbqa crp generate --questions 100.jsonl --n 1 --output vllm.jsonl --backend vllm
    python -m tools.score.backends transformers.jsonl vllm.jsonl

Each file may come from a different environment. Every further file is compared with the first, on
the questions that both have; the texts that differ are listed with their log-probabilities. The
exit code is 1 if fewer than 95 % agree.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from kbqa.engine.writing.generate import Candidate, read_beams
from kbqa.sparql.errors import InputError
from tools.score.shared.shares import share_with_interval

WANTED = 0.95


class Comparison(NamedTuple):
    """How the best candidates of two back ends compare.

    Attributes:
        questions: How many both have.
        different: The ids of those whose best texts differ.
        largest_drift: The largest difference between the log-probabilities of equal best texts.
    """

    questions: int
    different: tuple[str, ...]
    largest_drift: float


def compare(
    one: Mapping[str, Sequence[Candidate]], other: Mapping[str, Sequence[Candidate]]
) -> Comparison:
    """Compare two back ends' candidates by question.

    Raises:
        InputError: They have no question in common.
    """
    common = [id_ for id_ in one if id_ in other]
    if not common:
        raise InputError("the files have no question in common")
    different, drifts = [], [0.0]
    for id_ in common:
        best, others_best = one[id_][:1], other[id_][:1]
        if [candidate.text for candidate in best] != [candidate.text for candidate in others_best]:
            different.append(id_)
        elif best:
            drifts.append(abs(best[0].logprob - others_best[0].logprob))
    return Comparison(len(common), tuple(different), max(drifts))


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("others", type=click.Path(path_type=Path), nargs=-1, required=True)
def main(first: Path, others: tuple[Path, ...]) -> None:
    """Compare the candidates in OTHERS with those in FIRST, all of `kbqa crp generate`."""
    agree = True
    reference = read_beams(first)
    for path in others:
        beams = read_beams(path)
        compared = compare(reference, beams)
        same = compared.questions - len(compared.different)
        agree = agree and same >= WANTED * compared.questions
        print(
            f"{first.name} and {path.name}: the same best text for {same} of "
            f"{compared.questions}, {share_with_interval(same, compared.questions)}; "
            f"their log-probabilities differ by {compared.largest_drift:.4f} at most"
        )
        for id_ in compared.different:
            print(f"\n{id_}\n{_best(reference[id_])}\n{_best(beams[id_])}")
    sys.exit(0 if agree else 1)


def _best(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "  (nothing)"
    best = candidates[0]
    return f"  {best.logprob:8.4f}  {best.tokens:3d} tokens  {best.text!r}"


if __name__ == "__main__":
    main()
