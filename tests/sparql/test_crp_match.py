import pytest
from hypothesis import given
from strategies import crps

from kbqa.sparql.crp_match import CrpMatch, match_crps
from kbqa.sparql.forms import parse_crp, parse_routerkgqa

GOLD = """Main Path:
 Kenya -[a , b]-> ?y
 ?y -[c , d]-> ?x
Entity Restrictions:
 ?y -[e , f]-> President
Numeric Restrictions:
 ?y -[g , h]-> ?sk1
  FILTER (?sk1 <= "2009-12-31")"""


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("", "", CrpMatch(True, True, True, True)),
        ("?sk1", "?num", CrpMatch(True, True, True, True)),
        ("Kenya", "Peru", CrpMatch(False, True, True, True)),
        ("President", "King", CrpMatch(False, True, True, True)),
        ("2009-12-31", "1900", CrpMatch(False, True, True, True)),
        ("<=", ">=", CrpMatch(False, False, True, True)),
        ("e , f", "e , g", CrpMatch(False, False, True, True)),
        ("c , d", "c , e", CrpMatch(False, False, False, True)),
        ("-[c , d]", "-[R[c , d]]", CrpMatch(False, False, False, True)),
        ("-> ?y\n ?y -[c , d]-> ?x", "-> ?y", CrpMatch(False, False, False, False)),
    ],
    ids=[
        "same",
        "variable",
        "topic",
        "entity",
        "value",
        "operator",
        "constraint",
        "relation",
        "direction",
        "depth",
    ],
)
def test_each_part_is_compared(old: str, new: str, match: CrpMatch) -> None:
    predicted = parse_routerkgqa(GOLD.replace(old, new)).crp
    assert match_crps(predicted, parse_routerkgqa(GOLD).crp) == match


def test_the_order_of_constraints_does_not_count() -> None:
    lines = "\nEntity Restrictions:\n ?x -[a , b]-> {}\n ?x -[a , b]-> {}"
    path = "Main Path:\n Kenya -[a , b]-> ?x"
    one, other = (
        parse_routerkgqa(path + lines.format(*names)).crp for names in (("A", "B"), ("B", "A"))
    )
    assert match_crps(one, other).exact


@pytest.mark.parametrize(
    ("path", "gold"),
    [
        ("Peru -> a.b\n?x -> c.d >= 1900", "Peru -> a.b\n?x -> c.d >= 1900^^dateTime"),
        ('Peru -> a.b\n?x -> c.d reads "A"', 'Peru -> a.b\n?x -> c.d reads "A" untagged'),
        ("Peru -> a.b", "Peru -> a.b\ndistinct from none\nany language"),
    ],
    ids=["a type", "a language", "what the answer may be"],
)
def test_what_the_papers_form_cannot_say_does_not_count(path: str, gold: str) -> None:
    assert parse_crp(path).crp != parse_crp(gold).crp
    assert match_crps(parse_crp(path).crp, parse_crp(gold).crp).exact


def test_an_entity_within_a_fork_is_no_part_of_the_main_path() -> None:
    text = "Kenya (-> a.b {{-> c.d = {}}} -> e.f | -> g.h)"
    one, other = (parse_crp(text.format(name)).crp for name in ("Peru", "Chile"))
    assert match_crps(one, other) == CrpMatch(False, True, True, True)


@given(crps(), crps())
def test_what_matches_in_whole_matches_in_part(one, other) -> None:
    match = match_crps(one, other)
    parts = [match.exact, match.skeleton, match.main_path, match.depth]
    assert parts == sorted(parts)
    assert match == match_crps(other, one)
    assert match_crps(one, one) == CrpMatch(True, True, True, True)
