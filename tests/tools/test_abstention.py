"""Twins lack exactly the gold facts, and what they cost is measured."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_runs import MadeRow, make_row, write_run

from kbqa.kb.open import open_graph
from tools.make.twins import main as make_twins
from tools.score.abstention import main as abstention

JAMAICA = {"mid": "m.03_r3", "name": "Jamaica"}


def _question(id_: str, relations: str, *answers: str) -> Mapping[str, object]:
    return {
        "id": id_,
        "question": f"{id_}?",
        "topic_entities": [JAMAICA],
        "sparql": f"SELECT ?x WHERE {{ {relations} }}",
        "answers": [{"arg": answer} for answer in answers],
    }


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [
        _question("money", "ns:m.03_r3 ns:location.country.currency_used ?x", "m.04xc2m"),
        _question(
            "siblings",
            "ns:m.06w2sn5 ns:people.person.sibling_s ?y . "
            "?y ns:people.sibling_relationship.sibling ?x",
            "m.0gxnnwq",
            "m.0gxnnwd",
        ),
        _question("area", "ns:m.03yl7 ns:location.location.area ?x", "480"),
        _question("other", "ns:m.03_r3 ns:location.country.capital ?x", "m.0gxnnwq"),
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_twins_lack_the_gold_facts(small_dump: Path, small_store: Path, questions: Path) -> None:
    output = questions.parent / "twins"
    options = ["--store", small_store, "--questions", questions, "--output", output]
    result = CliRunner().invoke(make_twins, [str(each) for each in (*options, small_dump)])
    assert result.exit_code == 0, result.output
    assert "3 twins of 4 questions; gold query finds something else 1" in result.output
    lines = (output / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    twins = [json.loads(line) for line in lines]
    assert [twin["id"] for twin in twins] == ["money", "siblings", "area"]
    assert all(twin["unanswerable"] and "answers" not in twin for twin in twins)
    with closing(open_graph(small_store)) as full, closing(open_graph(output / "store")) as left:
        query = "SELECT ?s ?p ?o WHERE { ?s ?p ?o }"
        rows = [set(graph.select(query).rows) for graph in (full, left)]
    missing = {(str(subject), str(relation)) for subject, relation, _ in rows[0] - rows[1]}
    # The profile by which the graph is loaded again keeps fewer languages.
    gone = {each for each in missing if each[1] != "type.object.name"}
    assert gone == {
        ("m.03_r3", "location.country.currency_used"),
        ("m.04xc2m", "finance.currency.countries_used"),
        ("m.06w2sn5", "people.person.sibling_s"),
        ("m.0gxnnwp", "people.sibling_relationship.sibling"),
        ("m.0gxnnwc", "people.sibling_relationship.sibling"),
        ("m.03yl7", "location.location.area"),
    }
    assert not rows[1] - rows[0]


def test_thresholds_and_what_they_cost(tmp_path: Path) -> None:
    answered = [make_row(str(at), ["m.1"], confidence=at / 100) for at in range(20, 100)]
    answered.append(make_row("none", [], confidence=None))
    twins = [
        make_row(f"twin {at}", ["m.2"], gold=(), gold_unanswerable=True, confidence=at / 100)
        for at in range(10, 30)
    ]
    for twin in twins:
        twin["gold"] = []
    run = write_run(tmp_path, answered, "answered")
    other = write_run(tmp_path, twins, "twins")
    options = ["--answered", str(run), "--unanswerable", str(other), "--unsure-below", "0.25"]
    result = CliRunner().invoke(abstention, options)
    assert result.exit_code == 0, result.output
    assert "81 answerable questions, 20 others" in result.output
    assert "| 0.250 | 92.6% | 1.000 [1.000, 1.000] | 0.750 [" in result.output


def _tables(folder: Path, answered: Sequence[MadeRow], others: Sequence[MadeRow]) -> list[str]:
    """Return the table of all others, and that without the one that is answered rightly."""
    runs = (write_run(folder, answered, "answered"), write_run(folder, others, "others"))
    options = ["--answered", str(runs[0]), "--unanswerable", str(runs[1])]
    result = CliRunner().invoke(abstention, options)
    assert result.exit_code == 0, result.output
    return result.output.split("Without the 1 that are answered rightly all the same:")


def test_twins_that_are_answered_from_other_facts_count_apart(tmp_path: Path) -> None:
    answered = [make_row(id_, ["m.1"], confidence=0.9) for id_ in ("city", "river")]
    twin = {"gold": [], "gold_unanswerable": True}
    twins = [
        make_row("city", ["m.1", "m.2"], **twin, confidence=0.8),
        make_row("river", ["m.3"], **twin, confidence=0.4),
        make_row("sea", ["m.1"], **twin, confidence=0.95),
    ]
    first, rest = _tables(tmp_path, answered, twins)
    assert "2 answerable questions, 3 others; AUROC 0.667" in first
    assert "| 0.900 | 100.0% | 1.000 [1.000, 1.000] | 0.667 [" in first
    assert "2 answerable questions, 2 others; AUROC 0.500" in rest
    assert "| 0.900 | 100.0% | 1.000 [1.000, 1.000] | 0.500 [" in rest


def test_the_tier_none_has_its_own_gold_answers(tmp_path: Path) -> None:
    answered = [make_row("city", ["m.1"], confidence=0.9)]
    none = [
        make_row("river", ["m.1"], gold=("m.1",), tier="none", confidence=0.95),
        make_row("sea", ["m.2"], gold=("m.1",), tier="none", confidence=0.3),
        make_row("lake", [], gold=(), tier="none", confidence=None),
    ]
    first, rest = _tables(tmp_path, answered, none)
    assert "1 answerable questions, 3 others; AUROC 0.667" in first
    assert "1 answerable questions, 2 others; AUROC 1.000" in rest
