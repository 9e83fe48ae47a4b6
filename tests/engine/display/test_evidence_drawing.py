"""The drawn evidence: where nodes stand, what arrows say, and that no text can break out."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.display.drawing import Drawing, Edge, Node, draw_evidence, lay_out

KENYA = ("m.0kenya", "Kenya")
NAIROBI = ("m.0nairobi", "Nairobi")
TOWN = ("location.citytown", "City/Town/Village")
SVG = "{http://www.w3.org/2000/svg}"

Pair = tuple[str, str]
"""An id, or a literal's text, and the name."""


def triple(subject: Pair, relation: str, object_: Pair, part: int | None = None) -> dict[str, Any]:
    return {
        "subject": subject[0],
        "subject_name": subject[1],
        "relation": relation,
        "object": object_[0],
        "object_name": object_[1],
        **({} if part is None else {"part": part}),
    }


def record(
    evidence: Sequence[Mapping[str, Any]],
    answers: Sequence[Pair] = (NAIROBI,),
    topic: Pair | None = KENYA,
    **more: object,
) -> dict[str, Any]:
    return {
        "question": "?",
        "answers": [{"mid": mid, "name": name, "origin": "graph"} for mid, name in answers],
        "truncated": False,
        "linked": [],
        "evidence": evidence,
        "trace": {"topic": None if topic is None else {"mid": topic[0], "name": topic[1]}},
        **more,
    }


def drawn(record: Mapping[str, Any]) -> Drawing:
    drawing = lay_out(record)
    assert drawing is not None
    return drawing


def node(drawing: Drawing, term: str) -> Node:
    [found] = [node for node in drawing.nodes if node.term == term]
    return found


LARGEST = record(
    [
        triple(KENYA, "location.location.contains", NAIROBI, 0),
        triple(NAIROBI, "type.object.type", TOWN, 1),
        triple(NAIROBI, "statistics.population", ("m.0pop", "m.0pop"), 2),
        triple(("m.0pop", "m.0pop"), "measurement_unit.dated_integer.number", ("439", "439"), 2),
    ]
)


def test_nodes_stand_in_columns_by_hops_from_the_topic() -> None:
    drawing = drawn(LARGEST)
    columns = [node(drawing, term).left for term in ("m.0kenya", "m.0nairobi", "m.0pop", "439")]
    assert columns == sorted(columns)
    assert len(set(columns)) == 4
    assert {each.term: each.kind for each in drawing.nodes} == {
        "m.0kenya": "topic",
        "m.0nairobi": "answer",
        "location.citytown": "entity",
        "m.0pop": "mediator",
        "439": "value",
    }


def test_arrows_go_from_subject_to_object_also_against_the_path() -> None:
    drawing = drawn(record([triple(NAIROBI, "location.location.containedby", KENYA)]))
    [edge] = drawing.edges
    start, *_, tip = edge.curve
    assert start.x == node(drawing, "m.0nairobi").left
    assert tip.x == node(drawing, "m.0kenya").right
    assert tip.x < start.x


def test_edges_carry_the_sentence_that_they_prove() -> None:
    parts = [(edge.part, edge.is_constraint) for edge in drawn(LARGEST).edges]
    assert parts == [(0, False), (1, True), (2, True), (2, True)]


def test_what_hangs_on_a_node_stands_below_the_path() -> None:
    married = ("m.0cvt", "m.0cvt")
    drawing = drawn(
        record(
            [
                triple(married, "marriage.from", ("1963", "1963"), 1),
                triple(KENYA, "spouses", married, 0),
                triple(married, "marriage.spouse", NAIROBI, 0),
            ]
        )
    )
    assert node(drawing, "1963").left >= node(drawing, "m.0cvt").right
    assert node(drawing, "1963").middle > node(drawing, "m.0nairobi").middle


def test_ten_answers_are_drawn_and_the_others_counted() -> None:
    answers = [(f"m.0{n}", f"City {n}") for n in range(47)]
    evidence = [triple(KENYA, "contains", each) for each in answers]
    drawing = drawn(record(evidence, answers))
    assert sum(each.kind == "answer" for each in drawing.nodes) == 10
    [more] = [each for each in drawing.nodes if each.kind == "more"]
    assert more.label == "+37"
    assert more.middle > max(each.middle for each in drawing.nodes if each.kind == "answer")
    assert len(drawing.edges) == 10
    assert [label.text for label in drawing.labels] == ["contains"]


@pytest.mark.parametrize(
    ("more", "label"), [({"truncated": True}, "+1 or more"), ({"count": 1211}, "+1,210")]
)
def test_what_was_not_fetched_is_counted(more: dict[str, object], label: str) -> None:
    answers = [NAIROBI, ("m.0other", "Mombasa")]
    drawing = drawn(record([triple(KENYA, "contains", NAIROBI)], answers, **more))
    assert [each.label for each in drawing.nodes if each.kind == "more"] == [label]


def test_a_mediator_that_led_to_a_hidden_answer_is_hidden_too() -> None:
    answers = [(f"m.0{n}", f"City {n}") for n in range(11)]
    evidence = []
    for n, answer in enumerate(answers):
        mediator = (f"m.0m{n}", f"m.0m{n}")
        evidence += [triple(KENYA, "has", mediator), triple(mediator, "of", answer)]
    kinds = [each.kind for each in drawn(record(evidence, answers)).nodes]
    assert (kinds.count("mediator"), kinds.count("answer"), kinds.count("more")) == (10, 10, 1)


def test_equal_literals_of_two_nodes_stand_apart() -> None:
    other = ("m.0mombasa", "Mombasa")
    evidence = [
        triple(KENYA, "contains", NAIROBI),
        triple(KENYA, "contains", other),
        triple(NAIROBI, "area", ("480", "480")),
        triple(other, "area", ("480", "480")),
    ]
    drawing = drawn(record(evidence, [NAIROBI, other]))
    assert [each.kind for each in drawing.nodes].count("value") == 2


@pytest.mark.parametrize(
    ("linked", "walks", "topic"),
    [
        ([{"mid": "m.0x"}, {"mid": "m.0kenya"}], [], "m.0kenya"),
        ([{"mid": "m.0x"}], [{"topic": "m.0kenya"}], "m.0kenya"),
        ([], [], "m.0first"),
    ],
    ids=["linked", "walked from", "neither"],
)
def test_methods_without_a_path_are_drawn_from_what_they_began_with(
    linked: list[dict[str, str]], walks: list[dict[str, str]], topic: str
) -> None:
    first = ("m.0first", "First")
    evidence = [triple(first, "in", KENYA), triple(KENYA, "capital", NAIROBI)]
    answer = record(evidence, topic=None, linked=linked)
    answer["trace"] = {"walks": walks}
    assert [each.term for each in drawn(answer).nodes if each.kind == "topic"] == [topic]


def test_nothing_is_drawn_without_evidence() -> None:
    assert lay_out(record([])) is None
    assert draw_evidence(record([])) is None


def test_yes_or_no_is_drawn_by_what_shows_it() -> None:
    drawing = drawn(record([triple(KENYA, "capital", NAIROBI)], [], boolean=True))
    assert [each.kind for each in drawing.nodes] == ["topic", "entity"]


_PAIRS = st.sampled_from(
    [*((f"m.0{n}", f"Name {n}") for n in range(8)), ("m.0cvt", "m.0cvt"), ("1990", "1990")]
)
_EVIDENCE = st.lists(
    st.builds(
        triple, _PAIRS, st.sampled_from(["a.b.c", "d"]), _PAIRS, st.sampled_from([None, 0, 1, 2])
    ),
    min_size=1,
    max_size=14,
)


@given(_EVIDENCE, st.lists(_PAIRS, max_size=4), st.none() | _PAIRS)
def test_boxes_never_overlap_and_all_lies_inside(
    evidence: list[dict[str, Any]], answers: list[Pair], topic: Pair | None
) -> None:
    drawing = drawn(record(evidence, answers, topic))
    assert 0 < len(drawing.edges) <= len(evidence)
    for one, other in combinations(drawing.nodes, 2):
        apart = abs(one.middle - other.middle) >= (one.height + other.height) / 2
        assert apart or one.right <= other.left or other.right <= one.left
    for each in drawing.nodes:
        assert each.left >= 0
        assert each.right <= drawing.width
        assert drawing.top <= each.middle <= drawing.top + drawing.height
    for label in drawing.labels:
        assert 0 <= label.at.x <= drawing.width
        assert drawing.top <= label.at.y <= drawing.top + drawing.height
    for edge in drawing.edges:
        assert _touches(edge, drawing)


def _touches(edge: Edge, drawing: Drawing) -> bool:
    """Whether an arrow begins and ends at the sides of its nodes."""
    start, *_, tip = edge.curve
    subject, object_ = drawing.nodes[edge.subject], drawing.nodes[edge.object]
    return start.x in (subject.left, subject.right) and tip.x in (object_.left, object_.right)


HOSTILE = '<img src=x onerror="alert(1)">'


@pytest.mark.parametrize(
    "name",
    [
        HOSTILE,
        '"><script>alert(1)</script>',
        "]]>",
        "\u202eevil",
        "\x00\x07",
        "\ud800",
        "é" * 10_000,
        "' onload='",
    ],
)
def test_hostile_names_stay_text(name: str) -> None:
    evidence = [triple(("m.0kenya", name), f"a.{name}", ("m.0nairobi", name))]
    root = ET.fromstring(draw_evidence(record(evidence)) or "")
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "g", "title", "path", "rect", "text",
    }  # fmt: skip
    written = " ".join(element.text or "" for element in root.iter(f"{SVG}title"))
    unprintable = dict.fromkeys((0, 7, 0x202E, 0xD800), "\ufffd")
    assert " ".join(name[:200].split()).translate(unprintable) in written


@given(st.text(), st.text(), st.text(alphabet="<>&'\"\\ ab"))
def test_no_text_breaks_out(name: str, relation: str, literal: str) -> None:
    evidence = [
        triple(("m.0kenya", name), relation, NAIROBI),
        triple(NAIROBI, relation, (literal, literal), 1),
    ]
    svg = draw_evidence(record(evidence), lambda mid: f"/entity/{mid}?{literal}")
    root = ET.fromstring(svg or "")
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in attributes if name in ("style", "id") or name.startswith("on")}


def test_nodes_are_links_where_entities_have_a_page() -> None:
    root = ET.fromstring(draw_evidence(LARGEST, lambda mid: f"/entity/{mid}") or "")
    links = [link.attrib["href"] for link in root.iter(f"{SVG}a")]
    assert links == ["/entity/m.0kenya", "/entity/m.0nairobi", "/entity/m.0pop"]
    assert root.attrib["role"] == "group"
    assert root.attrib["aria-label"] == "Evidence as a graph: 5 nodes and 4 triples"
    spoken = [each.attrib["aria-label"] for each in root.iter() if "data-node" in each.attrib]
    assert spoken[0] == "\u2068Kenya\u2069 (m.0kenya), topic"


def test_arrows_say_what_they_join_and_which_sentence_they_prove() -> None:
    root = ET.fromstring(draw_evidence(LARGEST) or "")
    edges = [each for each in root.iter(f"{SVG}g") if each.attrib["class"].startswith("edge")]
    assert [each.attrib["data-part"] for each in edges] == ["0", "1", "2", "2"]
    assert (edges[0].attrib["data-subject"], edges[0].attrib["data-object"]) == ("0", "1")
    title = edges[0].find(f"{SVG}title")
    assert title is not None
    assert (
        re.sub("[\u2068\u2069]", "", title.text or "") == "Kenya location.location.contains Nairobi"
    )
    dashed = [len(each.findall(f"{SVG}path[@stroke-dasharray]")) for each in edges]
    assert dashed == [0, 1, 1, 1], "line style tells constraints, not colour alone"
