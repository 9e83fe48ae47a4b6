import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.methods.pooling_recall import main

pytest.importorskip("sentence_transformers", reason="needs the lm extra")

MONEY = {
    "question": "which currency is used in Jamaica?",
    "topic_entities": [{"mid": "m.03_r3"}],
    "answers": [{"arg": "m.04xc2m"}],
    "sparql": "SELECT ?x WHERE { ns:m.03_r3 ns:location.country.currency_used ?x }",
}


def test_each_scorer_and_pooling_has_its_recalls(small_store: Path, tmp_path: Path) -> None:
    rows = [
        MONEY,
        {"question": "which?"},
        {**MONEY, "sparql": MONEY["sparql"].replace("m.0", "m.1")},
    ]
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    options = ["--store", str(small_store), "--questions", str(path)]
    told = CliRunner().invoke(main, options, catch_exceptions=False)
    first, _, _, *lines = told.output.splitlines()
    assert first == "1 questions"
    assert [line.split(" | ")[:2] for line in lines] == [
        [f"| {scorer}, {pooling}", of]
        for scorer in ("trained", "cosine")
        for pooling in ("none", "full", "half")
        for of in ("triples", "path", "answers")
    ]
    assert "+0.000 [+0.000, +0.000]" in lines[3]
