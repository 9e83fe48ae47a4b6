"""Compare how many tokens CRPs take in kbqa's own text form and in RouterKGQA's.

    python tools/text_lengths.py webqsp.test-half.jsonl.gz cwq.test-half.jsonl.gz

Reads the published CRPs of question files, writes each in both forms, and prints the mean number of
tokens that SmolLM2's tokenizer, or that of another base model (--model), makes of them.
"""

import argparse
from pathlib import Path
from statistics import fmean

from kbqa.engine.json_lines import read_rows
from kbqa.engine.models import SMOLLM2, base_model, quiet_transformers
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.routerkgqa import parse_routerkgqa, render_routerkgqa
from kbqa.sparql.text import render_crp


def main() -> None:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("questions", nargs="+", type=Path)
    parser.add_argument("--model", default=SMOLLM2, help="a base model, for its tokenizer")
    options = parser.parse_args()
    from transformers import AutoTokenizer

    quiet_transformers()
    tokenizer = AutoTokenizer.from_pretrained(base_model(options.model))
    print(f"{'mean tokens':28} {'n':>5} {'RouterKGQA':>10} {'ours':>6} {'ratio':>6}")
    for path in options.questions:
        theirs, ours = _both_forms(path)
        means = [fmean(map(len, tokenizer(texts)["input_ids"])) for texts in (theirs, ours)]
        ratio = means[1] / means[0]
        print(f"{path.name:28} {len(ours):5} {means[0]:10.1f} {means[1]:6.1f} {ratio:6.3f}")


def _both_forms(path: Path) -> tuple[list[str], list[str]]:
    theirs, ours = [], []
    for _, row in read_rows(path):
        try:
            crp = parse_routerkgqa(row.get("crp_routerkgqa") or "").crp
        except CrpSyntaxError:
            continue
        text = render_routerkgqa(crp)
        if text is not None:
            theirs.append(text)
            ours.append(render_crp(crp))
    return theirs, ours


if __name__ == "__main__":
    main()
