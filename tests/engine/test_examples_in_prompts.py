"""The examples in prompts are no test questions in disguise."""

import gzip
import json
import re
from pathlib import Path

import pytest

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.methods.retrieval import _EXAMPLE_QUESTION

ENGINE = Path(__file__).parents[2] / "engine"
TEST_SETS = ("webqsp.test-half", "cwq.test-half")


def _examples() -> list[str]:
    texts = (path.read_text("utf-8") for path in sorted(ENGINE.rglob("*.py")))
    found = (each for text in texts for each in re.findall(r"^Question: ([^{\n]+)$", text, re.M))
    return [*dict.fromkeys(found), _EXAMPLE_QUESTION]


def test_prompts_have_examples() -> None:
    assert len(_examples()) > 3


@pytest.mark.parametrize("test_set", TEST_SETS)
def test_no_example_paraphrases_a_test_question(test_set: str, shared: Path) -> None:
    with gzip.open(shared / f"data/qa/{test_set}.jsonl.gz", "rt", encoding="utf-8") as lines:
        questions = [json.loads(line)["question"] for line in lines]
    embedder = Embedder.load()
    for example in _examples():
        cosines = embedder.similarity(example, questions)
        at = max(range(len(questions)), key=cosines.__getitem__)
        assert cosines[at] < 0.75, f"{example} – {questions[at]}"
