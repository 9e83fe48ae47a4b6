"""The tools that score all candidates of a question, on the small graph."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner

from kbqa.engine.cli import main as kbqa
from tools.score.best_of import main as best_of
from tools.score.judge import main as judge

JAMAICA = {"mid": "m.03_r3", "name": "Jamaica"}
MONEY = "Jamaica -> location.country.currency_used"
MONEY_BACKWARDS = "Jamaica <- finance.currency.countries_used"
CAPITAL = "Jamaica -> location.country.capital"
COUNTED = f"{MONEY}\ncount"
ASKED = f"{CAPITAL}\n?x = Kingston\nask"
SIBLINGS = "Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling"


def sparql(relation: str) -> str:
    return f"SELECT ?x WHERE {{ ns:m.03_r3 ns:{relation} ?x }}"


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def write_beams(path: Path, beams: Mapping[str, Sequence[tuple[str, float]]]) -> Path:
    rows = [
        {"id": id_, "crps": [{"crp": text, "logprob": p, "tokens": 10} for text, p in crps]}
        for id_, crps in beams.items()
    ]
    return write(path, rows)


def table(output: str, number: int = 0) -> dict[str, list[str]]:
    """Return the cells of a printed table by file and group, without intervals."""
    tables = [lines.splitlines() for lines in output.split("\n\n") if lines.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables[number]]
    header = {"header": cells[0][2:]}
    return header | {
        f"{name}, {group}": [cell.split(" [")[0] for cell in rest]
        for name, group, *rest in cells[2:]
    }


def run(command: Command, *arguments: object) -> str:
    done = CliRunner().invoke(command, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Questions of each kind of gold, in every tier."""
    rows = [
        {
            "id": "list",
            "question": "what money does Jamaica use?",
            "sparql": sparql("location.country.currency_used"),
            "answers": [{"arg": "m.04xc2m"}],
            "evidence": "independent",
        },
        {
            "id": "count",
            "question": "how many currencies does Jamaica use?",
            "sparql": sparql("finance.currency.countries_used"),
            "count": 1,
            "evidence": "annotated",
        },
        {
            "id": "boolean",
            "question": "is Kingston the capital of Jamaica?",
            "sparql": sparql("location.country.capital"),
            "boolean": True,
            "evidence": "annotated",
        },
        {
            "id": "none",
            "question": "which siblings has Justin Bieber?",
            "answers": [{"arg": "m.0gxnnwq"}],
            "evidence": "none",
        },
        {"id": "without gold", "question": "what else?"},
    ]
    return write(tmp_path / "questions.jsonl", [{"topic_entities": [JAMAICA], **r} for r in rows])


@pytest.fixture
def before(tmp_path: Path) -> Path:
    beams = {
        "list": [(CAPITAL, -0.1), (MONEY, -6.0), (MONEY_BACKWARDS, -7.0)],
        "count": [(MONEY, -0.1), (COUNTED, -1.0)],
        "boolean": [(ASKED, -0.1), (CAPITAL, -2.0)],
        "none": [(SIBLINGS, -0.1)],
        "without gold": [],
    }
    return write_beams(tmp_path / "before.jsonl", beams)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    beams = {
        "list": [(MONEY, -0.1)],
        "count": [(COUNTED, -0.1)],
        "boolean": [],
        "none": [("no path at all", -0.1)],
    }
    return write_beams(tmp_path / "after.jsonl", beams)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A training set with one relation; a row that is left out has another."""
    rows = [
        {"question": "which money?", "sparql": sparql("location.country.currency_used")},
        {
            "question": "which capital?",
            "sparql": sparql("location.country.capital"),
            "test_parent": True,
        },
    ]
    return write(tmp_path / "trained.jsonl", [{"topic_entities": [JAMAICA], **r} for r in rows])


def test_the_best_of_the_first_candidates_is_scored(
    questions: Path, before: Path, after: Path, small_store: Path
) -> None:
    output = run(best_of, "--questions", questions, "--store", small_store, before, after)
    assert table(output) == {
        "header": ["n", "chosen", "best of 1", "best of 3"],
        "before, independent + annotated": ["3", "0.667", "0.333", "1.000"],
        "before, tier: independent": ["1", "0.000", "0.000", "1.000"],
        "before, tier: annotated": ["2", "1.000", "0.500", "1.000"],
        "before, tier: none": ["1", "0.667", "0.667", "0.667"],
        "after, independent + annotated": ["3", "0.667", "0.667", "–"],
        "after, tier: independent": ["1", "1.000", "1.000", "–"],
        "after, tier: annotated": ["2", "0.500", "0.500", "–"],
        "after, tier: none": ["1", "0.000", "0.000", "–"],
    }
    assert "Against before, paired:" in output
    assert table(output, 1)["after, tier: independent"][1:] == ["1.000", "1.000", "–"]
    assert "0.000 [-1.000, 1.000], 1 wins, 1 losses, p = 1" in output
    assert output.endswith("4 of 5 questions are in all files and have gold.\n")


def test_the_chosen_answers_are_those_of_eval(
    questions: Path, before: Path, small_store: Path, tmp_path: Path
) -> None:
    arguments = ("--questions", questions, "--store", small_store)
    eval_output = ("--output", tmp_path / "run.jsonl", "--json")
    tiers = json.loads(
        run(kbqa, "eval", *arguments, "--beams", before, "--set", "judge=confidence", *eval_output)
    )["tiers"]
    rows = table(run(best_of, *arguments, before))
    for tier in ("independent", "annotated", "none"):
        assert float(rows[f"before, tier: {tier}"][1]) == pytest.approx(
            tiers[tier]["f1"]["mean"], abs=0.001
        )


def test_a_judge_is_scored_beside_what_was_before(
    questions: Path, before: Path, after: Path, small_store: Path
) -> None:
    arguments = ("--questions", questions, "--store", small_store)
    output = run(judge, *arguments, "--before", after, before)
    rows = table(output)
    group = "independent + annotated"
    assert rows["header"] == ["n", "given", "best"]
    assert rows[f"before, {group}"] == ["3", "0.667", "0.667"]
    assert rows[f"confidence model, {group}"] == ["3", "0.667", "1.000"]
    assert rows[f"judge, {group}"][2] == "1.000"
    assert rows[f"judge, written, {group}"][2] == "1.000"
    assert "| before | 2 | " in output


def test_questions_are_divided_by_the_relations_trained_on(
    questions: Path, before: Path, trained: Path, small_store: Path
) -> None:
    rows = table(
        run(best_of, "--questions", questions, "--store", small_store, "--trained", trained, before)
    )
    sizes = {name: cells[0] for name, cells in rows.items() if "relations" in name}
    assert sizes == {
        "before, relations: all trained on": "1",
        "before, relations: one not trained on": "2",
        "before, relations: one not trained on, nor its reverse": "1",
    }
