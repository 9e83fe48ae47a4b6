"""Where the graph lets a path go, on the small graph."""

from contextlib import closing

import pytest

from kbqa.engine.writing.constraints.decoding import walked_topics
from kbqa.engine.writing.constraints.path_walk import KnownRelations, PathWalk
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.open import open_graph
from kbqa.kb.schema.properties import list_relations
from kbqa.sparql.crp import Entity, Hop

JAMAICA = Entity("Jamaica", "m.03_r3")
BIEBER = Entity("Justin Bieber", "m.06w2sn5")
CAPITAL = Hop("location.country.capital")
SIBLINGS = (Hop("people.person.sibling_s"), Hop("people.sibling_relationship.sibling"))


@pytest.fixture
def walk(graph):
    return PathWalk(graph, [JAMAICA, BIEBER], KnownRelations(list_relations(graph)))


def test_paths_start_from_the_topics(walk):
    assert walk.topics()[0].texts == ["\n Jamaica", "\n Justin Bieber"]


def test_a_path_goes_on_by_the_relations_of_the_nodes_it_has_reached(walk):
    first = walk.hops("Jamaica", ()).texts
    assert " -[location , country , capital]->" in first
    assert " -[R[location , location , containedby]]->" in first
    assert " -[people , person , gender]->" not in first
    second = walk.hops("Jamaica", (CAPITAL,)).texts
    assert " -[location , location , area]->" in second
    assert " -[location , country , capital]->" not in second
    assert " -[R[location , country , capital]]->" in second


def test_a_path_ends_where_there_is_an_answer(walk):
    back = (CAPITAL, Hop("location.location.containedby"))
    assert walk.may_end("Jamaica", (CAPITAL,), 0)
    assert not walk.may_end("Jamaica", back, 0)
    assert walk.may_end("Jamaica", back, 1)
    assert not walk.may_end("Jamaica", (*back, CAPITAL), 1)
    assert walk.may_end("Justin Bieber", SIBLINGS, 0)


def test_a_path_ends_in_a_literal_but_goes_on_from_none(walk):
    born = (Hop("people.person.date_of_birth"),)
    assert walk.may_end("Justin Bieber", born, 0)
    assert not walk.may_go_on("Justin Bieber", born)
    assert walk.may_go_on("Justin Bieber", SIBLINGS)


def test_a_path_ends_in_no_text_in_a_foreign_language(tmp_path):
    motto = "<http://rdf.freebase.com/ns/location.location.motto>"
    for language, may_end in (("de", False), ("en-GB", True)):
        dump = tmp_path / f"{language}.nt"
        dump.write_text(f'<http://rdf.freebase.com/ns/m.0k>\t{motto}\t"x"@{language}\t.\n')
        store = tmp_path / language
        load_freebase([dump], store, rules=profile("full"))
        with closing(open_graph(store)) as graph:
            walk = PathWalk(graph, [Entity("Kenya", "m.0k")], KnownRelations([]))
            assert walk.may_end("Kenya", (Hop("location.location.motto"),), 0) is may_end


def test_entities_of_one_name_start_together(graph):
    twins = [Entity("Kingston", "m.03yl7"), Entity("Kingston", "m.06w2sn5")]
    walk = PathWalk(graph, twins, KnownRelations([]))
    assert walk.topics()[0].texts == ["\n Kingston"]
    hops = walk.hops("Kingston", ()).texts
    assert " -[location , location , area]->" in hops
    assert " -[people , person , gender]->" in hops


def test_a_path_keeps_those_of_its_topics_that_lead_to_an_answer(graph):
    kingston, bieber = Entity("Kingston", "m.03yl7"), Entity("Kingston", "m.06w2sn5")
    walk = PathWalk(graph, [bieber, kingston, JAMAICA], KnownRelations([]))
    assert walk.mids("Kingston", (Hop("location.location.area"),), 0) == ("m.03yl7",)
    assert walk.mids("Kingston", (Hop("people.person.gender"),), 0) == ("m.06w2sn5",)
    assert walk.mids("Jamaica", (CAPITAL,), 0) == ("m.03_r3",)
    assert walk.mids("Cuba", (CAPITAL,), 0) == ()


def test_topics_that_share_a_path_keep_the_order_of_the_linker(graph):
    mids = ("m.06w2sn5", "m.0gxnnwq")
    gender = (Hop("people.person.gender"),)
    for order in (mids, mids[::-1]):
        twins = [Entity("Twin", mid) for mid in order]
        assert PathWalk(graph, twins, KnownRelations([])).mids("Twin", gender, 0) == order


def test_no_path_goes_by_names_and_types(walk):
    hops = walk.hops("Jamaica", ()).texts
    assert not [hop for hop in hops if "type , object" in hop]


def test_where_nothing_else_is_known_of_an_entity_no_path_starts(graph):
    walk = PathWalk(graph, [JAMAICA, Entity("Oddville", "m.0gxnone")], KnownRelations([]))
    assert walk.topics()[0].texts == ["\n Jamaica"]


def test_a_name_that_was_stored_percent_encoded_is_written_as_it_is_read(graph):
    walk = PathWalk(graph, [Entity("O%27Jamaica", "m.03_r3")], KnownRelations([]))
    assert walk.topics()[0].texts == ["\n O'Jamaica"]


@pytest.mark.parametrize(
    "topic",
    [
        Entity("two\nlines", "m.03_r3"),
        Entity("?x", "m.03_r3"),
        Entity("Arrow -[s]", "m.03_r3"),
        Entity(" Jamaica", "m.03_r3"),
        Entity("Jamaica"),
        Entity(mid="m.03_r3"),
    ],
    ids=["lines", "variable", "arrow", "blank", "no mid", "no name"],
)
def test_a_topic_that_cannot_be_written_is_none(graph, topic):
    assert not PathWalk(graph, [topic], KnownRelations([])).has_topics


def test_relations_that_words_cannot_say_are_left_out():
    known = KnownRelations(["a.b_c", "a.b__c", "a b", "nodot", "a.b,c"])
    assert known.restrictions().texts == [" -[a , b c]->"]
    assert known.hops("K", ()).texts == [" -[a , b c]->", " -[R[a , b c]]->"]


def test_a_text_that_cannot_be_read_was_walked_from_no_topic(walk):
    path = "Main Path:\n Jamaica -[location , country , capital]-> ?x"
    assert walked_topics(walk, path) == (JAMAICA.mid,)
    contradiction = "\nNumeric Restrictions:\n  ORDER BY DESC(?x)\n  LIMIT 1"
    contradiction += "\nFurther Restrictions:\n  count"
    assert walked_topics(walk, path + contradiction) == ()
