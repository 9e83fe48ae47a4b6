"""Write RouterKGQA's published paths as beams, to measure the steps after the path model.

python -m tools.fit.published_beams webqsp.test-half.jsonl.gz > published.jsonl
kbqa eval --questions webqsp.test-half.jsonl.gz --beams published.jsonl --output RUN.jsonl

Rows without a published path are left out, and `kbqa eval` needs the model for them.
"""

import json
import sys
from pathlib import Path

from kbqa.engine.files import read_rows


def main() -> None:
    """Print a row of beams for each question that has a published path."""
    for _, row in read_rows(Path(sys.argv[1])):
        if text := row.get("crp_routerkgqa"):
            crp = {"routerkgqa": text, "logprob": 0.0, "tokens": 1}
            print(json.dumps({"id": row["id"], "crps": [crp]}, ensure_ascii=False))


if __name__ == "__main__":
    main()
