"""Gather the examples of a training run: question sets and, if wanted, the demo graph's."""

import random
from collections.abc import Sequence
from pathlib import Path

from kbqa.training.crp_targets import TargetForm, write_target
from kbqa.training.data import Example, ExampleSet, load_examples
from kbqa.training.demo_questions import demo_examples
from kbqa.training.entity_names import NameSource
from kbqa.training.split_hygiene import read_scored_sets
from kbqa.training.unusable import Unusable

DEMO_SOURCE = "demo"


def gather_examples(
    files: Sequence[Path],
    *,
    demo_questions: int,
    seed: int,
    form: TargetForm = "routerkgqa",
    names: NameSource | None = None,
    scored: Sequence[Path] = (),
) -> ExampleSet:
    """Read question sets, and add questions on the demo graph that are not kept for testing.

    Args:
        files: Question sets.
        demo_questions: How many to add at most, drawn by the seed.
        seed: Decides which they are and how they are worded.
        form: How targets are written.
        names: Looks up names of entities; see `load_examples`.
        scored: Test sets whose questions, and what these were made from or into, are left out.

    Raises:
        InputError: A file is missing or unreadable.
        GraphError: The names cannot be looked up.
    """
    gathered = load_examples(files, form=form, names=names, scored=scored)
    if demo_questions:
        scored_sets = read_scored_sets(scored)
        drawn = [example for example in demo_examples(seed) if example.split == "train"]
        random.Random(seed).shuffle(drawn)
        for number, example in enumerate(drawn[:demo_questions]):
            example_id, target = f"demo-{number}", write_target(example.crp, form)
            if reason := scored_sets.reason_against({"question": example.question}):
                gathered.skip(DEMO_SOURCE, example_id, reason)
            elif isinstance(target, Unusable):
                gathered.skip(DEMO_SOURCE, example_id, target.reason)
            else:
                gathered.add(Example(example_id, example.question, target, DEMO_SOURCE))
    return gathered
