import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main

MONEY = "Jamaica -> location.country.currency_used"
SIBLINGS = "Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling"
JAXON, JAZMYN = "m.0gxnnwq", "m.0gxnnwd"


def _invoke(*arguments: str | Path, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["crp", "run", *map(str, arguments)], input=stdin)


@pytest.fixture(params=["store", "endpoint"])
def run(request: pytest.FixtureRequest, small_store: Path, small_endpoint: str):
    """Run rows on the small graph, in both ways that it is served."""
    graph = small_store if request.param == "store" else small_endpoint

    def run(*rows: object, options: tuple[str, ...] = ()) -> list[dict[str, object]]:
        stdin = "".join(json.dumps(row) + "\n" for row in rows)
        result = _invoke(f"--{request.param}", graph, *options, stdin=stdin)
        assert (result.exit_code, result.stderr) == (0, "")
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def test_a_path_is_run(run) -> None:
    [row] = run({"id": "q", "crps": [MONEY]})
    assert "location.country.currency_used" in row.pop("sparql")
    assert row == {
        "id": "q",
        "answers": ["m.04xc2m"],
        "boolean": None,
        "count": None,
        "truncated": False,
        "level": "full",
        "dropped": [],
        "beam": 0,
        "problems": [],
        "error": None,
    }


@pytest.mark.parametrize(
    "row",
    [
        {"crp": MONEY},
        {"crps": [MONEY]},
        {"crps": [{"crp": MONEY}]},
        {"crps": [{"crp": None, "routerkgqa": f"Main Path:\n {MONEY}"}, {"crp": MONEY}]},
        {
            "crps": [
                {
                    "routerkgqa": "Main Path:\n Jamaica -[location , country , currency used]-> ?x",
                    "logprob": -0.5,
                    "tokens": 9,
                }
            ]
        },
        {"crp": "m.03_r3 -> location.country.currency_used", "sparql": None, "error": None},
    ],
    ids=["one", "list", "record", "unreadable record", "older record", "of from-sparql"],
)
def test_rows_of_other_commands_are_run(run, row: dict[str, object]) -> None:
    [answered] = run(row)
    assert (answered["answers"], answered["error"]) == (["m.04xc2m"], None)


def test_counts_come_with_their_list_and_yes_and_no_without(run) -> None:
    capital = "Jamaica -> location.country.capital"
    yes, no, count, zero = run(
        {"crp": f"{capital}\n?x = Kingston\nask"},
        {"crp": f"{capital}\n?x = Jamaica\nask"},
        {"crp": f"{SIBLINGS}\ncount"},
        {"crp": f"{SIBLINGS}\n?x = Kingston\ncount"},
    )
    assert (yes["boolean"], yes["count"], yes["answers"]) == (True, None, [])
    assert (no["boolean"], no["count"], no["answers"]) == (False, None, [])
    assert str(no["sparql"]).startswith("ASK")
    assert (count["boolean"], count["count"]) == (None, 2)
    assert sorted(count["answers"]) == [JAZMYN, JAXON]
    assert (zero["count"], zero["answers"], zero["level"], zero["problems"]) == (0, [], "full", [])


def test_literals_are_answers(run) -> None:
    [row] = run({"crp": "Kingston -> location.location.area"})
    assert row["answers"] == ["480"]


def test_the_first_path_that_answers_counts(run) -> None:
    crps = ["nonsense", "Zorblax -> a.b", "Jamaica -> a.b", f"{MONEY}\nso it is", SIBLINGS]
    [row] = run({"crps": crps})
    assert (row["answers"], row["beam"], row["error"]) == (["m.04xc2m"], 3, None)
    unreadable, unlinked, unreachable, partly = row["problems"]
    assert unreadable.startswith("path 1, unreadable: ")
    assert unlinked == "path 2, unlinked: no entity for Zorblax"
    assert unreachable.startswith("path 3, unreachable")
    assert partly.startswith("path 4, reachable: ")
    assert "so it is" in partly


def test_constraints_are_relaxed_unless_that_is_refused(run) -> None:
    crp = f"{SIBLINGS}\n?x -> people.person.gender = Male\n?x -> people.person.gender = Jamaica"
    [relaxed] = run({"crp": crp})
    assert (relaxed["answers"], relaxed["level"]) == ([JAXON], "entity")
    [dropped] = relaxed["dropped"]
    assert "Jamaica" in dropped
    [exact] = run({"crp": crp}, options=("--no-relax",))
    assert (exact["answers"], exact["level"], exact["error"]) == ([], None, None)


def test_more_than_routerkgqas_form_can_say_is_run(run) -> None:
    both = (
        "Justin Bieber (-> people.person.gender | -> people.person.sibling_s "
        "-> people.sibling_relationship.sibling {-> people.person.gender = [Male]})"
    )
    [row] = run({"crp": both})
    assert sorted(row["answers"]) == ["m.05zppz", JAXON]


def test_a_row_without_answers_says_where_its_path_breaks(run) -> None:
    [row] = run({"crp": SIBLINGS.replace("relationship.sibling", "relationship.anthem")})
    assert (row["answers"], row["error"]) == ([], None)
    assert row["problems"] == [
        "path 1, unreachable: breaks at hop 2: people.sibling_relationship.anthem "
        "leads nowhere from there"
    ]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"crp": "nonsense"}, "path 1, unreadable: "),
        ({"crps": ["Zorblax -> a.b"]}, "path 1, unlinked: no entity for Zorblax"),
        ({}, 'InputError: the row needs a text "crp", or'),
        ({"crps": MONEY}, 'InputError: the row needs a text "crp", or'),
        ({"crps": [{"text": MONEY}]}, 'InputError: the row needs a text "crp", or'),
    ],
    ids=["unreadable", "unlinked", "nothing", "no list", "no text"],
)
def test_what_cannot_be_run_is_an_error_and_the_next_row_is_run(
    run, row: dict[str, object], error: str
) -> None:
    failed, good = run(row, {"crp": MONEY})
    assert str(failed["error"]).startswith(error)
    assert (failed["answers"], list(failed)) == ([], list(good))
    assert good["answers"] == ["m.04xc2m"]


def test_no_path_has_no_answer(run) -> None:
    [row] = run({"crps": []})
    assert (row["answers"], row["error"]) == ([], None)


def test_given_topics_are_used_only_on_request(run) -> None:
    row = {"crp": MONEY.replace("Jamaica", "Atlantis"), "topic_entities": [{"mid": "m.03_r3"}]}
    assert run(row)[0]["error"] == "path 1, unlinked: no entity for Atlantis"
    assert run(row, options=("--gold-entities",))[0]["answers"] == ["m.04xc2m"]
    [bare] = run({**row, "topic_entities": ["m.03_r3"]}, options=("--gold-entities",))
    assert bare["answers"] == ["m.04xc2m"]
    [wrong] = run({**row, "topic_entities": [7]}, options=("--gold-entities",))
    assert str(wrong["error"]).startswith('InputError: "topic_entities" is not a list')


def test_a_questions_words_help_to_find_a_topic(run) -> None:
    [row] = run({"crp": MONEY.replace("Jamaica", "Atlantis"), "question": "money of Jamaica?"})
    assert row["answers"] == ["m.04xc2m"]


def test_a_query_that_takes_too_long_is_its_rows_error(run) -> None:
    rounds = " <- people.person.gender -> people.person.gender" * 30
    slow = f"m.06w2sn5 -> people.person.gender{rounds}\n?x -> a.b = m.0nobody"
    failed, good = run({"crp": slow}, {"crp": MONEY}, options=("--timeout", "1"))
    assert str(failed["error"]).startswith("path 1, failed: no result from")
    assert good["answers"] == ["m.04xc2m"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--store", "none"), 1, "there is no store at none"),
        (("--endpoint", "http://127.0.0.1:9/"), 1, "127.0.0.1:9"),
        (("--endpoint", "localhost"), 2, "an endpoint is an http"),
    ],
    ids=["no store", "endpoint down", "no URL"],
)
def test_a_graph_that_does_not_answer_fails_the_command(
    options: tuple[str, ...], code: int, message: str
) -> None:
    result = _invoke(*options, stdin=json.dumps({"crp": MONEY}))
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_each_row_is_answered_before_the_next_is_read(small_store: Path) -> None:
    command = [sys.executable, "-m", "kbqa.engine.cli", "crp", "run", "--store", str(small_store)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for id_ in (1, 2):
            process.stdin.write(json.dumps({"id": id_, "crp": MONEY}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == id_
