"""Options of the training commands, and the question sets that they choose."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from kbqa.kb.commands.options import Command, GraphChoice, print_note
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError
from kbqa.training.composed import add_composed
from kbqa.training.data.targets import TargetForm
from kbqa.training.data.training_set import (
    ExampleSet,
    Fold,
    Split,
    draw_mixture,
    leave_out_fold,
    load_examples,
    split_examples,
)

_NAMED_ROWS = 3


def files_option(
    name: str, parameter: str, description: str, *, required: bool = False
) -> Callable[[Command], Command]:
    """Add an option for files that are read; repeatable."""
    return click.option(
        name,
        parameter,
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        multiple=True,
        required=required,
        metavar="FILE",
        help=description,
    )


composed_option = click.option(
    "--composed-questions",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Number of questions to compose from those of the question sets and from facts of the "
    "graph; needs --store or --endpoint.",
)


class _SetWeight(click.ParamType[tuple[str, float]]):
    """A question set and a number, as in ``webqsp.train=2``."""

    name = "set=number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        source, _, number = str(value).rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not source or not 0 <= weight < float("inf"):
            self.fail(f"{value!r} is not SET=NUMBER, such as webqsp.train=2", param, ctx)
        return source, weight


weight_option = click.option(
    "--weight",
    "weights",
    type=_SetWeight(),
    multiple=True,
    metavar="SET=NUMBER",
    help="How often to use the examples of a set in an epoch; repeatable. 2 is twice; of 0.1, a "
    "tenth, with as many different relations as possible. SET is the file's name without endings.",
)
exclude_option = files_option(
    "--exclude",
    "scored",
    "Test set to keep out of training; repeatable. Leaves out its questions, and questions "
    "made from them or that they were made from. Rows marked test_parent are always left out.",
)
output_option = click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Folder of the run. Run the same command again to resume an interrupted run.",
)


def check_composed(count: int, graph: GraphChoice) -> None:
    """Check that there is a graph to compose questions on."""
    if count and graph.is_demo:
        raise click.UsageError("--composed-questions needs a graph: give --store or --endpoint")


def print_left_out(gathered: ExampleSet) -> None:
    """Print which rows were left out and why."""
    for reason, count in gathered.skipped.most_common():
        rows = gathered.skipped_rows.get(reason, [])
        named = f" ({', '.join(rows[:_NAMED_ROWS])}{', …' if count > _NAMED_ROWS else ''})"
        print_note(f"  left out {count:,}: {reason}{named if rows else ''}")


@dataclass(frozen=True, slots=True)
class DataChoice:
    """The question sets that the user chose, not yet read."""

    files: tuple[Path, ...]
    scored: tuple[Path, ...]  # test sets to keep out of training
    demo_questions: int  # on the demo graph, at most
    composed_questions: int  # of those of the files and of facts of the graph
    seed: int  # of the demo questions, and of the part that is taken of a set
    weights: Mapping[str, float] = field(default_factory=dict)  # by set; once if it is missing
    valid_size: int = 0  # questions of each set to hold out
    fold: Fold | None = None  # families that are left out as well

    def load(self, form: TargetForm, graph: Graph | None) -> ExampleSet:
        """Read the examples; see `load_examples`.

        The graph names entities that a file does not name. Without it, nothing is composed.
        """
        gathered = load_examples(
            self.files,
            demo_questions=self.demo_questions,
            seed=self.seed,
            form=form,
            names=None if graph is None else graph.labels,
            scored=self.scored,
        )
        if self.composed_questions and graph is not None:
            add_composed(
                gathered,
                self.files,
                graph,
                count=self.composed_questions,
                seed=self.seed,
                form=form,
                scored=self.scored,
            )
        return gathered

    def split(self, gathered: ExampleSet) -> Split:
        """Hold out questions, and leave out those of the fold, which are counted."""
        split = split_examples(gathered.examples, self.valid_size)
        if self.fold is not None:
            split = leave_out_fold(split, self.fold)
        for example in split.in_fold:
            gathered.skip(example.source, example.id, f"in fold {self.fold}")
        return split

    def weigh(self, split: Split, gathered: ExampleSet) -> Split:
        """Weigh the sets that are trained on, and count the examples that are not drawn."""
        counts = Counter(example.source for example in split.train)
        if unknown := self.weights.keys() - counts.keys():
            raise InputError(
                f"--weight {min(unknown)}: there is no such set, only {', '.join(sorted(counts))}"
            )
        train = draw_mixture(split.train, self.weights, self.seed)
        for source, count in counts.items():
            left_out = count - len({each.id for each in train if each.source == source})
            if left_out:
                gathered.skipped[f"{source}: not drawn"] = left_out
        return split._replace(train=train)
