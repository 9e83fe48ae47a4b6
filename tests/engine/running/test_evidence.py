from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.engine.running.evidence import PROVEN_ANSWERS, find_evidence
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import Compare, Constraint, Crp, Entity, Hop, IsEntity, Order
from kbqa.sparql.english import describe_crp
from kbqa.sparql.terms import LiteralTerm, Term

JUSTIN, JAXON, JAMAICA = "m.06w2sn5", "m.0gxnnwq", "m.03_r3"
SIBLINGS = (Hop("people.person.sibling_s"), Hop("people.sibling_relationship.sibling"))
POPULATION = (
    Hop("location.statistical_region.population"),
    Hop("measurement_unit.dated_integer.number"),
)
GENDER = Hop("people.person.gender")
MALE = Constraint(2, (GENDER,), IsEntity(Entity("Male", "m.05zppz")))
RECENT = Constraint(
    1, (Hop("measurement_unit.dated_integer.year"),), Compare(">", LiteralTerm("2010"))
)
BACKWARDS = Hop("location.location.containedby", inverse=True)
JAMAICAN = Entity("Jamaica", JAMAICA)
RECENT_SIBLING = replace(RECENT, at=2)


@pytest.mark.parametrize(
    ("crp", "relations"),
    [
        (Crp(Entity(mid=JUSTIN), SIBLINGS), {hop.relation for hop in SIBLINGS}),
        (
            Crp(Entity(mid=JUSTIN), SIBLINGS, (MALE,)),
            {*(hop.relation for hop in SIBLINGS), GENDER.relation},
        ),
        (
            Crp(Entity(mid=JAMAICA), POPULATION, (RECENT,)),
            {*(hop.relation for hop in POPULATION), "measurement_unit.dated_integer.year"},
        ),
        (
            Crp(Entity(mid=JAMAICA), POPULATION[:1], order=Order(1, POPULATION[1:], True)),
            {hop.relation for hop in POPULATION},
        ),
        (Crp(Entity(mid=JAMAICA), (BACKWARDS,)), {BACKWARDS.relation}),
    ],
    ids=["two hops", "constraint", "value", "superlative", "backwards"],
)
def test_triples_join_the_topic_to_each_answer(graph: Graph, crp: Crp, relations: set[str]) -> None:
    answers = [row[0] for row in graph.select(compile_crp(crp)).rows]
    triples = find_evidence(graph, crp, [a for a in answers if a is not None], 5)
    assert {triple.relation for triple in triples} == relations
    assert len(triples) == len(set(triples))
    edges = [(triple.subject, triple.object) for triple in triples]
    assert set(answers) <= _joined(crp.topic.mid or "", edges)
    for triple in triples:
        assert isinstance(triple.subject, str)
        assert triple.object in graph.neighbours(triple.subject, triple.relation, "out")


def _joined(start: Term, edges: list[tuple[Term, Term]]) -> set[Term]:
    """Return the nodes that edges, in any direction, join to a node."""
    joined: set[Term] = {start}
    for _ in edges:
        joined |= {end for edge in edges if joined & set(edge) for end in edge}
    return joined


def test_only_the_answers_asked_for_are_proven(graph: Graph) -> None:
    triples = find_evidence(graph, Crp(Entity(mid=JUSTIN), SIBLINGS), [JAXON], 5)
    assert [triple.object for triple in triples] == ["m.0gxnnwp", JAXON]
    assert [triple.object_name for triple in triples] == ["m.0gxnnwp", "Jaxon Bieber"]


def test_the_first_of_many_answers_are_proven(demo_store: Path) -> None:
    graph = open_graph(demo_store)
    names = graph.names()
    crp = Crp(Entity(mid=names.lookup("Kenya")[0].mid), (Hop("location.location.contains"),))
    answers = [str(row[0]) for row in graph.select(compile_crp(crp)).rows]
    triples = find_evidence(graph, crp, answers, 5)
    assert {triple.object for triple in triples} == set(answers[:PROVEN_ANSWERS])
    names.close()
    graph.close()


def test_a_triple_says_which_sentence_it_proves(graph: Graph) -> None:
    crp = Crp(Entity(mid=JUSTIN), SIBLINGS, (RECENT_SIBLING, MALE))
    relaxed = replace(crp, constraints=(MALE,))
    triples = find_evidence(graph, relaxed, [JAXON], 5, crp)
    sentences = describe_crp(crp)
    proven = [(triple.relation, sentences[triple.part or 0]) for triple in triples]
    assert proven == [
        (SIBLINGS[0].relation, sentences[0]),
        (SIBLINGS[1].relation, sentences[0]),
        (GENDER.relation, "Keep those where the answer has people.person.gender Male."),
    ]
    unrelaxed = find_evidence(graph, relaxed, [JAXON], 5)
    assert [triple.part for triple in unrelaxed] == [0, 0, 1]


def test_a_triple_that_proves_several_sentences_names_the_first(graph: Graph) -> None:
    lives = Constraint(1, (Hop("location.country.capital", inverse=True),), IsEntity(JAMAICAN))
    crp = Crp(JAMAICAN, (Hop("location.country.capital"),), (lives,))
    [triple] = find_evidence(graph, crp, ["m.03yl7"], 5)
    assert triple.part == 0
    assert triple.to_dict()["part"] == 0


def test_what_orders_answers_proves_the_sentence_of_the_order(graph: Graph) -> None:
    crp = Crp(Entity(mid=JAMAICA), POPULATION[:1], (RECENT,), Order(1, POPULATION[1:], True))
    triples = find_evidence(graph, crp, ["m.0pop2"], 5)
    assert {triple.relation: triple.part for triple in triples} == {
        POPULATION[0].relation: 0,
        "measurement_unit.dated_integer.year": 1,
        POPULATION[1].relation: 2,
    }
