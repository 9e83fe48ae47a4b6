"""Compare the main paths that a model wrote with RouterKGQA's published ones.

    python tools/score_paths.py webqsp.test-half.jsonl.gz beams.jsonl

Prints for how many questions of the independent and annotated tiers the relations of the main path,
with their directions, are those of the first candidate, and of any candidate.
"""

import sys
from pathlib import Path

from kbqa.engine.evaluate import read_beams
from kbqa.engine.json_lines import read_rows
from kbqa.engine.metrics import bootstrap_mean
from kbqa.sparql.crp import Step
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.text import read_crp


def main() -> None:
    """Score the candidates of every question that has a published path."""
    questions, beams = Path(sys.argv[1]), read_beams(Path(sys.argv[2]))
    first, anywhere = [], []
    for _, row in read_rows(questions):
        gold = _main_path(row.get("crp_routerkgqa") or "")
        if row.get("evidence") not in ("independent", "annotated") or gold is None:
            continue
        written = [_main_path(candidate.text) for candidate in beams[str(row["id"])]]
        first.append(float(written[:1] == [gold]))
        anywhere.append(float(gold in written))
    for name, values in (("first candidate", first), ("any candidate", anywhere)):
        mean = bootstrap_mean(values)
        print(f"{name:16} {mean.mean:.3f} [{mean.low:.3f}, {mean.high:.3f}]  n = {mean.n}")


def _main_path(text: str) -> tuple[Step, ...] | None:
    try:
        return read_crp(text).crp.path
    except CrpSyntaxError:
        return None


if __name__ == "__main__":
    main()
