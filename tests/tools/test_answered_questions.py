"""The tool that writes questions with the answers that their gold queries find."""

import json
from pathlib import Path

from click.testing import CliRunner

from tools.fit.answered_questions import main

JAMAICA = "m.03_r3"
MONEY = "location.country.currency_used"


def test_each_kind_of_gold_query_is_asked(small_store: Path, tmp_path: Path) -> None:
    asked = {"question": "which currency is used in Jamaica?"}
    rows = [
        {"id": "sparql", **asked, "sparql": f"SELECT ?x WHERE {{ ns:{JAMAICA} ns:{MONEY} ?x }}"},
        {"id": "s-expression", **asked, "s_expression": f"(JOIN (R {MONEY}) {JAMAICA})"},
        {"id": "fact", **asked, "subject": JAMAICA, "relation": MONEY, "object": "m.0"},
        {"id": "no answers", **asked, "s_expression": f"(JOIN (R {MONEY}) m.0)"},
        {"id": "no query", **asked},
        {"id": "not asked for", **asked, "s_expression": f"(JOIN (R {MONEY}) {JAMAICA})"},
    ]
    questions, ids, output = (tmp_path / f"{name}.jsonl" for name in ("set", "ids", "answered"))
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ids.write_text("".join(json.dumps({"id": row["id"]}) + "\n" for row in rows[:-1]))
    arguments = [f"{questions}={ids}", "--store", str(small_store), "--output", str(output)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    answered = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["id"] for row in answered] == ["sparql", "s-expression", "fact"]
    assert len({json.dumps(row["answers"]) for row in answered}) == 1
