"""Which questions can be rewarded, and which are left out for what reason."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kbqa.training.data.training_set import load_examples
from kbqa.training.grpo.questions import find_questions

NS = "PREFIX ns: <http://rdf.freebase.com/ns/>"
JAMAICA = [{"mid": "m.03_r3", "name": "Jamaica"}]
CAPITAL = "Main Path:\n Jamaica -[location , country , capital]-> ?x"
ROWS: Mapping[str, tuple[dict[str, object], object]] = {
    "a query": (
        {"sparql": f"{NS} SELECT ?x WHERE {{ ns:m.03_r3 ns:location.country.capital ?x }}"},
        (("m.03yl7",),),
    ),
    "the graph decides what a query finds": (
        {
            "sparql": f"{NS} SELECT ?x WHERE {{ ns:m.03_r3 ns:location.country.capital ?x }}",
            "answers": [{"arg": "m.0other", "name": "Other"}],
        },
        (("m.03yl7",),),
    ),
    "a count": (
        {
            "sparql": f"{NS} SELECT (COUNT(?x) AS ?n) WHERE "
            "{ ns:m.03_r3 ns:location.country.currency_used ?x }"
        },
        1,
    ),
    "stated answers": (
        {"crp_routerkgqa": CAPITAL, "answers": [{"arg": "m.03yl7", "name": "Kingston"}]},
        (("m.03yl7",),),
    ),
    "names alone": (
        {"crp_routerkgqa": CAPITAL, "answers": [{"arg": None, "name": "Kingston"}]},
        "neither a gold query nor gold answers by mid",
    ),
    "nothing found": (
        {"sparql": f"{NS} SELECT ?x WHERE {{ ns:m.03_r3 ns:location.country.river ?x }}"},
        "its gold query finds nothing in the graph",
    ),
    "no topic": (
        {
            "sparql": f"{NS} SELECT ?x WHERE {{ ns:m.03_r3 ns:location.country.capital ?x }}",
            "topic_entities": [{"mid": "m.0nowhere", "name": "Nowhere"}],
        },
        "no topic entity that leads anywhere in the graph",
    ),
}


@pytest.mark.parametrize(("fields", "expected"), ROWS.values(), ids=ROWS.keys())
def test_gold_is_what_the_graph_has(
    fields: Mapping[str, object], expected: object, small_graph, tmp_path: Path
) -> None:
    row = {"id": "q", "question": "what?", "topic_entities": JAMAICA, **fields}
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    gathered = load_examples([path], form="extended", names=small_graph.graph.labels)
    graph = small_graph.graph
    found = find_questions(gathered.examples, [path], graph, "extended", 10.0, gathered)
    if isinstance(expected, str):
        assert (found, gathered.skipped_rows) == ({}, {expected: ["set q"]})
    else:
        [question] = found.values()
        assert (question.golds or question.count) == expected
        assert [topic.mid for topic in question.topics] == ["m.03_r3"]
