import json
from dataclasses import replace

import pytest

from kbqa.engine.answer import Answer, AnswerEntity, Beam, EvidenceTriple, Result
from kbqa.engine.evaluation.metrics import Mean
from kbqa.engine.render import render_answer, render_summary
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity
from kbqa.sparql.terms import Literal

MALE = Constraint(1, (Hop("people.person.gender"),), IsEntity(Entity("Zorblax")))
CRP = Crp(Entity("Jamaica", "m.03_r3"), (Hop("location.country.currency_used"),))
ANSWER = Answer(
    question="what jamaican money called?",
    answers=(AnswerEntity("m.04xc2m", "Jamaican dollar"),),
    result=Result(1, CRP, CRP, "full", (), "SELECT ?x {\n}"),
    evidence=(
        EvidenceTriple(
            "m.03_r3",
            "location.country.currency_used",
            "m.04xc2m",
            "Jamaica",
            "Jamaican dollar",
        ),
    ),
    linked=(),
    beams=(
        Beam("nonsense", -1.0, "unreadable", "no main path"),
        Beam("Main Path:\n Kenya -> a.b", -2.0, "reachable"),
    ),
    seconds={"generate": 1.234, "execute": 0.001},
)
UNANSWERED = replace(
    ANSWER, answers=(), result=None, evidence=(), problem="none of the paths exists"
)


def test_an_answer_reads_like_this() -> None:
    assert (
        render_answer(ANSWER)
        == """\
Jamaican dollar  (m.04xc2m)

Path:
  From Jamaica, follow location.country.currency_used to the answers.

Evidence:
  Jamaica  location.country.currency_used  Jamaican dollar

SPARQL:
  SELECT ?x {
  }

From path 2 of the model, relaxation: full.

Time: generate 1.23 s, execute 0.00 s"""
    )


def test_no_answer_reads_like_this() -> None:
    assert (
        render_answer(UNANSWERED)
        == """\
No answer: none of the paths exists.

Paths that the model wrote:
  1. unreadable: nonsense (no main path)
  2. reachable: Kenya -> a.b

Time: generate 1.23 s, execute 0.00 s"""
    )


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (AnswerEntity("m.04xc2m", "Jamaican dollar"), "Jamaican dollar  (m.04xc2m)"),
        (AnswerEntity("m.0pop1", "m.0pop1"), "m.0pop1"),
        (AnswerEntity(Literal("480"), "480"), "480"),
    ],
    ids=["entity", "mediator", "literal"],
)
def test_each_kind_of_answer_has_its_line(item: AnswerEntity, line: str) -> None:
    assert render_answer(replace(ANSWER, answers=(item,))).splitlines()[0] == line


@pytest.mark.parametrize(("truncated", "more"), [(False, "3 more"), (True, "3+ more")])
def test_many_answers_are_counted(truncated: bool, more: str) -> None:
    answers = tuple(AnswerEntity(f"m.{n}", f"Name {n}") for n in range(13))
    lines = render_answer(replace(ANSWER, answers=answers, truncated=truncated)).splitlines()
    assert lines[9:11] == ["Name 9  (m.9)", f"… and {more} (--json prints all)"]


def test_what_relaxation_dropped_is_shown() -> None:
    asked = replace(CRP, constraints=(MALE,))
    relaxed = Result(1, asked, CRP, "main_path", (MALE,), "")
    beams = (ANSWER.beams[0], Beam("…", -2.0, "reachable", "no entity is called 'Zorblax'"))
    text = render_answer(replace(ANSWER, result=relaxed, beams=beams))
    assert "Dropped, because nothing satisfied all of it:\n  Keep those where the answer" in text
    assert "Of what the model wrote: no entity is called 'Zorblax'." in text
    assert "relaxation: main_path." in text


def test_evidence_shows_mediators_and_literals() -> None:
    evidence = (
        EvidenceTriple("m.03_r3", "a.b.population", "m.0pop1", "Jamaica", "m.0pop1"),
        EvidenceTriple("m.0pop1", "a.b.number", Literal("27"), "m.0pop1", "27"),
    )
    text = render_answer(replace(ANSWER, evidence=evidence))
    assert "  Jamaica  a.b.population  [m.0pop1]\n  [m.0pop1]  a.b.number  27\n" in text


def test_much_evidence_is_counted() -> None:
    text = render_answer(replace(ANSWER, evidence=ANSWER.evidence * 12))
    assert text.count("Jamaica  location") == 10
    assert "… and 2 more triples" in text


@pytest.mark.parametrize("problem", ["the proof is late", "the proof is late."])
def test_a_problem_beside_an_answer_is_a_note(problem: str) -> None:
    lines = render_answer(replace(ANSWER, problem=problem)).splitlines()
    assert lines[1] == "Note: the proof is late."


MEANS = {"all": dict.fromkeys(("hit", "hits_at_1", "exact_match", "f1"), Mean(0.5, 0.25, 0.75, 8))}


def test_a_summary_is_a_table() -> None:
    text = render_summary(MEANS, entities="gold", failed=1, unscored=2, as_json=False)
    cell = "0.500 [0.250, 0.750]"
    assert (
        text
        == f"""\
| tier (gold entities) | n | hit | Hits@1 | exact match | F1 |
|---|---|---|---|---|---|
| all | 8 | {cell} | {cell} | {cell} | {cell} |

95 % bootstrap intervals. 1 failed, 2 not scored."""
    )


def test_a_summary_is_json() -> None:
    text = render_summary(MEANS, entities="linked", failed=1, unscored=2, as_json=True)
    record = json.loads(text)
    assert record["tiers"]["all"]["f1"] == {"mean": 0.5, "low": 0.25, "high": 0.75, "n": 8}
    assert (record["entities"], record["failed"], record["unscored"]) == ("linked", 1, 2)


def test_a_summary_without_scores_says_how_many_were_not_scored() -> None:
    text = render_summary({}, entities="gold", failed=0, unscored=3, as_json=False)
    assert text.endswith("0 failed, 3 not scored.")
