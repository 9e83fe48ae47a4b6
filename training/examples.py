"""Gather the examples of a training run: question sets and, if wanted, the demo graph's."""

import random
from collections.abc import Sequence
from pathlib import Path

from kbqa.sparql.routerkgqa import render_routerkgqa
from kbqa.training.data import Example, ExampleSet, load_examples
from kbqa.training.demo_questions import demo_examples

DEMO_SOURCE = "demo"


def gather_examples(files: Sequence[Path], *, demo_questions: int, seed: int) -> ExampleSet:
    """Read question sets, and add questions on the demo graph that are not kept for testing.

    Args:
        files: Question sets.
        demo_questions: How many to add at most, drawn by the seed.
        seed: Decides which they are and how they are worded.

    Raises:
        InputError: A file is missing or unreadable.
    """
    gathered = load_examples(files)
    if demo_questions:
        drawn = [example for example in demo_examples(seed) if example.split == "train"]
        random.Random(seed).shuffle(drawn)
        for number, example in enumerate(drawn[:demo_questions]):
            target = render_routerkgqa(example.crp)
            if target is None:
                gathered.skipped["RouterKGQA's text form cannot say it"] += 1
                continue
            gathered.add(Example(f"demo-{number}", example.question, target, DEMO_SOURCE))
    return gathered
