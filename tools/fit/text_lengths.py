"""Compare the number of tokens of CRPs in kbqa's own text form and in RouterKGQA's.

    python -m tools.fit.text_lengths webqsp.test-half.jsonl.gz cwq.test-half.jsonl.gz

Reads the published CRPs of question files, writes each in both forms, and prints the mean number of
tokens with the tokenizer of SmolLM2, or of another base model (--model).
"""

import argparse
from pathlib import Path
from statistics import fmean

from kbqa.engine.files import read_rows
from kbqa.engine.writing.checkpoint import DEFAULT_BASE, base_model, quiet_transformers
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.forms import parse_routerkgqa, render_crp, render_routerkgqa


def main() -> None:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("questions", nargs="+", type=Path)
    parser.add_argument("--model", default=DEFAULT_BASE, help="base model whose tokenizer counts")
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
