"""Measure how long `kbqa ask` takes on the demo graph: cold starts, warm questions, and each stage.

    python -m tools.bench.ask [--questions 30]

The first cold start fills an empty cache: it converts the base model and builds the demo store.
Later ones find both. Warm questions are demo questions that no adapter is trained on, answered by
one process after one question that is not counted. There are two baselines: a later cold start, and
the same questions when the confidence model chooses among the written paths, without the judge; for
these, two processes without and two with it take turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict

from kbqa.training.demo import demo_examples

QUESTION = "what is the largest city in Kenya?"
KBQA = [sys.executable, "-m", "kbqa.engine.cli"]
WITHOUT_JUDGE = ("--set", "judge=confidence")


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=30, help="warm questions")
    parser.add_argument("--starts", type=int, default=3, help="later cold starts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "KBQA_CACHE": cache}
        first = _cold(environment)
        later = [_cold(environment) for _ in range(arguments.starts)]
        turns = [
            _warm(environment, arguments.questions, *more)
            for more in ((), WITHOUT_JUDGE, (), WITHOUT_JUDGE)
        ]
        warm, without = turns[0] + turns[2], turns[1] + turns[3]
    print(f"first cold start, empty cache   {first:7.2f} s")
    print(f"later cold starts, median of {len(later)}  {statistics.median(later):7.2f} s")
    totals = [sum(stages.values()) for stages in warm]
    median = statistics.median(totals)
    print(f"warm, median of {len(warm):<3}             {median:7.2f} s")
    print(f"later cold start / warm         {statistics.median(later) / median:7.1f}")
    plain = statistics.median(sum(stages.values()) for stages in without)
    print(f"warm, without the judge         {plain:7.2f} s")
    print(f"warm / without the judge        {median / plain:7.2f}")
    print("where a warm question's time goes, medians:")
    by_stage = defaultdict(list)
    for stages in warm:
        for stage, seconds in stages.items():
            by_stage[stage].append(seconds)
    for stage, seconds in by_stage.items():
        print(f"  {stage:10} {1000 * statistics.median(seconds):9.1f} ms")


def _cold(environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([*KBQA, "ask", QUESTION], env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def _warm(environment: dict[str, str], count: int, *more: str) -> list[dict[str, float]]:
    """Return the seconds of each stage for each question but the first."""
    unseen = [example.question for example in demo_examples(42) if example.split != "train"]
    step = max(1, len(unseen) // count)
    questions = [QUESTION, *unseen[::step][:count]]
    done = subprocess.run(
        [*KBQA, "ask", "-", "--json", *more],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        input="\n".join(questions),
    )
    return [json.loads(line)["seconds"] for line in done.stdout.splitlines()][1:]


if __name__ == "__main__":
    main()
