"""Count how often the checks of a question's words doubt or leave out a right or wrong path.

    python -m tools.fit.operator_words --store slice --data webqsp.train.jsonl.gz

Reads the questions and their published paths as `kbqa train-crp` does. A line of the table has, for
one file: the share of right paths that are doubted, which should be none; and the share doubted
after the path has lost what a word may stand for: its order, that it counts or asks, its
comparisons. Not every such part is said by an operator word: a comparison may be "in 2010". In the
last column of these, the path compares with other numbers: with ten times those that are no years.
Then, the right paths that are left out (`find_objection`), and those left out once their orders and
comparisons are turned round. `--list` prints each right path that is doubted or left out.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from kbqa.engine.questions.operators import find_objection, find_unaccounted
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Compare, Constraint, Crp, Operator
from kbqa.sparql.forms import read_crp
from kbqa.sparql.terms import LiteralTerm
from kbqa.sparql.values import is_number
from kbqa.training.data.training_set import load_examples

Pairs: TypeAlias = Sequence[tuple[str, Crp]]


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


_OTHER_WAY: dict[Operator, Operator] = {">": "<", "<": ">", ">=": "<=", "<=": ">="}


def _turned_round(crp: Crp) -> Crp:
    def turned(constraint: Constraint) -> Constraint:
        match constraint.test:
            case Compare(operator, value) if operator in _OTHER_WAY:
                return replace(constraint, test=Compare(_OTHER_WAY[operator], value))
        return constraint

    order = crp.order and replace(crp.order, descending=not crp.order.descending)
    return replace(crp.with_constraints(turned), order=order)


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
    arguments.add_argument("--store", help="for its schema; the demo graph's by default")
    arguments.add_argument("--list", action="store_true", help="print the right paths concerned")
    options = arguments.parse_args()
    with open_graph(options.store) as graph:
        schema = GraphSchema(graph)
    heads = ["right paths in doubt", *(f"without {name}" for name in _LOSSES)]
    print(f"| data | n | {' | '.join([*heads, 'right paths left out', 'turned round'])} |")
    print("| --- |" + " ---: |" * (4 + len(_LOSSES)))
    for path in options.data:
        pairs = [
            (each.question, read_crp(each.target).crp)
            for each in load_examples([path], form="extended").examples
        ]
        doubted = [(q, crp, words) for q, crp in pairs if (words := find_unaccounted(q, crp))]
        left_out = [(q, crp, why) for q, crp in pairs if (why := find_objection(q, crp, schema))]
        cells = [f"{len(doubted)} ({len(doubted) / len(pairs):.1%})"]
        for lose in _LOSSES.values():
            worse = _changed(lose, pairs)
            cells.append(f"{sum(bool(find_unaccounted(*each)) for each in worse)} of {len(worse)}")
        cells.append(f"{len(left_out)} ({len(left_out) / len(pairs):.1%})")
        worse = _changed(_turned_round, pairs)
        found = sum(find_objection(*each, schema) is not None for each in worse)
        cells.append(f"{found} of {len(worse)}")
        print(f"| {path.name} | {len(pairs)} | {' | '.join(cells)} |")
        if options.list:
            for question, crp, words in [*doubted, *left_out]:
                print(f"  {words} {question}\n      {crp.topic}: {', '.join(crp.relations())}")


def _changed(change: Callable[[Crp], Crp], pairs: Pairs) -> Pairs:
    """Return the pairs whose path has what is changed and can do without, so changed."""
    return [(q, lost) for q, crp in pairs if (lost := _lost(change, crp)) is not None]


def _lost(lose: Callable[[Crp], Crp], crp: Crp) -> Crp | None:
    """Return the path without something; None if it has none of it or cannot do without."""
    try:
        lost = lose(crp)
    except ValueError:
        return None
    return None if lost == crp else lost


if __name__ == "__main__":
    main()
