"""Fuzz kbqa: damaged and made-up input of every kind, for as long as you like.

    python -m tools.fuzz                        # every target, 5 s each
    python -m tools.fuzz --minutes 30           # every target, together 30 minutes
    python -m tools.fuzz paths files --minutes 5
    python -m tools.fuzz --every-cut            # each file cut at every place: an hour

An input must be answered rightly or refused with an error of kbqa's own. Each defect is printed
with the command that repeats it, and the tool then ends with 1.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tools.fuzz import dumps, files, replies, served, texts
from tools.fuzz.trying import Outcome, Target, try_inputs

TARGETS: Mapping[str, Target] = {
    "paths": texts.paths,
    "sparql": texts.sparql,
    "questions": texts.questions,
    "dumps": dumps.dumps,
    "endpoints": replies.endpoint_replies,
    "models": replies.model_replies,
    "requests": served.requests,
    "files": files.files,
}


def main() -> None:
    """Fuzz the chosen targets, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("targets", nargs="*", help=f"of: {', '.join(TARGETS)}; by default all")
    parser.add_argument("--minutes", type=float, help="for all targets together")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="by default the time")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--inputs", type=int, default=10**9, help="for each target")
    parser.add_argument("--every-cut", action="store_true", help="cut files at every place, alone")
    options = parser.parse_args()
    chosen = options.targets or list(TARGETS)
    if unknown := set(chosen) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory(prefix="kbqa-fuzz-") as temporary:
        folder = Path(temporary)
        if options.every_cut:
            sys.exit(_print(files.cut_everywhere(folder / "files")))
        seconds = (options.minutes or len(chosen) / 12) * 60 / len(chosen)
        print(f"seed {options.seed}, {seconds:.0f} s a target")
        limits = {"first": options.first, "inputs": options.inputs, "seconds": seconds}
        found = [
            _print(try_inputs(name, TARGETS[name], folder / name, seed=options.seed, **limits))
            for name in chosen
        ]
    sys.exit(any(found))


def _print(outcome: Outcome) -> bool:
    """Print the results of a target; return whether there are defects."""
    counts = f"{outcome.tried:9,} inputs, {len(outcome.defects)} defects"
    print(f"{outcome.target:12}{counts}", flush=True)
    for place, how in outcome.defects.items():
        print(f"\n{place}\n{how}", flush=True)
    return bool(outcome.defects)


if __name__ == "__main__":
    main()
