import gzip
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import crps, sayable_crps

from kbqa.sparql.crp import (
    AnyOf,
    Compare,
    Constraint,
    Crp,
    Entity,
    Fork,
    Hop,
    IsEntity,
    IsNode,
    IsNotEntity,
    IsNotNode,
    NodeRef,
    Order,
    Test,
    TextEquals,
    Way,
)
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.forms import read_crp, render_crp
from kbqa.sparql.own_reader import parse_crp
from kbqa.sparql.routerkgqa_form import parse_routerkgqa, render_extended, render_routerkgqa
from kbqa.sparql.terms import LiteralTerm

MAIN = "Main Path:\n Kenya -[a , b]-> ?y\n ?y -[c , d]-> ?x\n"
KENYA = Crp(Entity("Kenya"), (Hop("a.b"), Hop("c.d")))

MALE_THERE = Constraint(1, (Hop("g.h"),), IsEntity(Entity("Male")))
BIG_THERE = Constraint(1, (Hop("g.h"),), Compare(">", LiteralTerm("3")))
LABELLED = Constraint(1, (Hop("e.f"),), None, label="a")
FORK = Fork((Way((Hop("a.b"),)), Way((Hop("c.d"),))))


def keep(*constraints: Constraint, order: Order | None = None) -> Crp:
    return replace(KENYA, constraints=constraints, order=order)


NONE = keep(Constraint(2, (Hop("e.f"),), None, negated=True))


@pytest.mark.parametrize(
    ("text", "crp"),
    [
        pytest.param(MAIN, KENYA, id="main path"),
        pytest.param(
            "Main Path:\n Kenya -[R[a , b]]-> ?x",
            Crp(Entity("Kenya"), (Hop("a.b", inverse=True),)),
            id="inverse hop",
        ),
        pytest.param(
            "main path:\r\nKenya-[ R [a,b ] ] ->?y\r\n\r\n ?y -[ c , d_e ]-> ?x  ",
            Crp(Entity("Kenya"), (Hop("a.b", inverse=True), Hop("c.d_e"))),
            id="spacing and case",
        ),
        pytest.param(
            "Main Path:\n m.019rg5 -[a , b]-> ?x",
            Crp(Entity(mid="m.019rg5"), (Hop("a.b"),)),
            id="topic by mid",
        ),
        pytest.param(
            "Main Path:\n Kenya -[a , b]-> ?c\n ?c -[c , d]-> ?x",
            replace(KENYA, differs_from=1),
            id="?c is what the answer differs from",
        ),
        pytest.param(
            MAIN + "Entity Restrictions:\n ?y -[e , f]-> Washington, D.C. (city)",
            keep(Constraint(1, (Hop("e.f"),), IsEntity(Entity("Washington, D.C. (city)")))),
            id="entity",
        ),
        pytest.param(
            MAIN + "Entity Restrictions:\n ?x -[e , f]-> ?c\n ?c -[g , h]-> Male",
            keep(Constraint(2, (Hop("e.f"), Hop("g.h")), IsEntity(Entity("Male")))),
            id="branch of two hops",
        ),
        pytest.param(
            MAIN
            + "Entity Restrictions:\n ?x -[e , f]-> ?c\n ?c -[g , h]-> A\n"
            + " ?x -[e , f]-> ?c\n ?c -[g , h]-> B",
            keep(
                Constraint(2, (Hop("e.f"), Hop("g.h")), IsEntity(Entity("A"))),
                Constraint(2, (Hop("e.f"), Hop("g.h")), IsEntity(Entity("B"))),
            ),
            id="a variable used again is another node",
        ),
        pytest.param(
            MAIN + "Entity Restrictions:\n ?x -[e , f]-> ?c\n ?c -[g , h]-> A\n ?c -[i , j]-> B",
            keep(
                Constraint(
                    2,
                    (Hop("e.f"),),
                    None,
                    (
                        Constraint(1, (Hop("g.h"),), IsEntity(Entity("A"))),
                        Constraint(1, (Hop("i.j"),), IsEntity(Entity("B"))),
                    ),
                )
            ),
            id="branch with branches",
        ),
        pytest.param(
            MAIN + "Entity Restrictions:\n ?x -[e , f]-> ?c",
            keep(Constraint(2, (Hop("e.f"),), None)),
            id="branch that need only exist",
        ),
        pytest.param(
            MAIN
            + 'Numeric Restrictions:\n ?y -[t , from]-> ?sk1\n  FILTER (?sk1 <= "2015-08-10")\n'
            + ' ?y -[t , to]-> ?sk3\n  FILTER (?sk3 >= "2015-08-10")',
            keep(
                Constraint(
                    1, (Hop("t.from"),), Compare("<=", LiteralTerm("2015-08-10")), optional=True
                ),
                Constraint(
                    1, (Hop("t.to"),), Compare(">=", LiteralTerm("2015-08-10")), optional=True
                ),
            ),
            id="interval",
        ),
        pytest.param(
            MAIN
            + "Numeric Restrictions:\n ?x -[e , f]-> ?c\n ?c -[t , to]-> ?sk3\n"
            + '  FILTER (?sk3 >= "2009")',
            keep(
                Constraint(
                    2,
                    (Hop("e.f"),),
                    None,
                    (
                        Constraint(
                            1, (Hop("t.to"),), Compare(">=", LiteralTerm("2009")), optional=True
                        ),
                    ),
                )
            ),
            id="only the end of a branch may be missing",
        ),
        pytest.param(
            MAIN + "Numeric Restrictions:\n ?x -[n , o]-> ?num\n  FILTER (xsd:integer(?num) < 12)",
            keep(Constraint(2, (Hop("n.o"),), Compare("<", LiteralTerm("12", "integer")))),
            id="integer",
        ),
        pytest.param(
            MAIN + 'Numeric Restrictions:\n  FILTER (?x > "1980")',
            keep(Constraint(2, (), Compare(">", LiteralTerm("1980")))),
            id="the answer itself compared",
        ),
        pytest.param(
            MAIN
            + "Numeric Restrictions:\n ?x -[n , o]-> ?c\n ?c -[p , q]-> ?sk0\n"
            + "  ORDER BY DESC(?sk0)\n  LIMIT 3",
            keep(order=Order(2, (Hop("n.o"), Hop("p.q")), descending=True, limit=3)),
            id="superlative",
        ),
        pytest.param(
            "Main Path:\n Kenya -[a , b]-> ?c\n ?c -[c , d]-> ?x\nNumeric Restrictions:\n"
            " ?x -[n , o]-> ?c\n ?c -[p , q]-> ?sk0\n ORDER BY ?sk0",
            replace(
                KENYA,
                differs_from=1,
                order=Order(2, (Hop("n.o"), Hop("p.q")), descending=False),
            ),
            id="superlative through a variable of the main path's name",
        ),
        pytest.param(
            MAIN + "Numeric Restrictions:\n ORDER BY ASC( ?x )\n LIMIT 1",
            keep(order=Order(2, (), descending=False)),
            id="the answer itself ordered",
        ),
        pytest.param(
            MAIN
            + "Numeric Restrictions:\n ?x -[n , o]-> ?c\n ?c -[p , q]-> ?sk0\n"
            + '  FILTER (?sk0 > "3")\n  ORDER BY DESC(?sk0)\n  LIMIT 1',
            keep(
                Constraint(
                    2,
                    (Hop("n.o"), Hop("p.q")),
                    None,
                    (Constraint(2, (), Compare(">", LiteralTerm("3"))),),
                    label="a",
                ),
                order=Order("a", (), descending=True),
            ),
            id="ordered value that is restricted as well",
        ),
        pytest.param(
            MAIN
            + 'Numeric Restrictions:\n ?x -[t , to]-> ?sk0\n  FILTER (?sk0 <= "2015-08-10")\n'
            + "  ORDER BY DESC(?sk0)\n  LIMIT 1",
            keep(
                Constraint(
                    2,
                    (Hop("t.to"),),
                    None,
                    (Constraint(1, (), Compare("<=", LiteralTerm("2015-08-10"))),),
                    label="a",
                ),
                order=Order("a", (), descending=True),
            ),
            id="ordered value that ends an interval may not be missing",
        ),
        pytest.param(
            MAIN
            + "Entity Restrictions:\n ?x -[e , f]-> ?c\n ?c -[g , h]-> Male\n"
            + "Numeric Restrictions:\n ?c -[p , q]-> ?sk0\n  ORDER BY ASC(?sk0)\n  LIMIT 2",
            keep(
                Constraint(
                    2,
                    (Hop("e.f"),),
                    None,
                    (Constraint(1, (Hop("g.h"),), IsEntity(Entity("Male"))),),
                    label="a",
                ),
                order=Order("a", (Hop("p.q"),), descending=False, limit=2),
            ),
            id="superlative behind a branch that is restricted",
        ),
        pytest.param(
            MAIN + 'String Restrictions:\n ?x -[s , t]-> ?name\n  FILTER (str(?name) = "a "b") ")',
            keep(Constraint(2, (Hop("s.t"),), TextEquals('a "b") '))),
            id="string with quotes and brackets",
        ),
        pytest.param(
            MAIN + 'String Restrictions:\n ?x -[s , t]-> ?name\n  FILTER (?name = "1984")',
            keep(Constraint(2, (Hop("s.t"),), TextEquals("1984"))),
            id="string that looks like a year",
        ),
    ],
)
def test_read(text: str, crp: Crp) -> None:
    assert parse_routerkgqa(text) == (crp, ())
    written = render_routerkgqa(crp)
    assert written is not None
    assert parse_routerkgqa(written) == (crp, ())


@pytest.mark.parametrize(
    ("line", "crp"),
    [
        ("Entity Restrictions:\n ?z -[e , f]-> Male", KENYA),
        ("Entity Restrictions:\n ?x -[e , f]-> ", KENYA),
        ("Entity Restrictions:\n ?x -[e , f]-> ?a b", KENYA),
        ("Entity Restrictions:\n ?x -[ ]-> Male", KENYA),
        ("Entity Restrictions:\n ?x -[e , <f>]-> Male", KENYA),
        ("Entity Restrictions:\n Male", KENYA),
        ("Numeric Restrictions:\n FILTER (?num - ?sk0 > 0)", KENYA),
        ('Numeric Restrictions:\n FILTER (?num < "3")', KENYA),
        ("Numeric Restrictions:\n ORDER BY DESC(?sk0)\n", KENYA),
        ("Numeric Restrictions:\n LIMIT 3", KENYA),
        ("Numeric Restrictions:\n ORDER BY ?x\n LIMIT 0", keep(order=Order(2, (), False))),
        ("Numeric Restrictions:\n ORDER BY ?x\n ORDER BY ?y", keep(order=Order(2, (), False))),
        ('String Restrictions:\n FILTER (?x != "a")', KENYA),
        ("String Restrictions:\n FILTER (?x = 12)", KENYA),
        ("Further Restrictions:\n  ?x = Lima |  | Spain", KENYA),
        ("Further Restrictions:\n  no ?x -[e , f]-> ?a\n  ?x > ?a", NONE),
        ("Further Restrictions:\n  no ?x -[e , f]-> ?a\n ORDER BY ?a", NONE),
        (" ?z -[g , h]-> ?a", KENYA),
        (" ?x -[g , h]-> Male", KENYA),
        (" ?x -[g , h]-> ?y", KENYA),
    ],
)
def test_what_cannot_be_read_is_a_named_problem(line: str, crp: Crp) -> None:
    reading = parse_routerkgqa(MAIN + line)
    assert reading.crp == crp
    assert len(reading.problems) == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("Kenya", id="no section"),
        pytest.param("Main Path:", id="no path"),
        pytest.param("Main Path:\n ?y -[a , b]-> ?x", id="starts with a variable"),
        pytest.param("Main Path:\n Kenya -[a , b]-> Nairobi", id="leads to no variable"),
        pytest.param(MAIN + "\n" * 100, id="endless"),
    ],
)
def test_a_text_without_main_path_is_refused(text: str) -> None:
    with pytest.raises(CrpSyntaxError):
        parse_routerkgqa(text)


@pytest.mark.parametrize(
    "crp",
    [
        pytest.param(replace(KENYA, differs_from=None), id="answer may be any node"),
        pytest.param(replace(KENYA, answer_language=None), id="texts in any language"),
        pytest.param(replace(KENYA, answer_language="de"), id="texts in German"),
        pytest.param(replace(KENYA, path=(FORK,)), id="fork"),
        pytest.param(
            keep(Constraint(2, (Hop("e.f"),), AnyOf(((MALE_THERE,), (MALE_THERE,))))),
            id="alternatives",
        ),
        pytest.param(keep(Constraint(2, (Hop("e.f"),), IsNode(NodeRef(1)))), id="is another node"),
        pytest.param(
            keep(Constraint(2, (Hop("e.f"),), IsNotNode(NodeRef(1)))), id="is not another node"
        ),
        pytest.param(
            keep(Constraint(2, (Hop("e.f"),), Compare("<", NodeRef(1)))),
            id="compared with another node",
        ),
        pytest.param(
            keep(LABELLED, Constraint(2, (Hop("e.f"),), Compare("<", NodeRef("a")))),
            id="compared with a label",
        ),
        pytest.param(
            keep(
                Constraint(
                    2, (Hop("e.f"),), None, (Constraint(1, (), TextEquals("A")),), label="a"
                ),
                order=Order("a", (), descending=True),
            ),
            id="ordered by a string that is restricted",
        ),
        pytest.param(
            keep(Constraint(2, (Hop("e.f"),), None, negated=True)), id="branch that must not exist"
        ),
        pytest.param(
            keep(Constraint(Entity("A"), (Hop("e.f"),), IsEntity(Entity("B")))),
            id="constraint on another entity",
        ),
        pytest.param(
            keep(Constraint(2, (Hop("e.f"),), None, optional=True)), id="branch that may be missing"
        ),
        pytest.param(
            keep(Constraint(2, (Hop("e.f"),), None, (MALE_THERE, BIG_THERE))),
            id="branches of two sections",
        ),
        pytest.param(replace(KENYA, topic=Entity("?x")), id="name that reads as a variable"),
        pytest.param(replace(KENYA, topic=Entity("m.0abc")), id="name that reads as a mid"),
        pytest.param(replace(KENYA, topic=Entity(" a")), id="name with a blank before it"),
        pytest.param(replace(KENYA, topic=Entity("a -[b]-> c")), id="name that reads as a hop"),
        pytest.param(replace(KENYA, topic=Entity("a\nb")), id="name of two lines"),
        pytest.param(replace(KENYA, topic=Entity(mid="location.country")), id="schema id"),
        pytest.param(replace(KENYA, path=(Hop("a.b__c"),)), id="relation with two underscores"),
        pytest.param(
            keep(Constraint(0, (Hop("e.f"),), IsEntity(Entity("A")))), id="constraint on the topic"
        ),
        pytest.param(
            keep(Constraint(2, (Hop("e.f", inverse=True),), IsEntity(Entity("A")))),
            id="branch backwards",
        ),
        pytest.param(keep(Constraint(2, (), IsEntity(Entity("A")))), id="the answer is"),
        pytest.param(
            keep(Constraint(2, (Hop("e.f"),), IsNotEntity(Entity("A")))), id="is not an entity"
        ),
        pytest.param(keep(Constraint(2, (Hop("e.f"),), TextEquals("A", "en"))), id="language"),
        pytest.param(
            keep(Constraint(2, (Hop("e.f"),), Compare("<=", LiteralTerm("2010-12-31")))),
            id="an end of an interval that may not be missing",
        ),
        pytest.param(
            keep(Constraint(2, (Hop("e.f"),), Compare("<", LiteralTerm("2010")), optional=True)),
            id="comparison that may be missing",
        ),
        pytest.param(
            keep(Constraint(2, (Hop("e.f"),), Compare("<", LiteralTerm("1980", "gYear")))),
            id="datatype that looks do not tell",
        ),
        pytest.param(keep(order=Order(2, (), descending=True, offset=1)), id="offset"),
        pytest.param(keep(order=Order(0, (Hop("e.f"),), descending=True)), id="topic ordered"),
        pytest.param(keep(order=Order(2, (Hop("e.f"),), True, ties=True)), id="ties"),
        pytest.param(keep(order=Order(2, (Hop("e.f"),), True, counted=True)), id="by number"),
        pytest.param(replace(KENYA, form="count"), id="count"),
        pytest.param(replace(KENYA, form="ask"), id="yes/no question"),
    ],
)
def test_what_the_form_cannot_say_is_not_written(crp: Crp) -> None:
    assert render_routerkgqa(crp) is None


def test_write() -> None:
    crp = Crp(
        Entity("Kenya", "m.019rg5"),
        (Hop("a.b_c", inverse=True), Hop("d.e"), Hop("f.g")),
        (
            Constraint(3, (Hop("s.t"),), TextEquals("x")),
            Constraint(1, (Hop("e.f"), Hop("g.h")), IsEntity(Entity("Male", "m.05zppz"))),
            Constraint(3, (Hop("n.o"),), Compare("=", LiteralTerm("2.5", "float"))),
        ),
        Order(3, (Hop("n.p"),), descending=True),
        differs_from=2,
    )
    assert render_routerkgqa(crp) == (
        "Main Path:\n"
        " Kenya -[R[a , b c]]-> ?k\n"
        " ?k -[d , e]-> ?c\n"
        " ?c -[f , g]-> ?x\n"
        "Entity Restrictions:\n"
        " ?k -[e , f]-> ?c2\n"
        " ?c2 -[g , h]-> Male\n"
        "Numeric Restrictions:\n"
        " ?x -[n , o]-> ?number\n"
        '  FILTER (?number = "2.5")\n'
        " ?x -[n , p]-> ?sk0\n"
        "  ORDER BY DESC(?sk0)\n"
        "  LIMIT 1\n"
        "String Restrictions:\n"
        " ?x -[s , t]-> ?name\n"
        '  FILTER (str(?name) = "x")'
    )


def test_a_label_that_only_the_order_uses_is_written_without_it() -> None:
    order = Order("a", (Hop("n.p"),), descending=True)
    text = render_routerkgqa(keep(LABELLED, order=order))
    assert text is not None
    plain = Order(1, (*LABELLED.hops, *order.hops), descending=True)
    assert parse_routerkgqa(text) == (keep(order=plain), ())


@pytest.mark.parametrize(
    "text", ["St.Lucia <- type.object.type", "Kenya -> a.b\n?x -> type.object.type = St.Lucia"]
)
def test_a_name_that_would_be_read_as_a_class_is_not_written(text: str) -> None:
    assert render_routerkgqa(read_crp(text).crp) is None


@pytest.mark.parametrize(
    "test",
    [
        IsNotEntity(Entity("Male")),
        AnyOf(tuple((Constraint(1, (), IsEntity(Entity(name))),) for name in ("Male", "Female"))),
        Compare("<", NodeRef(1)),
    ],
)
def test_the_extended_form_does_not_lose_that_a_value_may_be_missing(test: Test) -> None:
    demanded = keep(Constraint(2, (Hop("e.f"),), test))
    assert render_extended(demanded) is not None
    assert render_extended(keep(Constraint(2, (Hop("e.f"),), test, optional=True))) is None


def test_a_negated_triple_of_another_entity_is_not_written_as_one_of_another_name() -> None:
    # Reading the text would find an entity called "no m.0a", and nothing negated.
    crp = read_crp("Kenya -> a.b\nm.0a no -> c.d = Euro").crp
    assert render_extended(crp) is None


@settings(deadline=None, max_examples=100)
@given(sayable_crps())
def test_what_is_written_is_read_back(crp: Crp) -> None:
    text = render_routerkgqa(crp)
    if text is not None:
        assert parse_routerkgqa(text) == (crp, ())


@settings(deadline=None, max_examples=300)
@given(st.one_of(sayable_crps(), crps()))
def test_what_the_extended_form_says_is_read_back(crp: Crp) -> None:
    text = render_extended(crp)
    if text is not None:
        said, problems = read_crp(text)
        assert problems == ()
        assert render_extended(said) == text
        assert [hop for hop in said.path if isinstance(hop, Hop)] == list(crp.path)
        assert said.form == crp.form
        assert (said.order is None) == (crp.order is None)


FULL = """Main Path:
 m.0a -[a , b]-> ?k
 ?k -[R[c , d]]-> ?c
 ?c -[e , f]-> ?x
Entity Restrictions:
 ?c -[g , h]-> ?c2
 ?c2 -[i , j]-> Male
 ?c2 -[k , l]-> m.0b
Numeric Restrictions:
 ?x -[a , from]-> ?sk1
  FILTER (?sk1 <= "2010-12-31")
 ?k -[n , m]-> ?num
  FILTER (xsd:integer(?num) > 12)
 ?x -[s , t]-> ?sk0
  ORDER BY DESC(?sk0)
  LIMIT 3
String Restrictions:
 ?x -[n , n]-> ?name
  FILTER (str(?name) = "JMD")
"""


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_text_with_mixed_up_lines_and_characters_is_read_back_as_it_was_written(
    data: st.DataObject,
) -> None:
    lines = FULL.splitlines()
    at = st.integers(0, len(lines) - 1)
    for first, second in data.draw(st.lists(st.tuples(at, at), max_size=3)):
        lines[first], lines[second] = lines[second], lines[first]
    for number in data.draw(st.lists(at, max_size=3)):
        place = data.draw(st.integers(0, len(lines[number])))
        piece = data.draw(st.one_of(st.characters(), st.sampled_from(["", '"', "?x", "-[", "?c2"])))
        lines[number] = lines[number][:place] + piece + lines[number][place + 1 :]
    try:
        crp = parse_routerkgqa("\n".join(lines)).crp
    except CrpSyntaxError:
        return
    text = render_routerkgqa(crp)
    if text is not None:
        assert parse_routerkgqa(text) == (crp, ())


@st.composite
def further_lines(draw: st.DrawFn) -> str:
    """A line of the extended form, about nodes that may or may not be there."""
    node, other = (draw(st.sampled_from(["?x", "?y", "?a", "?b", "?c"])) for _ in range(2))
    return draw(
        st.sampled_from(
            [
                "Numeric Restrictions:",
                "Further Restrictions:",
                f"{node} -[e , f]-> {other}",
                f"no {node} -[e , f]-> {other}",
                f"{node} -[e , f]-> Male",
                f"Peru -[e , f]-> {other}",
                f"{node} > {other}",
                f"{node} = Lima | Spain",
                f"{node} = Lima |  | ",
                f'FILTER ({node} <= "2010-12-31")',
                f"ORDER BY {node}",
            ]
        )
    )


@settings(deadline=None, max_examples=300)
@given(st.lists(further_lines(), max_size=12))
def test_lines_that_contradict_each_other_are_no_crash(lines: list[str]) -> None:
    try:
        crp = parse_routerkgqa("\n".join([MAIN + "Further Restrictions:", *lines])).crp
    except CrpSyntaxError:
        return
    assert parse_crp(render_crp(crp)) == (crp, ())


def test_thirty_nodes_that_are_compared_all_have_a_label() -> None:
    lines = [f" ?x -[e , f]-> ?n{n}\n  ?x > ?n{n}" for n in range(30)]
    crp, problems = parse_routerkgqa("\n".join([MAIN + "Further Restrictions:", *lines]))
    assert (problems, len({*(label for c in crp.constraints for label in c.labels())})) == ((), 30)


def test_a_missing_value_does_not_satisfy_what_others_are_compared_with() -> None:
    lines = [" ?x -[e , f]-> ?a", '  FILTER (?a <= "2010-12-31")', "  ?y > ?a"]
    crp, problems = parse_routerkgqa("\n".join([MAIN + "Further Restrictions:", *lines]))
    assert problems == ()
    assert not any(constraint.optional for constraint in crp.all_constraints())


def test_constraints_in_the_wrong_section_are_read_back_in_the_same_order() -> None:
    lines = ["Numeric Restrictions:", " ?x -[c , d]-> ?num", '  FILTER (?num > "5")']
    lines += ["Entity Restrictions:", " ?x -[e , f]-> Male"]
    crp, problems = parse_routerkgqa(MAIN + "\n".join(lines))
    text = render_routerkgqa(crp)
    assert (problems, [constraint.kind for constraint in crp.constraints]) == (
        (),
        ["entity", "numeric"],
    )
    assert text is not None
    assert parse_routerkgqa(text) == (crp, ())


@pytest.mark.parametrize("character", ["\r", "\t", "\x00", "\x1f", "\x7f", "\ud800"])
def test_a_control_character_that_a_text_file_may_change_has_no_words(character: str) -> None:
    text = f"a{character}b"
    hops = (Hop("a.b"),)
    for test in (IsEntity(Entity(text)), TextEquals(text), Compare("<", LiteralTerm(text))):
        assert render_routerkgqa(Crp(Entity("Kenya"), hops, (Constraint(1, hops, test),))) is None
    assert render_routerkgqa(Crp(Entity(text), hops)) is None


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("Kenya" + " " * 20_000 + "-[a , b]", id="blanks"),
        pytest.param("-[" * 20_000, id="opened hops"),
        pytest.param("FILTER (?x" + " " * 20_000 + "~", id="blanks in a filter"),
        pytest.param("K" * 100_000, id="long name"),
    ],
)
def test_long_lines_are_read_in_linear_time(line: str) -> None:
    start = time.process_time()
    parse_routerkgqa(f"{MAIN}Numeric Restrictions:\n{line}")
    assert time.process_time() - start < 1


def test_published_texts_are_read(shared: Path) -> None:
    counts: Counter[str] = Counter()
    for path in sorted((shared / "data/qa").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                text = json.loads(line).get("crp_routerkgqa")
                if text is not None:
                    counts[_read_published(text)] += 1
    assert counts.total() > 5_000
    assert counts["fully"] / counts.total() >= 0.996
    # Two are empty, and three have a heading with no main path under it.
    assert counts["not"] <= 5


def _read_published(text: str) -> str:
    try:
        crp, problems = parse_routerkgqa(text)
    except CrpSyntaxError:
        return "not"
    if problems:
        return "partly"
    written = render_routerkgqa(crp)
    assert written is not None, text
    assert parse_routerkgqa(written) == (crp, ())
    return "fully"
