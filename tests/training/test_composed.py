import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import Crp
from kbqa.sparql.forms import read_crp
from kbqa.training.composed import Base, Composed, Composer, add_composed, replace_name
from kbqa.training.data.training_set import (
    COMPOSED_SOURCE,
    Example,
    ExampleSet,
    split_examples,
)

NEIGHBOURS = "{} -> location.location.adjoin_s -> location.adjoining_relationship.adjoins"


@pytest.fixture(scope="module")
def demo(demo_store: Path) -> Iterator[Graph]:
    with open_graph(demo_store) as graph:
        yield graph


@pytest.fixture(scope="module")
def france(demo: Graph) -> str:
    query = (
        'SELECT ?x { ?x ns:type.object.type ns:location.country ; ns:type.object.name "France"@en }'
    )
    ((mid,),) = demo.select(query).rows
    return str(mid)


@pytest.fixture(scope="module")
def base(france: str) -> Base:
    crp = read_crp(NEIGHBOURS.format(france)).crp
    return Base("q1", "which countries border France?", crp)


def compose(
    graph: Graph, base: Base, known: frozenset[tuple[str, str]] = frozenset()
) -> list[Composed]:
    seeds = range(8)
    return [made for seed in seeds for made in Composer(graph, known, seed).made_from(base)]


def answers(graph: Graph, crp: Crp) -> set[object]:
    return {row[0] for row in graph.select(compile_crp(crp)).rows}


def test_a_described_topic_leads_to_the_same_answers(demo: Graph, base: Base) -> None:
    described = [made for made in compose(demo, base) if made.crp.topic.mid != base.crp.topic.mid]
    assert described
    for made in described:
        assert "France" not in made.question
        assert made.question.startswith("which countries border the country ")
        assert str(made.crp.topic) in made.question
        # The answers are not the described topic; of the path alone it may be one.
        assert answers(demo, made.crp) - {base.crp.topic.mid} == answers(demo, base.crp)


def test_narrowed_questions_have_some_of_the_answers(demo: Graph, base: Base) -> None:
    narrowed = [made for made in compose(demo, base) if made.crp.topic.mid == base.crp.topic.mid]
    shapes = {(bool(made.crp.constraints), bool(made.crp.order)) for made in narrowed}
    assert shapes == {(True, False), (False, True)}
    for made in narrowed:
        assert made.question.startswith("which countries border France")
        assert set() < answers(demo, made.crp) < answers(demo, base.crp)


def test_relations_are_asked_about_in_turn(demo: Graph) -> None:
    made = [crp for _, crp, _ in Composer(demo, frozenset(), seed=1).direct()]
    first = [next(crp.relations()) for crp in made]
    assert len(set(first)) > 50
    assert first[: len(set(first))] == list(dict.fromkeys(first))
    assert all(answers(demo, crp) for crp in made[:20])


def test_a_fact_that_a_test_question_names_is_not_used(
    demo: Graph, base: Base, france: str
) -> None:
    topics = {(made.crp.topic.mid, tuple(made.crp.relations())) for made in compose(demo, base)}
    known = frozenset(
        (end, relation)
        for topic, relations in topics
        if topic != france
        for end in (str(topic), france)
        for relation in relations
    )
    described = [made for made in compose(demo, base, known) if made.crp.topic.mid != france]
    assert not topics & {(made.crp.topic.mid, tuple(made.crp.relations())) for made in described}


def test_composed_questions_are_held_out_with_what_they_were_made_from(
    demo: Graph, france: str, tmp_path: Path
) -> None:
    sparql = (
        f"SELECT DISTINCT ?x {{ ns:{france} ns:location.location.adjoin_s ?y . "
        "?y ns:location.adjoining_relationship.adjoins ?x }"
    )
    others = [Example(f"q{n}", f"question {n}?", "A -> b.c", "set") for n in range(30)]
    held_out = split_examples(others, 2).valid
    base = held_out[0].id
    row = {"id": base, "question": "which countries border France?", "sparql": sparql}
    (tmp_path / "set.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    sets = []
    for _ in range(2):
        gathered = ExampleSet()
        add_composed(
            gathered, [tmp_path / "set.jsonl"], demo, count=20, seed=1, form="extended", scored=[]
        )
        sets.append(gathered.examples)
    assert sets[0] == sets[1]
    assert len(sets[0]) == 20
    assert {one.source for one in sets[0]} == {COMPOSED_SOURCE}
    assert {one.parent for one in sets[0]} == {"", base}
    made = {one for one in sets[0] if one.parent == base}
    assert set(split_examples([*others, *sets[0]], 2).valid) == {*held_out, *made}


@pytest.mark.parametrize(
    ("question", "replaced"),
    [
        ("who rules france?", "who rules the X?"),
        ("who rules the France of 1900?", "who rules the X of 1900?"),
        ("who is france's king?", None),
        ("who rules francesca?", None),
        ("who rules Kenya?", None),
    ],
)
def test_a_name_is_replaced_by_a_description(question: str, replaced: str | None) -> None:
    assert replace_name(question, "France", "the X") == replaced


def test_an_entity_of_the_path_without_a_name_makes_no_question(demo: Graph, france: str) -> None:
    crp = read_crp(f"{NEIGHBOURS.format(france)}\n?x != m.0nowhere").crp
    assert compose(demo, Base("q1", "what borders France?", crp)) == []
