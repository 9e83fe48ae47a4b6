"""The question sets that the user chose for training, not yet read."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError
from kbqa.training.composed.examples import add_composed
from kbqa.training.data.mixture import draw_mixture
from kbqa.training.data.targets import TargetForm
from kbqa.training.data.training_set import (
    ExampleSet,
    Fold,
    Split,
    leave_out_fold,
    load_examples,
    split_examples,
)


@dataclass(frozen=True, slots=True)
class DataChoice:
    """The question sets that the user chose.

    Attributes:
        files: Question sets.
        scored: Test sets to keep out of training.
        demo_questions: How many questions on the demo graph to add at most.
        composed_questions: How many to compose of those of the files and of facts of the graph.
        seed: Decides which questions on the demo graph and which part of a set are taken.
        weights: How often to take the examples of a set, by its name; once if it is missing.
        valid_size: Questions of each set to hold out.
        fold: Families that are left out as well; none if it is None.
    """

    files: tuple[Path, ...]
    scored: tuple[Path, ...]
    demo_questions: int
    composed_questions: int
    seed: int
    weights: Mapping[str, float] = field(default_factory=dict)
    valid_size: int = 0
    fold: Fold | None = None

    def load(self, form: TargetForm, graph: Graph | None) -> ExampleSet:
        """Read the examples; see `load_examples`.

        Args:
            form: The text form of the targets.
            graph: Names entities that a file does not name. Without it, nothing is composed.

        Raises:
            InputError: A file is missing or unreadable, or names few of its entities and there is
                no graph to name them.
            GraphError: The graph does not answer.
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
        """Weigh the sets that are trained on, and count the examples that are not drawn.

        Raises:
            InputError: A weight is for a set that is not there.
        """
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
