"""Answers and tables in a notebook: a line of text, and HTML that needs no script and no trust."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from kbqa.engine.answer import Answer, AnswerEntity
from kbqa.engine.engine import Engine
from kbqa.kb.graph import Graph, Table
from kbqa.kb.open import open_graph
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import LiteralTerm

MONEY = [("Main Path:\n Jamaica -[location , country , currency used]-> ?x", -0.5)]
CAPITAL = [("Main Path:\n Jamaica -[location , country , capital]-> ?x", -0.5)]
UNJUDGED = {"judge": "confidence"}


@pytest.fixture(scope="module")
def answer(small_store, scripted) -> Answer:
    with (
        open_graph(small_store) as graph,
        Engine(graph, scripted(MONEY), settings=UNJUDGED) as engine,
    ):
        return engine.ask("what is jamaican money called?")


class Tags(HTMLParser):
    """Collects tags, attributes and the text outside of the drawing."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(html)
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "svg" not in self.open:
            self.words += data


def test_an_answer_prints_as_one_line(answer: Answer) -> None:
    line = "<Answer to 'what is jamaican money called?': Jamaican dollar (confidence 0.##)>"
    assert re.sub(r"0\.\d\d", "0.##", repr(answer)) == line
    assert answer._repr_mimebundle_()["text/plain"] == repr(answer)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"answers": (), "problem": "nothing was linked"}, "none, because nothing was linked"),
        ({"answers": (), "boolean": False}, "no"),
        ({"count": 1204}, "1,204"),
        (
            {
                "answers": tuple(AnswerEntity(f"m.{n}", f"N{n}") for n in range(9)),
                "truncated": True,
            },
            "N0, N1, N2 and 6+ more",
        ),
    ],
    ids=["none", "no", "count", "many"],
)
def test_each_kind_of_answer_has_its_line(
    answer: Answer, changes: dict[str, object], said: str
) -> None:
    changed = replace(answer, confidence=None, **changes)  # type: ignore[arg-type]
    assert repr(changed) == f"<Answer to 'what is jamaican money called?': {said}>"


def test_an_answer_shows_its_path_its_drawing_its_evidence_and_its_query(answer: Answer) -> None:
    html = answer._repr_mimebundle_()["text/html"]
    shown = Tags(html)
    for words in (
        "Jamaican dollar",
        "m.04xc2m",
        "From Jamaica, follow location.country.currency_used to the answers.",
        f"Confidence: {answer.confidence:.2f}",
        "SELECT",
    ):
        assert words in shown.words
    assert {"svg", "table", "details"} <= shown.tags
    assert not shown.tags & {"script", "style", "iframe", "link"}
    assert not {name for name in shown.attributes if name.startswith("on") or name == "id"}
    assert not re.search(r"(https?:)?//(?!www\.w3\.org/2000/svg|rdf\.freebase\.com)", html)


def test_why_there_is_no_answer_is_shown(answer: Answer, small_store, scripted) -> None:
    model = scripted([("nonsense", -1.0)])
    with open_graph(small_store) as graph, Engine(graph, model, settings=UNJUDGED) as engine:
        nothing = engine.ask("what?")
    shown = Tags(nothing._repr_mimebundle_()["text/html"])
    assert "No answer: " in shown.words
    assert "unreadable: nonsense" in shown.words


def test_two_questions_in_one_are_shown_one_below_the_other(small_store, scripted) -> None:
    with (
        open_graph(small_store) as graph,
        Engine(graph, scripted(MONEY, CAPITAL), settings=UNJUDGED) as engine,
    ):
        both = engine.ask("what is jamaican money called? And the capital?")
    said = "Jamaican dollar (confidence 0.##); Kingston (confidence 0.##)>"
    assert re.sub(r"0\.\d\d", "0.##", repr(both)).endswith(f"called? And the capital?': {said}")
    words = Tags(both._repr_mimebundle_()["text/html"]).words
    assert words.index("Jamaican dollar") < words.index("Understood as: ") < words.index("Kingston")


def test_hostile_names_stay_text(answer: Answer) -> None:
    name = "<script>alert(1)</script>"
    triple = replace(answer.evidence[0], object_name=name)
    hostile = replace(
        answer,
        question=name,
        answers=(AnswerEntity("m.04xc2m", name),),
        evidence=(triple,),
        problem=name,
        sparql=f"SELECT ?x {{}} # {name}",
    )
    shown = Tags(hostile._repr_mimebundle_()["text/html"])
    assert "script" not in shown.tags
    assert shown.words.count(name) == 5


def test_answers_become_a_data_frame(answer: Answer) -> None:
    polars = pytest.importorskip("polars", reason="a core dependency")
    literal = AnswerEntity(LiteralTerm("480"), "480")
    frame = replace(answer, answers=(*answer.answers, literal)).to_dataframe()
    assert frame.to_dicts() == [
        {
            "mid": "m.04xc2m",
            "value": None,
            "name": "Jamaican dollar",
            "origin": "graph",
            "confidence": pytest.approx(answer.answers[0].confidence, abs=1e-4),
        },
        {"mid": None, "value": "480", "name": "480", "origin": "graph", "confidence": None},
    ]
    empty = replace(answer, answers=()).to_dataframe()
    texts = dict.fromkeys(("mid", "value", "name", "origin"), polars.String)
    assert empty.schema == {**texts, "confidence": polars.Float64}


TABLE = Table(
    ("country", "name"),
    (("m.03_r3", LiteralTerm("<b>Jamaica</b>", language="en")), ("m.0x", None)),
    truncated=True,
)


def test_a_table_prints_as_one_line() -> None:
    assert repr(TABLE) == "<Table of 2 or more rows with the columns country, name>"


def test_a_table_shows_its_first_rows() -> None:
    shown = Tags(TABLE._repr_html_())
    assert "b" not in shown.tags
    assert "<b>Jamaica</b>" in shown.words
    assert "More exist than were fetched." in shown.words
    long = Tags(Table(("x",), tuple((f"m.{n}",) for n in range(1203)))._repr_html_())
    assert "… and 1,183 other rows" in long.words


def test_a_table_becomes_a_data_frame() -> None:
    assert TABLE.to_dataframe().to_dicts() == [
        {"country": "m.03_r3", "name": "<b>Jamaica</b>"},
        {"country": "m.0x", "name": None},
    ]
    assert Table(("x",), ()).to_dataframe().shape == (0, 1)


def test_many_questions_are_answered_in_order(small_graph: Graph, scripted) -> None:
    model = scripted(MONEY, CAPITAL, MONEY)
    with Engine(small_graph, model, settings=UNJUDGED) as engine:
        answers = engine.ask_many(
            ["money of Jamaica?", "Jamaica's capital?", "money?"], batch_size=2
        )
    assert [each.question for each in answers] == model.questions
    names = [answer.answers[0].name for answer in answers]
    assert names == ["Jamaican dollar", "Kingston", "Jamaican dollar"]


@pytest.mark.parametrize(
    ("questions", "batch_size", "message"),
    [
        (["one?"], 0, "the batch size is 0"),
        ("one?", 8, "takes a list of questions"),
        (["one?", " "], 8, "the question is empty"),
    ],
)
def test_asking_many_wrongly_is_refused(
    small_graph: Graph, scripted, questions, batch_size, message
) -> None:
    with Engine(small_graph, scripted()) as engine, pytest.raises(InputError, match=message):
        engine.ask_many(questions, batch_size=batch_size)
