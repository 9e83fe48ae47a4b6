"""Tell what training examples are made of, and how much of a test set's relations they hold.

    python tools/example_statistics.py --data webqsp.train.jsonl.gz --data cwq.dev.jsonl.gz \
        --demo-questions 800 --against webqsp.test-half.jsonl.gz

Reads the files as `kbqa train-crp` does, leaves out what the test sets' questions were made from or
made into, as its `--exclude` does, and prints the counts as tables in Markdown.
"""

import argparse
from pathlib import Path
from typing import get_args

from kbqa.training.crp_targets import TargetForm
from kbqa.training.example_statistics import cover_relations, describe_examples, statistics_lines
from kbqa.training.examples import gather_examples


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", action="append", default=[], type=Path, metavar="FILE")
    parser.add_argument("--against", action="append", default=[], type=Path, metavar="TEST")
    parser.add_argument("--demo-questions", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--format", choices=get_args(TargetForm), default="routerkgqa")
    options = parser.parse_args()
    gathered = gather_examples(
        options.data,
        demo_questions=options.demo_questions,
        seed=options.seed,
        form=options.format,
        scored=options.against,
    )
    statistics = describe_examples(gathered.examples)
    coverages = [cover_relations(statistics.relations, path) for path in options.against]
    print("\n".join(statistics_lines(statistics, coverages)))
    for reason, count in gathered.skipped.most_common():
        print(f"- left out {count:,}: {reason}")


if __name__ == "__main__":
    main()
