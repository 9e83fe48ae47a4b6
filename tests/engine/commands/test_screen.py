import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import make_failed_row, make_row

from kbqa.engine.answer import (
    Answer,
    AnswerEntity,
    EvidenceTriple,
    Line,
    answer_lines,
    last_lines,
    literal_forms,
)
from kbqa.engine.commands.screen import PAPER, Screen, render_summary, standard_output, waiting
from kbqa.engine.evaluation.rows import Row
from kbqa.engine.linking.ground import Grounding
from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.running.evidence import PathTrace
from kbqa.engine.running.tried import Tried
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.open import open_graph
from kbqa.kb.schema import LiteralForms
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity
from kbqa.sparql.relax import Relaxation
from kbqa.sparql.terms import LiteralTerm

MALE = Constraint(1, (Hop("people.person.gender"),), IsEntity(Entity("Zorblax")))
CRP = Crp(Entity("Jamaica", "m.03_r3"), (Hop("location.country.currency_used"),))
WRONG = Tried(Candidate("nonsense", -1.0, 9), "unreadable", "no main path")
RIGHT = Tried(
    Candidate("Main Path:\n Kenya -> a.b", -2.0, 9),
    "reachable",
    grounding=Grounding(CRP, (), {}),
    relaxation=Relaxation("full", CRP, ()),
)
ANSWER = Answer(
    question="what jamaican money called?",
    answers=(AnswerEntity("m.04xc2m", "Jamaican dollar"),),
    trace=PathTrace((WRONG, RIGHT), 1),
    confidence=0.7512,
    sparql="SELECT ?x {\n}",
    evidence=(
        EvidenceTriple(
            "m.03_r3",
            "location.country.currency_used",
            "m.04xc2m",
            "Jamaica",
            "Jamaican dollar",
        ),
    ),
    stage="specialised",
    seconds={"write": 1.234, "execute": 0.001},
)
UNANSWERED = Answer(
    question=ANSWER.question,
    answers=(),
    trace=PathTrace((WRONG, replace(RIGHT, relaxation=None)), None),
    problem="none of the paths exists",
    seconds=ANSWER.seconds,
)


def render_answer(
    answer: Answer, graph: str, forms: LiteralForms | None = None, screen: Screen = PAPER
) -> str:
    lines = answer_lines(answer, forms or LiteralForms())
    return screen.write_all([*lines, *last_lines(graph, answer.seconds)])


def test_what_is_not_from_the_graph_is_marked() -> None:
    answers = (
        AnswerEntity("m.1", "One"),
        AnswerEntity("m.2", "Two", "named"),
        AnswerEntity(LiteralTerm("Three"), "Three", "text"),
    )
    lines = render_answer(replace(ANSWER, answers=answers), "store x").splitlines()
    assert lines[:3] == [
        "One  (m.1)",
        "Two  (m.2)  [from the language model, not from the graph]",
        "Three  [from the language model; the graph has no such name]",
    ]


def test_how_sure_each_answer_is_is_shown_if_they_differ() -> None:
    alike = (AnswerEntity("m.1", "One", confidence=0.801), AnswerEntity("m.2", "Two", "graph", 0.8))
    assert _first_lines(alike) == ["One  (m.1)", "Two  (m.2)"]
    one, two = alike
    assert _first_lines((replace(one, confidence=0.9), two)) == [
        "One  (m.1)  0.90",
        "Two  (m.2)  0.80",
    ]


def _first_lines(answers: tuple[AnswerEntity, ...]) -> list[str]:
    return render_answer(replace(ANSWER, answers=answers), "store x").splitlines()[: len(answers)]


def test_an_answer_reads_like_this() -> None:
    assert (
        render_answer(ANSWER, "store x")
        == """\
Jamaican dollar  (m.04xc2m)
Confidence: 0.75

Path:
  From Jamaica, follow location.country.currency_used to the answers.
From path 2 of the model, relaxation: full.

Evidence:
  Jamaica  location.country.currency_used  Jamaican dollar

SPARQL:
  SELECT ?x {
  }

Graph: store x
Time: write 1.23 s, execute 0.00 s"""
    )


def test_an_unsure_answer_is_a_guess() -> None:
    linked = (LinkedEntity("m.03_r3", "Jamaica", "jamaica", 0.9),)
    unsure = replace(ANSWER, unsure_below=0.8, linked=linked)
    assert (unsure.status, ANSWER.status, UNANSWERED.status) == ("unsure", "answered", "none")
    lines = render_answer(unsure, "store x").splitlines()
    opening = "Not sure (0.75): the confidence is below 0.8. Best guess:"
    assert lines[:2] == [opening, "Jamaican dollar  (m.04xc2m)"]
    assert "Confidence: 0.75" not in lines
    assert unsure.to_dict()["status"] == "unsure"
    assert f"<p>{opening}</p>" in unsure._repr_mimebundle_()["text/html"]
    assert (unsure.to_dict()["doubt"], ANSWER.doubt) == ("the confidence is below 0.8", None)
    assert replace(unsure, linked=()).doubt == (
        "the confidence is below 0.8, and the graph has no entity of any name in the question"
    )


def test_each_door_adds_its_own_advice_to_a_question_about_nothing_known() -> None:
    unlinked = replace(UNANSWERED, problem="nothing is named", reason="unlinked")
    hint = "Name one with --topic MID, or with :topic at the prompt."
    assert render_answer(unlinked, "store x").startswith(f"No answer: nothing is named. {hint}\n")
    assert "--topic" not in str(unlinked.to_dict()) + unlinked._repr_mimebundle_()["text/html"]


def test_no_answer_reads_like_this() -> None:
    assert (
        render_answer(UNANSWERED, "store x")
        == """\
No answer: none of the paths exists.

Paths that the model wrote:
  1. unreadable: nonsense (no main path)
  2. reachable: Kenya -> a.b

Graph: store x
Time: write 1.23 s, execute 0.00 s"""
    )


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (AnswerEntity("m.04xc2m", "Jamaican dollar"), "Jamaican dollar  (m.04xc2m)"),
        (AnswerEntity("m.0pop1", "m.0pop1"), "m.0pop1"),
        (AnswerEntity(LiteralTerm("480"), "480"), "480"),
    ],
    ids=["entity", "mediator", "literal"],
)
def test_each_kind_of_answer_has_its_line(item: AnswerEntity, line: str) -> None:
    assert render_answer(replace(ANSWER, answers=(item,)), "").splitlines()[0] == line


@pytest.mark.parametrize(("truncated", "more"), [(False, "3 more"), (True, "3+ more")])
def test_many_answers_are_counted(truncated: bool, more: str) -> None:
    answers = tuple(AnswerEntity(f"m.{n}", f"Name {n}") for n in range(13))
    lines = render_answer(replace(ANSWER, answers=answers, truncated=truncated), "").splitlines()
    assert lines[9:11] == ["Name 9  (m.9)", f"… and {more} (--json prints all)"]


def test_what_relaxation_dropped_is_shown() -> None:
    asked = replace(CRP, constraints=(MALE,))
    relaxed = replace(
        RIGHT,
        problem="no entity is called 'Zorblax'",
        grounding=Grounding(asked, (), {}),
        relaxation=Relaxation("main_path", CRP, (MALE,)),
    )
    trace = PathTrace((WRONG, relaxed), 1)
    text = render_answer(replace(ANSWER, trace=trace), "")
    assert "Dropped, because nothing satisfied all of it:\n  Keep those where the answer" in text
    assert "Of what the model wrote: no entity is called 'Zorblax'." in text
    assert "relaxation: main_path." in text


def test_evidence_shows_mediators_and_literals() -> None:
    evidence = (
        EvidenceTriple("m.03_r3", "a.b.population", "m.0pop1", "Jamaica", "m.0pop1"),
        EvidenceTriple(
            "m.0pop1", "type.object.type", "a.dated_integer", "m.0pop1", "Dated Integer"
        ),
        EvidenceTriple("m.0pop1", "a.dated_integer.number", LiteralTerm("27"), "m.0pop1", "27"),
    )
    text = render_answer(replace(ANSWER, evidence=evidence), "")
    assert "  Jamaica  a.b.population  [dated integer m.0pop1]\n" in text
    assert "  [dated integer m.0pop1]  a.dated_integer.number  27\n" in text


def test_an_unnamed_answer_is_called_by_what_leads_to_it() -> None:
    population = EvidenceTriple("m.1", "a.b.population_s", "m.0pop1", "One", "m.0pop1")
    answer = replace(ANSWER, answers=(AnswerEntity("m.0pop1", "m.0pop1"),), evidence=(population,))
    assert render_answer(answer, "").splitlines()[0] == "[population m.0pop1]"


def test_queries_are_shown_with_prefixes() -> None:
    query = "ASK {\n  <http://rdf.freebase.com/ns/m.1> ?y ?x .\n}"
    assert (
        "SPARQL:\n  PREFIX ns: <http://rdf.freebase.com/ns/>\n  ASK {\n    ns:m.1 ?y ?x .\n  }\n"
    ) in render_answer(replace(ANSWER, sparql=query), "")


def test_a_terminal_sees_what_is_what_by_colour() -> None:
    evil = replace(ANSWER, answers=(AnswerEntity("m.1", "\x1b[2JOne"),), problem="it is late")
    text = render_answer(evil, "store x", screen=Screen(40, has_colours=True))
    assert text.startswith("\x1b[1m�[2JOne  (m.1)\x1b[0m\n\x1b[33mNote: it is late.\x1b[0m\n")
    assert "\x1b[36mEvidence:\x1b[0m\n  Jamaica\n    location.country.currency_used\n" in text
    assert text.endswith("\x1b[2mTime: write 1.23 s, execute 0.00 s\x1b[0m")


def test_much_evidence_is_counted() -> None:
    text = render_answer(replace(ANSWER, evidence=ANSWER.evidence * 12), "")
    assert text.count("Jamaica  location") == 10
    assert "… and 2 more triples" in text


@pytest.mark.parametrize("problem", ["the proof is late", "the proof is late."])
def test_a_problem_beside_an_answer_is_a_note(problem: str) -> None:
    lines = render_answer(replace(ANSWER, problem=problem), "").splitlines()
    assert lines[1] == "Note: the proof is late."


def test_yes_comes_with_the_triples_that_show_it() -> None:
    lines = render_answer(replace(ANSWER, answers=(), boolean=True), "store x").splitlines()
    assert lines[:3] == [
        "Yes:",
        "  Jamaica  location.country.currency_used  Jamaican dollar",
        "Confidence: 0.75",
    ]
    assert "Evidence:" not in lines


def test_no_comes_with_what_the_graph_says_instead_if_it_says_anything() -> None:
    no = replace(ANSWER, answers=(), boolean=False)
    assert render_answer(no, "").splitlines()[0] == "No:"
    unproven = replace(no, evidence=(), problem="the proof is late")
    assert render_answer(unproven, "").splitlines()[:2] == [
        "No. Nothing in the graph says so.",
        "Note: the proof is late.",
    ]


@pytest.mark.parametrize(
    ("count", "listed", "truncated", "line"),
    [
        (0, 0, False, "0"),
        (2, 2, False, "2: Name 0, Name 1"),
        (1200, 0, False, "1,200"),
        (12, 12, False, f"12: {', '.join(f'Name {n}' for n in range(10))} and 2 more (--json "),
        (1200, 12, True, f"1,200: {', '.join(f'Name {n}' for n in range(10))} and 1,190 more"),
    ],
)
def test_a_count_comes_with_what_was_counted(
    count: int, listed: int, truncated: bool, line: str
) -> None:
    answers = tuple(AnswerEntity(f"m.{n}", f"Name {n}") for n in range(listed))
    answer = replace(ANSWER, answers=answers, count=count, truncated=truncated)
    said = render_answer(answer, "").splitlines()[0]
    assert said.startswith(line)
    assert truncated <= said.endswith("more")


AREA, BORN = LiteralTerm("103000.0"), LiteralTerm("1980-05-04")


def _literal_answer(*literals: LiteralTerm) -> Answer:
    relations = {AREA: "location.location.area", BORN: "people.person.date_of_birth"}
    return replace(
        ANSWER,
        answers=tuple(AnswerEntity(each, each.text) for each in literals),
        evidence=tuple(
            EvidenceTriple("m.1", relations[each], each, "One", each.text) for each in literals
        ),
    )


def test_literals_are_written_for_reading_and_evidence_as_it_is() -> None:
    types = {"location.location.area": "type.float", "people.person.date_of_birth": "type.datetime"}
    forms = LiteralForms(types, {"location.location.area": "km²"})
    text = render_answer(_literal_answer(AREA, BORN), "", forms)
    assert text.splitlines()[:2] == ["103,000 km²", "4 May 1980"]
    assert "  One  location.location.area  103000.0\n" in text
    assert render_answer(_literal_answer(AREA), "").splitlines()[0] == "103000.0"


def test_what_a_language_model_wrote_stays_as_it_is() -> None:
    written = replace(_literal_answer(AREA), answers=(AnswerEntity(AREA, "103000.0", "text"),))
    forms = LiteralForms({"location.location.area": "type.float"})
    assert render_answer(written, "", forms).startswith("103000.0  [from the language model")


def test_the_graph_says_what_literals_are(demo_store: Path) -> None:
    with open_graph(demo_store) as graph:
        forms = literal_forms(_literal_answer(AREA, BORN), graph)
        assert literal_forms(ANSWER, graph) == LiteralForms()
    assert forms.types == {"location.location.area": "type.float"}


def test_without_a_schema_literals_are_shown_as_the_graph_writes_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with open_graph(endpoint="http://127.0.0.1:9/none") as graph:
        assert literal_forms(_literal_answer(AREA), graph) == LiteralForms()
    assert "literals are shown as the graph writes them" in caplog.text


ROWS = [
    Row.model_validate(row)
    for row in (
        make_row("right", ["m.1"]),
        make_failed_row("failed"),
        make_row("unscored", gold=[], scores=None),
    )
]


def test_a_summary_is_a_table() -> None:
    cell = "0.500 [0.000, 1.000]"
    assert (
        render_summary(ROWS, entities="gold", as_json=False)
        == f"""\
| tier (gold entities) | n | hit | Hits@1 | exact match | F1 |
|---|---:|---:|---:|---:|---:|
| all | 2 | {cell} | {cell} | {cell} | {cell} |

95 % bootstrap intervals. 1 failed, 1 not scored."""
    )


def test_a_summary_is_json() -> None:
    record = json.loads(render_summary(ROWS, entities="linked", as_json=True))
    assert record["tiers"]["all"]["f1"] == {"mean": 0.5, "low": 0.0, "high": 1.0, "n": 2}
    assert (record["entities"], record["failed"], record["unscored"]) == ("linked", 1, 1)


def test_a_summary_says_which_categories_are_right() -> None:
    made = [make_row("a", ["m.1"], category="list"), make_row("b", category="count")]
    rows = [Row.model_validate(row) for row in made]
    text = render_summary(rows, entities="gold", as_json=False)
    assert "| category | n | exact match |\n|---|---:|---:|\n| count | 1 | 0.000 [0.0" in text
    record = json.loads(render_summary(rows, entities="gold", as_json=True))
    assert record["exact_match"]["category"]["list"]["mean"] == 1.0
    assert record["exact_match"].keys() == {"category"}


def test_a_summary_without_scores_says_how_many_were_not_scored() -> None:
    text = render_summary(ROWS[2:], entities="gold", as_json=False)
    assert text.endswith("0 failed, 1 not scored.")


@contextmanager
def _terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make a real terminal of 40 columns stdout and stderr; yield its other end."""
    monkeypatch.setenv("COLUMNS", "40")
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    ours, theirs = os.openpty()
    with (
        open(theirs, "w", encoding="utf-8") as stream,  # noqa: PTH123 - it is a descriptor
        redirect_stdout(stream),
        redirect_stderr(stream),
    ):
        yield ours
    os.close(ours)


def test_a_terminal_has_a_width_and_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    with _terminal(monkeypatch):
        assert standard_output() == Screen(40, True)
        monkeypatch.setenv("TERM", "dumb")
        assert standard_output() == Screen(40, False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", "1")
        assert standard_output() == Screen(40, False)
        monkeypatch.setenv("NO_COLOR", "")  # as good as unset, says no-color.org
        assert standard_output().has_colours


@pytest.mark.parametrize("stream", [io.StringIO(), None], ids=["file", "closed"])
def test_anything_else_has_neither(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", stream)
    assert standard_output() == PAPER


def test_words_wrap_below_their_line_and_queries_do_not() -> None:
    screen = Screen(30)
    text = "  From Kenya, follow location.country.capital to the answers."
    assert screen.write(Line(text)).splitlines() == [
        "  From Kenya, follow",
        "    location.country.capital",
        "    to the answers.",
    ]
    assert screen.write(Line(text, wraps=False)) == text
    assert PAPER.write(Line(text)) == text
    assert Screen(5).write(Line(text)) == text


def test_only_a_screen_with_colours_gets_escapes() -> None:
    assert Screen(80, True).write(Line("Nairobi", "answer")) == "\x1b[1mNairobi\x1b[0m"
    assert Screen(80, False).write(Line("Nairobi", "answer")) == "Nairobi"
    assert Screen(80, True).write(Line("", "answer")) == ""


@pytest.mark.parametrize("screen", [PAPER, Screen(80), Screen(80, True)])
def test_a_name_cannot_steer_the_terminal(screen: Screen) -> None:
    written = screen.write(Line("a\x1b[2J\x9b31m\u202eb\nc\td\x07"))
    assert written == "a�[2J�31m�b c d�"


def test_the_word_while_one_waits_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    with _terminal(monkeypatch) as terminal:
        with waiting("Loading the model"):
            said = os.read(terminal, 99)
        assert said.decode() == "Loading the model …"
        assert os.read(terminal, 99).decode() == f"\r{' ' * 19}\r"


def test_without_a_terminal_nobody_waits_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("Loading the model"):
        pass
    assert capsys.readouterr() == ("", "")
