import json
from pathlib import Path

from click.testing import CliRunner

from kbqa.engine.files import read_rows
from kbqa.kb.open import open_graph
from tools.score.linking import link_by_popularity, main


def test_the_table_counts_what_is_found_first_and_what_is_missed(
    small_store: Path, tmp_path: Path
) -> None:
    rows = [
        {"question": "capital of Jamaica?", "topic_entities": [{"mid": "m.03_r3"}]},
        {"question": "Justin Bieber in Jamaica?", "topic_entities": [{"mid": "m.0nobody"}]},
        {"question": "how old is Justin Bieber", "subject": "m.06w2sn5", "relation": "r.r.r"},
        {"question": "whose subject has no name", "subject": "m.0nobody", "relation": "r.r.r"},
        {"question": "which has no topic"},
    ]
    file, misses = tmp_path / "some.jsonl", tmp_path / "misses.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = ["--store", str(small_store), "--misses", str(misses), str(file)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    _, _, baseline, kbqa, _, memory = done.stdout.splitlines()
    for line in (baseline, kbqa):
        name, _, n, at_1, at_5, *_ = line.strip("| ").split(" | ")
        assert (name, n, at_1[:6], at_5[:6]) == ("some", "3", "66.7 %", "66.7 %")
    assert memory.startswith("Peak memory: ")
    [(_, miss)] = read_rows(misses)
    assert (miss["question"], miss["place"]) == ("Justin Bieber in Jamaica?", None)


def test_the_baseline_takes_the_longest_name(demo_store: Path) -> None:
    graph = open_graph(demo_store)
    names = graph.names()
    found = link_by_popularity("who is the mayor of new york city in kenya", names)
    assert found[0].name == "New York City"
    assert "Kenya" in [entity.name for entity in found]
    names.close()
    graph.close()


def test_a_baseline_finds_nothing_in_function_words(demo_store: Path) -> None:
    graph = open_graph(demo_store)
    names = graph.names()
    assert link_by_popularity("is it in the", names) == []
    names.close()
    graph.close()
