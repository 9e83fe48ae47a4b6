"""Count how often the check of operator words doubts a right path, and a wrong one.

    python -m tools.fit.operator_words --data webqsp.train.jsonl.gz --data cwq.dev.jsonl.gz

Reads the questions and their published paths as `kbqa train-crp` does. A line of the table has, for
one file: the share of right paths that are doubted, which should be none; and the share doubted
after the path has lost what a word may stand for: its order, that it counts or asks, its
comparisons. Not every such part is said by an operator word: a comparison may be "in 2010". In the
last column, the path compares with other numbers: with ten times those that are no years.
`--list` prints each right path that is doubted.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kbqa.engine.questions.operators import find_unaccounted
from kbqa.sparql.compiler.values import is_number
from kbqa.sparql.crp import Compare, Constraint, Crp
from kbqa.sparql.forms import read_crp
from kbqa.sparql.terms import LiteralTerm
from kbqa.training.data.training_set import load_examples


def _without_order(crp: Crp) -> Crp:
    return replace(crp, order=None)


def _without_form(crp: Crp) -> Crp:
    return replace(crp, form="select")


def _without_comparisons(crp: Crp) -> Crp:
    kept = (each for each in crp.constraints if not isinstance(each.test, Compare))
    return replace(crp, constraints=tuple(kept))


def _with_other_numbers(crp: Crp) -> Crp:
    def changed(constraint: Constraint) -> Constraint:
        match constraint.test:
            case Compare(operator, LiteralTerm() as value) if is_number(value):
                ten_times = float(value.text) * (1 if len(value.text) == 4 else 10)
                test = Compare(operator, replace(value, text=f"{ten_times:g}"))
                return replace(constraint, test=test)
        return constraint

    return crp.with_constraints(changed)


_LOSSES = {
    "order": _without_order,
    "count, yes/no": _without_form,
    "comparison": _without_comparisons,
    "the right number": _with_other_numbers,
}


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--data", type=Path, action="append", required=True)
    arguments.add_argument("--list", action="store_true", help="print the right paths in doubt")
    options = arguments.parse_args()
    print(
        f"| data | n | right paths in doubt | {' | '.join(f'without {name}' for name in _LOSSES)} |"
    )
    print("| --- |" + " ---: |" * (2 + len(_LOSSES)))
    for path in options.data:
        pairs = [
            (each.question, read_crp(each.target).crp)
            for each in load_examples([path], form="extended").examples
        ]
        doubted = [(q, crp, words) for q, crp in pairs if (words := find_unaccounted(q, crp))]
        cells = [f"{len(doubted)} ({len(doubted) / len(pairs):.1%})"]
        for lose in _LOSSES.values():
            worse = [(q, lost) for q, crp in pairs if (lost := _lost(lose, crp)) is not None]
            found = sum(bool(find_unaccounted(q, lost)) for q, lost in worse)
            cells.append(f"{found} of {len(worse)}")
        print(f"| {path.name} | {len(pairs)} | {' | '.join(cells)} |")
        if options.list:
            for question, crp, words in doubted:
                print(f"  {words} {question}\n      {crp.topic}: {', '.join(crp.relations())}")


def _lost(lose: Callable[[Crp], Crp], crp: Crp) -> Crp | None:
    """Return the path without something; None if it has none of it or cannot do without."""
    try:
        lost = lose(crp)
    except ValueError:
        return None
    return None if lost == crp else lost


if __name__ == "__main__":
    main()
