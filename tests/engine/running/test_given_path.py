"""Paths that a person wrote, through `Engine.run_path`."""

import json
from collections.abc import Iterator

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.engine import Engine
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.errors import CrpSyntaxError, DeadlineExceeded, InputError
from kbqa.sparql.terms import LiteralTerm

MONEY = "Jamaica -> location.country.currency_used"
SIBLINGS = "Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling"
BROTHER = f"{SIBLINGS}\n?x -> people.person.gender = Male"


@pytest.fixture
def engine(graph: Graph) -> Iterator[Engine]:
    with Engine(graph) as opened:
        yield opened


def _names(answer: Answer) -> list[str]:
    return sorted(each.name for each in answer.answers)


def test_a_path_is_answered_with_its_proof(engine: Engine) -> None:
    answer = engine.run_path(BROTHER)
    assert _names(answer) == ["Jaxon Bieber"]
    assert [triple.part for triple in answer.evidence] == [0, 0, 1]
    assert (answer.stage, answer.problem, answer.reason) == ("given", None, None)
    assert "people.person.gender" in (answer.sparql or "")
    record = json.loads(json.dumps(answer.to_dict()))["trace"]
    assert record["topic"] == {"mid": "m.06w2sn5", "name": "Justin Bieber"}
    assert (record["level"], record["beam"]) == ("full", 0)
    [beam] = record["beams"]
    assert beam["crp_words"] == record["crp_words"]
    assert (beam["answer_count"], beam["first_answers"]) == (1, ["Jaxon Bieber"])
    described = answer.trace.describe()
    assert described[:2] == ["Path:", f"  {record['crp_words'][0]}"]
    assert described[-1] == "The path was given, relaxation: full."


@pytest.mark.parametrize(
    "path",
    [
        "Main Path:\n Jamaica -[location , country , currency used]-> ?x",
        "m.03_r3 -> location.country.currency_used",
        Crp(Entity("Jamaica"), (Hop("location.country.currency_used"),)),
    ],
    ids=["RouterKGQA's form", "ids", "CRP"],
)
def test_a_path_may_be_in_any_form(engine: Engine, path: str | Crp) -> None:
    assert _names(engine.run_path(path)) == ["Jamaican dollar"]


def test_a_topic_that_only_has_an_id_is_read_by_its_name(engine: Engine) -> None:
    record = engine.run_path("m.03_r3 -> location.country.currency_used").to_dict()["trace"]
    assert record["topic"] == {"mid": "m.03_r3", "name": "Jamaica"}
    assert record["crp_words"][0].startswith("From Jamaica, follow")


@pytest.mark.parametrize("path", ["", "nonsense", "Main Path:\n"])
def test_a_text_that_is_no_path_is_refused(engine: Engine, path: str) -> None:
    with pytest.raises(CrpSyntaxError):
        engine.run_path(path)


def test_what_cannot_be_read_of_a_path_is_told(engine: Engine) -> None:
    answer = engine.run_path(f"{MONEY}\nand so on")
    assert _names(answer) == ["Jamaican dollar"]
    assert answer.problem == answer.to_dict()["trace"]["beams"][0]["problem"]
    assert "line 2" in (answer.problem or "")


def test_constraints_are_dropped_only_if_that_is_asked(engine: Engine) -> None:
    path = f'{BROTHER}\n?x -> type.object.name reads "Nobody"'
    relaxed, strict = engine.run_path(path), engine.run_path(path, relax=False)
    assert _names(relaxed) == ["Jaxon Bieber"]
    assert relaxed.to_dict()["trace"]["level"] == "string"
    assert [triple.part for triple in relaxed.evidence] == [0, 0, 1]
    assert (strict.answers, strict.reason) == ((), "empty")


@pytest.mark.parametrize(
    ("path", "reason", "problem"),
    [
        (
            MONEY.replace("Jamaica", "Zorblax"),
            "unlinked",
            "the path cannot start: no entity for Zorblax",
        ),
        (
            SIBLINGS.replace("relationship.sibling", "relationship.anthem"),
            "unreachable",
            "the graph has no such path: breaks at hop 2: "
            "people.sibling_relationship.anthem leads nowhere from there",
        ),
        (
            f"{MONEY}\n?x = Kingston\n?x = Jamaica",
            "empty",
            "the path exists, but nothing on it leads to an answer",
        ),
    ],
)
def test_without_an_answer_the_path_says_why(
    engine: Engine, path: str, reason: str, problem: str
) -> None:
    answer = engine.run_path(path, relax=False)
    assert (answer.reason, answer.problem) == (reason, problem)
    record = answer.to_dict()["trace"]
    assert (record["crp"], record["beam"], len(record["beams"])) == (None, None, 1)
    assert answer.trace.describe()[0] == "The path as it was read:"


def test_yes_no_and_counts_are_answers(engine: Engine) -> None:
    capital = "Jamaica -> location.country.capital\n?x = Kingston\nask"
    assert engine.run_path(capital).boolean is True
    assert engine.run_path(f"{SIBLINGS}\ncount").count == 2
    answer = engine.run_path(f"{SIBLINGS}\n?x = Kingston\ncount")
    assert (answer.count, answer.is_answered) == (0, True)


def test_a_literal_is_an_answer_of_a_path(engine: Engine) -> None:
    [area] = engine.run_path("Kingston -> location.location.area").answers
    assert area.term == LiteralTerm("480")


def test_the_question_does_not_replace_what_the_path_says(engine: Engine) -> None:
    answer = engine.run_path(
        "Kingston -> location.location.containedby", "who are Justin Bieber's siblings?"
    )
    assert _names(answer) == ["Jamaica"]
    assert "Justin Bieber" in {each.name for each in answer.linked}
    wrong = engine.run_path("Male -> location.country.capital", "what is the capital of Jamaica?")
    assert (wrong.answers, wrong.reason) == ((), "unreachable")


def test_a_given_entity_is_meant_by_its_name(engine: Engine) -> None:
    topics = [Entity("Jamaica", "m.03yl7"), Entity(mid="m.06w2sn5")]
    moved = engine.run_path("Jamaica -> location.location.containedby", topics=topics)
    assert _names(moved) == ["Jamaica"]
    assert moved.to_dict()["trace"]["topic"]["mid"] == "m.03yl7"
    assert len(engine.run_path(SIBLINGS, topics=topics).answers) == 2


def test_stages_of_a_path_are_heard(engine: Engine) -> None:
    heard: list[str] = []
    answer = engine.run_path(MONEY, "jamaican money?", watch=heard.append)
    assert list(dict.fromkeys(heard)) == ["link", "ground", "reach", "execute", "prove"]
    assert set(answer.seconds) == set(heard)
    unasked: list[str] = []
    engine.run_path(MONEY, watch=unasked.append)
    assert "link" not in unasked


def test_a_path_ends_at_its_deadline_and_with_its_engine(engine: Engine) -> None:
    with pytest.raises(DeadlineExceeded):
        engine.run_path(MONEY, deadline_s=0.0)
    engine.close()
    with pytest.raises(InputError, match="the engine is closed"):
        engine.run_path(MONEY)
