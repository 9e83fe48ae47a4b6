"""kbqa's own text form: all that the model says, there and back; what models and people write."""

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ANY, HOSTILE, crps

import kbqa.sparql.forms
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
from kbqa.sparql.terms import LiteralTerm

MAIN = "Kenya -> a.b <- c.d"
KENYA = Crp(Entity("Kenya"), (Hop("a.b"), Hop("c.d", inverse=True)))
EF, GH = Hop("e.f"), Hop("g.h")
IS_A, IS_B = IsEntity(Entity("A")), IsEntity(Entity("B"))


def ending(test: Test) -> Crp:
    return keep(Constraint(2, (EF,), test))


def keep(*constraints: Constraint, order: Order | None = None) -> Crp:
    return replace(KENYA, constraints=constraints, order=order)


def forked(*ways: Way) -> Crp:
    return Crp(Entity("Kenya"), (Fork(ways), Hop("z.z")))


FORMS = [
    pytest.param("", KENYA, id="main path"),
    pytest.param("?x -> e.f = A", ending(IS_A), id="is an entity"),
    pytest.param("?x -> e.f != A", ending(IsNotEntity(Entity("A"))), id="is not an entity"),
    pytest.param("?0 = A", keep(Constraint(0, (), IS_A)), id="the topic itself"),
    pytest.param(
        "?x -> e.f = Washington, D.C. (m.0rh6k)",
        ending(IsEntity(Entity("Washington, D.C.", "m.0rh6k"))),
        id="name and mid",
    ),
    pytest.param("?x -> e.f = m.0rh6k", ending(IsEntity(Entity(mid="m.0rh6k"))), id="mid"),
    pytest.param("?x -> e.f = ns:a.b", ending(IsEntity(Entity(mid="a.b"))), id="schema id"),
    pytest.param(
        "?x -> e.f = <http://a.b/c>", ending(IsEntity(Entity(mid="http://a.b/c"))), id="full IRI"
    ),
    pytest.param(
        "?x -> e.f = ns:[a b\\]]", ending(IsEntity(Entity(mid="a b]"))), id="id of odd characters"
    ),
    pytest.param(
        "?x -> e.f = [1984]", ending(IsEntity(Entity("1984"))), id="name that looks like a year"
    ),
    pytest.param(
        "?x -> e.f = [Male or none]", ending(IsEntity(Entity("Male or none"))), id="name with words"
    ),
    pytest.param(
        "?x -> e.f = [Pi (film)]", ending(IsEntity(Entity("Pi (film)"))), id="name in parentheses"
    ),
    pytest.param(
        "?x -> e.f = [a\\]\\\\\\n\\u0000]",
        ending(IsEntity(Entity("a]\\\n\0"))),
        id="name of odd characters",
    ),
    pytest.param("?x -> [e f] = A", keep(Constraint(2, (Hop("e f"),), IS_A)), id="odd relation"),
    pytest.param(
        "?x <- <http://a.b/c> = A",
        keep(Constraint(2, (Hop("http://a.b/c", inverse=True),), IS_A)),
        id="relation by full IRI",
    ),
    pytest.param("?x -> e.f is ?1", ending(IsNode(NodeRef(1))), id="is another node"),
    pytest.param("?x -> e.f is not ?x", ending(IsNotNode(NodeRef(2))), id="is not another node"),
    pytest.param(
        "?x -> e.f >= 2010-12-31", ending(Compare(">=", LiteralTerm("2010-12-31"))), id="date"
    ),
    pytest.param("?x -> e.f = -1.5e3", ending(Compare("=", LiteralTerm("-1.5e3"))), id="number"),
    pytest.param('?x -> e.f < "x"', ending(Compare("<", LiteralTerm("x"))), id="other value"),
    pytest.param(
        "?x -> e.f = 2004^^dateTime",
        ending(Compare("=", LiteralTerm("2004", "dateTime"))),
        id="type",
    ),
    pytest.param(
        '?x -> e.f = "a"^^<http://b.c/d>',
        ending(Compare("=", LiteralTerm("a", "http://b.c/d"))),
        id="type by full IRI",
    ),
    pytest.param("?x -> e.f < ?1", ending(Compare("<", NodeRef(1))), id="compared with a node"),
    pytest.param('?x -> e.f reads "J \\"D\\""', ending(TextEquals('J "D"')), id="text"),
    pytest.param('?x -> e.f reads "J"@en', ending(TextEquals("J", "en")), id="text in a language"),
    pytest.param('?x -> e.f reads "J"@"e n"', ending(TextEquals("J", "e n")), id="odd language"),
    pytest.param(
        '?x -> e.f reads "J" untagged', ending(TextEquals("J", "")), id="text in no language"
    ),
    pytest.param("?x -> e.f", keep(Constraint(2, (EF,), None)), id="exists"),
    pytest.param(
        "?1 no -> e.f = A", keep(Constraint(1, (EF,), IS_A, negated=True)), id="exists not"
    ),
    pytest.param(
        "?1 -> e.f <= 2010 or none",
        keep(Constraint(1, (EF,), Compare("<=", LiteralTerm("2010")), optional=True)),
        id="may be missing",
    ),
    pytest.param(
        "?1 -> e.f {>= 3, != 5} or none",
        keep(
            Constraint(
                1,
                (EF,),
                None,
                (
                    Constraint(1, (), Compare(">=", LiteralTerm("3"))),
                    Constraint(1, (), Compare("!=", LiteralTerm("5"))),
                ),
                optional=True,
            )
        ),
        id="two tests of what may be missing",
    ),
    pytest.param(
        "?x -> e.f -> g.h {-> e.f = [A], no <- g.h}",
        keep(
            Constraint(
                2,
                (EF, GH),
                None,
                (
                    Constraint(2, (EF,), IS_A),
                    Constraint(2, (Hop("g.h", inverse=True),), None, negated=True),
                ),
            )
        ),
        id="branches",
    ),
    pytest.param(
        "?x {-> e.f = [A] | = [B], -> g.h > 3}",
        keep(
            Constraint(
                2,
                (),
                AnyOf(
                    (
                        (Constraint(0, (EF,), IS_A),),
                        (
                            Constraint(0, (), IS_B),
                            Constraint(0, (GH,), Compare(">", LiteralTerm("3"))),
                        ),
                    )
                ),
            )
        ),
        id="alternatives",
    ),
    pytest.param(
        "?x -> e.f {= [A] | = [B]}",
        ending(AnyOf(((Constraint(1, (), IS_A),), (Constraint(1, (), IS_B),)))),
        id="alternatives at a branch's end",
    ),
    pytest.param(
        "?x -> e.f ?end {-> g.h = [A]}\n[World War II] -> g.h <= ?end\nlargest ?end -> e.f",
        keep(
            Constraint(2, (EF,), None, (Constraint(1, (GH,), IS_A),), label="end"),
            Constraint(Entity("World War II"), (GH,), Compare("<=", NodeRef("end"))),
            order=Order("end", (EF,), descending=True),
        ),
        id="label and anchor",
    ),
    pytest.param(
        "?x -> e.f ?_x\n?1 is ?_x",
        keep(
            Constraint(2, (EF,), None, label="x"),
            Constraint(1, (), IsNode(NodeRef("x"))),
        ),
        id="label that is called like the answer",
    ),
    pytest.param(
        "smallest 3 after 2 ?1 -> e.f",
        keep(order=Order(1, (EF,), descending=False, limit=3, offset=2)),
        id="limit and offset",
    ),
    pytest.param(
        "most 1 after 2 with ties ?x -> e.f",
        keep(order=Order(2, (EF,), descending=True, offset=2, ties=True, counted=True)),
        id="third most",
    ),
    pytest.param(
        "smallest with ties ?x -> e.f",
        keep(order=Order(2, (EF,), descending=False, ties=True)),
        id="all the smallest",
    ),
    pytest.param("count", replace(KENYA, form="count"), id="count"),
    pytest.param("count bindings", replace(KENYA, form="count bindings"), id="count of bindings"),
    pytest.param(
        "?x = A\nask", replace(keep(Constraint(2, (), IS_A)), form="ask"), id="yes/no question"
    ),
    pytest.param(
        "largest 1 after 2 ?x",
        keep(order=Order(2, (), descending=True, offset=2)),
        id="third largest",
    ),
    pytest.param("distinct from ?1", replace(KENYA, differs_from=1), id="differs from a node"),
    pytest.param("distinct from none", replace(KENYA, differs_from=None), id="may be any node"),
    pytest.param("any language", replace(KENYA, answer_language=None), id="any language"),
    pytest.param("answers in de", replace(KENYA, answer_language="de"), id="language"),
    pytest.param('answers in ""', replace(KENYA, answer_language=""), id="no language"),
]

FORKS = [
    pytest.param(
        "Kenya (-> a.b -> c.d | <- e.f) -> z.z",
        forked(Way((Hop("a.b"), Hop("c.d"))), Way((Hop("e.f", inverse=True),))),
        id="two ways",
    ),
    pytest.param(
        "Kenya (-> a.b | (-> e.f | -> g.h) -> a.b) -> z.z",
        forked(Way((Hop("a.b"),)), Way((Fork((Way((EF,)), Way((GH,)))), Hop("a.b")))),
        id="fork on a way",
    ),
    pytest.param(
        "Kenya ({= [A]} -> a.b {-> e.f = [A], ?0 = [B], [C] -> g.h} -> c.d | -> g.h) -> z.z",
        forked(
            Way(
                (Hop("a.b"), Hop("c.d")),
                (
                    Constraint(0, (), IS_A),
                    Constraint(1, (EF,), IS_A),
                    Constraint(0, (), IS_B),
                    Constraint(Entity("C"), (GH,), None),
                ),
            ),
            Way((GH,)),
        ),
        id="constraints on a way's nodes",
    ),
    pytest.param(
        "Kenya (-> a.b {-> e.f ?v, is not ?v} | -> g.h) -> z.z",
        forked(
            Way(
                (Hop("a.b"),),
                (
                    Constraint(1, (EF,), None, label="v"),
                    Constraint(1, (), IsNotNode(NodeRef("v"))),
                ),
            ),
            Way((GH,)),
        ),
        id="label of a way",
    ),
]


@pytest.mark.parametrize(("lines", "crp"), FORMS)
def test_forms_are_read_and_written(lines: str, crp: Crp) -> None:
    text = f"{MAIN}\n{lines}".rstrip()
    assert parse_crp(text) == (crp, ())
    assert render_crp(crp) == text


@pytest.mark.parametrize(("text", "crp"), FORKS)
def test_forks_are_read_and_written(text: str, crp: Crp) -> None:
    assert parse_crp(text) == (crp, ())
    assert render_crp(crp) == text


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        pytest.param(Entity("Kenya", "m.019rg5"), "Kenya (m.019rg5)", id="name and mid"),
        pytest.param(Entity(mid="g.11x"), "g.11x", id="mid"),
        pytest.param(Entity("m.0a"), "[m.0a]", id="name that reads as a mid"),
        pytest.param(Entity("Main Path:"), "Main Path:", id="the other form's heading"),
        pytest.param(Entity('Who\'s? J. "D" - 2'), 'Who\'s? J. "D" - 2', id="harmless marks"),
        pytest.param(Entity("?x"), "[?x]", id="name that reads as a node"),
        pytest.param(Entity(" a"), "[ a]", id="name with a blank before it"),
        pytest.param(Entity("a -> b"), "[a -> b]", id="name with an arrow"),
        pytest.param(Entity("a\u2028b\ud800"), "[a\\u2028b\\ud800]", id="no text for files"),
        pytest.param(Entity("", "m.0a"), "[] (m.0a)", id="empty name"),
        pytest.param(Entity("a", ""), "a (ns:[])", id="empty id"),
    ],
)
def test_topics(topic: Entity, text: str) -> None:
    crp = replace(KENYA, topic=topic)
    written = f"{text} -> a.b <- c.d"
    assert render_crp(crp) == written
    assert read_crp(written) == (crp, ())


@pytest.mark.parametrize(
    ("text", "crp"),
    [
        pytest.param(f"\r\n\n  {MAIN}  \r\n", KENYA, id="blank lines"),
        pytest.param("Kenya->a.b<-c.d\n?X->e.f=A", ending(IS_A), id="no blanks"),
        pytest.param("[Kenya]  ->  a.b\t<-  c.d\n ?2 ->e.f  = [ A]", None, id="many blanks"),
        pytest.param(f"{MAIN}\n?x -> e.f OR  None", None, id="words in capitals"),
        pytest.param(
            f"{MAIN}\nANY Language\nLargest AFTER 2 ?X\nDistinct From NONE", None, id="Or"
        ),
        pytest.param(
            f"{MAIN}\n?x -> e.f = Pi (film)", ending(IsEntity(Entity("Pi (film)"))), id="film"
        ),
        pytest.param(
            f"{MAIN}\n?x -> e.f = Pi (film) (m.0a)",
            ending(IsEntity(Entity("Pi (film)", "m.0a"))),
            id="film and mid",
        ),
        pytest.param(
            f"{MAIN}\n?x -> e.f {{= A, -> g.h = B (m.0b) or none}}",
            keep(
                Constraint(
                    2,
                    (EF,),
                    None,
                    (
                        Constraint(1, (), IS_A),
                        Constraint(1, (GH,), IsEntity(Entity("B", "m.0b")), optional=True),
                    ),
                )
            ),
            id="names without brackets in braces",
        ),
        pytest.param("1984 -> a.b <- c.d", replace(KENYA, topic=Entity("1984")), id="1984"),
        pytest.param(
            f"{MAIN}\nlargest ?x\n?x -> e.f = A\ndistinct from ?0\nanswers in en",
            replace(ending(IS_A), order=Order(2, (), descending=True)),
            id="any order of lines, and defaults",
        ),
        pytest.param(
            f"{MAIN}\n?x -> e.f ?v {{= [A]}}",
            keep(Constraint(2, (EF,), None, (Constraint(1, (), IS_A),))),
            id="a label that nothing refers to",
        ),
        pytest.param(
            "Kenya (-> a.b {-> e.f ?v} | -> g.h) -> z.z",
            forked(Way((Hop("a.b"),), (Constraint(1, (EF,), None),)), Way((GH,))),
            id="such a label on a way",
        ),
    ],
)
def test_lenient_reading(text: str, crp: Crp | None) -> None:
    reading = parse_crp(text)
    assert reading.problems == ()
    assert crp is None or reading.crp == crp
    assert parse_crp(render_crp(reading.crp)) == reading


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "expected a node such as ?x, found 'nonsense'"),
        ("?x", "expected an arrow or a test, found nothing"),
        ("?x ->", "expected a relation, found nothing"),
        ("?x -> e.f =", "expected a name or value, found nothing"),
        ('?x -> e.f = "a', "expected a name or value, found '\"a'"),
        ("?x -> e.f > Male", "expected a number or date after >, found 'Male'"),
        ("?x -> e.f reads Male", "expected a string in quotes, found 'Male'"),
        ("?x -> e.f = [Male] and more", "expected the end of the line, found 'and more'"),
        ("?x -> e.f {-> g.h", "expected }, found nothing"),
        ("?x -> e.f {}", "expected an arrow or a test, found '}'"),
        ("?x {-> e.f}", "a constraint without hops needs a test"),
        (
            "?x -> e.f ?v {= 1 | = 2}",
            "a branch cannot have both a test and a label or further branches",
        ),
        ("?x = A or none", "a constraint without hops can be neither optional nor negated"),
        ("?3 -> e.f", "?3 is not defined here"),
        ("?x is ?3", "?3 is not defined here"),
        ("?x -> e.f < ?v", "?v is not defined here"),
        ("?x no -> e.f {-> g.h ?v}\nlargest ?v", "?v is not defined here"),
        ("?x {-> e.f ?v | -> g.h}\n?x is ?v", "?v is not defined here"),
        ("?x -> e.f {-> g.h ?v, -> g.h ?v}", "two branches have the label ?v"),
        ("?x -> e.f ?v\n?x -> g.h ?v\nlargest ?v", "two branches have the label ?v"),
        ("largest 0 ?x", "the limit must be 1 to 2147483647, the offset 0 to 2147483647"),
        ("largest ?x\nsmallest ?x", "an earlier line already says this in another way"),
        ("count\nask", "an earlier line already says this in another way"),
        ("count\nlargest ?x", "what is counted or added up cannot be ordered as well"),
        ("average ?v", "?v is not defined here"),
        ("average", "expected a node such as ?x, found nothing"),
        ("sum ?x\nlargest ?x", "what is counted or added up cannot be ordered as well"),
        ("?x != ?1\nlargest ?x\nask", "a test of ordered answers cannot name another node"),
        ("most ?x", "only the ends of a branch can be counted, not the node itself"),
        ("distinct from ?x", "?x is not defined here"),
        ("any language\nanswers in de", "an earlier line already says this in another way"),
    ],
)
def test_what_cannot_be_read_is_a_named_problem(line: str, problem: str) -> None:
    reading = parse_crp(f"{MAIN}\n{line}\n?x -> e.f = A")
    assert [text.split(": ", 1)[1] for text in reading.problems] == [problem]
    assert Constraint(2, (EF,), IS_A) in reading.crp.constraints


def test_problems_say_their_line_and_draw_in_those_who_refer_to_it() -> None:
    text = (
        f"\n{MAIN}\n?x -> e.f is ?v\n\n?x -> g.h ?v {{is ?w}}\n?x -> g.h ?w {{= }}\n?x -> e.f = A"
    )
    assert parse_crp(text) == (
        ending(IS_A),
        (
            "line 3: ?v is not defined here",
            "line 5: ?w is not defined here",
            "line 6: expected a name or value, found '}'",
        ),
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("", 0, id="empty"),
        pytest.param("\nKenya", 2, id="no path"),
        pytest.param("?x -> a.b", 1, id="starts with a node"),
        pytest.param("-> a.b", 1, id="starts with no entity"),
        pytest.param("Kenya -> ", 1, id="no relation"),
        pytest.param("Kenya -> a.b = Male", 1, id="test on the main path"),
        pytest.param("Kenya (-> a.b)", 1, id="a fork of one way"),
        pytest.param("Kenya (-> a.b | )", 1, id="an empty way"),
        pytest.param("Kenya (-> a.b | -> c.d", 1, id="an open fork"),
        pytest.param("Kenya (-> a.b {is ?1} | -> c.d)", 1, id="a way that looks outside"),
        pytest.param("Kenya (-> a.b {is ?v} | -> c.d {-> e.f ?v})", 1, id="into another way"),
        pytest.param("Kenya (-> a.b {?2 -> e.f} | -> c.d)", 1, id="no such node on the way"),
        pytest.param("Main Path:\n Kenya -[a , b]-> ?x", 1, id="the other form"),
        pytest.param(MAIN + "\n?x -> a.b" * 1000, 0, id="endless"),
        pytest.param("Kenya " + "(" * 50_000, 1, id="parentheses"),
        pytest.param("Kenya " + "(-> a {-> b {" * 5_000, 1, id="braces in parentheses"),
    ],
)
def test_a_text_without_main_path_is_refused(text: str, line: int) -> None:
    with pytest.raises(CrpSyntaxError) as caught:
        parse_crp(text)
    assert caught.value.line == line


def test_braces_are_read_to_a_depth_that_is_said() -> None:
    def text(depth: int) -> str:
        return f"{MAIN}\n?x" + " -> e.f {" * depth + "= 1" + "}" * depth

    assert parse_crp(text(32)).problems == ()
    for depth in (33, 10_000):
        problem = "line 2: braces and parentheses are nested deeper than 32"
        assert parse_crp(text(depth)) == (KENYA, (problem,))


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("Kenya" + " " * 50_000 + "-", id="blanks"),
        pytest.param("?x -> e.f = " + "A or none" * 10_000, id="or none"),
        pytest.param("?x -> e.f = " + "a" + " " * 50_000 + "or none x", id="blanks before or none"),
        pytest.param("?x -> e.f = " + "(a" * 30_000, id="parentheses in a name"),
        pytest.param("?x -> e.f = " + "1" * 50_000 + "x", id="digits"),
        pytest.param("?x -> e.f = [" + "\\" * 50_001, id="backslashes"),
        pytest.param("largest " + "9" * 50_000 + " ?x", id="large number"),
        pytest.param("?x" + " -> e.f" * 10_000, id="hops"),
        pytest.param("?x -> e.f {" + ", ".join(["-> e.f = [A]"] * 5_000) + "}", id="branches"),
        pytest.param("?x {" + " | ".join(["-> e.f = [A]"] * 5_000) + "}", id="alternatives"),
        pytest.param(
            "\n".join(f"?x -> e.f ?v{n} {{is ?v{n + 1}}}" for n in range(900)), id="chain"
        ),
    ],
)
def test_long_texts_are_read_in_linear_time(line: str) -> None:
    start = time.process_time()
    reading = parse_crp(f"{MAIN}\n{line}")
    assert parse_crp(render_crp(reading.crp)) == (reading.crp, ())
    assert time.process_time() - start < 3


def test_a_name_of_10_000_characters_is_read_back() -> None:
    crp = ending(IsEntity(Entity("A (b) " * 2_000)))
    assert parse_crp(render_crp(crp)) == (crp, ())


def test_either_form_is_read() -> None:
    ours, theirs = (
        "\nKenya -> a.b <- c.d",
        "\n main path:\n Kenya -[a , b]-> ?y\n ?y -[R[c , d]]-> ?x",
    )
    assert read_crp(ours) == read_crp(theirs) == (KENYA, ())


def test_the_examples_are_canonical() -> None:
    parts = (kbqa.sparql.forms.__doc__ or "").split("\n\n")
    examples = [part for part in parts if "China (" in part or part.endswith(("count", "ask"))]
    assert len(examples) == 3
    for example in examples:
        text = "\n".join(line.removeprefix("    ") for line in example.split("\n"))
        crp, problems = parse_crp(text)
        assert problems == ()
        assert render_crp(crp) == text


@settings(max_examples=100)
@given(crps(ANY))
def test_what_is_written_is_read_back(crp: Crp) -> None:
    text = render_crp(crp)
    assert parse_crp(text) == (crp, ())
    text.encode()  # fits into a file


WORDS = st.sampled_from(
    (
        *'()[]{}<>|,?"\\\n= ',
        *(" -> ", " <- ", "?x", "?v", "?0", "?_x", "[A]", "m.0a", "ns:", "^^", "@", "a.b", "12"),
        *("= ", "!= ", "is ", "not ", "no ", " or none", "reads ", "untagged", "largest "),
        *("most ", "with ties ", "\ncount", "\ncount bindings", "\nask"),
        *("distinct from ", "any language", "answers in ", "\n?x -> a.b", "-> e.f ?v"),
        *HOSTILE,
    )
)


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    """A written CRP with words put in, taken out and moved."""
    text = render_crp(draw(crps(ANY)))
    for _ in range(draw(st.integers(1, 3))):
        start, end, to = (draw(st.integers(0, len(text))) for _ in range(3))
        cut = text[start : min(end, start + 20)]
        put = draw(st.sampled_from(["", cut]) | WORDS)
        text = text.replace(cut, "", 1)
        text = text[:to] + put + text[to:]
    return text


def _lines(words: list[str]) -> str:
    return f"{MAIN}\n{''.join(words)}"


@settings(max_examples=200)
@given(st.one_of(_mutated(), st.lists(WORDS, max_size=12).map(_lines), st.text()))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    try:
        crp, _ = read_crp(text)
    except CrpSyntaxError:
        return
    written = render_crp(crp)
    assert parse_crp(written) == (crp, ())
    assert render_crp(parse_crp(written).crp) == written
