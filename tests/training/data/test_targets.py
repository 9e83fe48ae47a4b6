import pytest

from kbqa.sparql.crp import Crp
from kbqa.sparql.forms import read_crp
from kbqa.training.data.targets import write_target

FILMS = "[Tom Hanks] -> film.actor.film -> film.performance.film"


def crp(text: str) -> Crp:
    read, problems = read_crp(text)
    assert not problems
    return read


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        (f"{FILMS}\n?1 -> type.object.type = ns:film.performance", FILMS),
        ("Kenya <- people.person.nationality\n?x -> type.object.type = ns:people.person", None),
        (f"{FILMS}\n?x -> type.object.type = ns:film.film\nlargest ?x -> film.film.runtime", None),
        (f"{FILMS}\n?1 != [Tom Hanks]", FILMS),
        (f"{FILMS}\ncount bindings", f"{FILMS}\ncount"),
        (f"{FILMS}\nany language\ndistinct from none", FILMS),
    ],
    ids=["domain", "inverse", "order", "the topic", "bindings", "language"],
)
def test_no_target_says_what_no_question_does(written: str, asked: str | None) -> None:
    without = [line for line in written.splitlines() if "type.object.type" not in line]
    wanted = "\n".join(without) if asked is None else asked
    assert write_target(crp(written), "extended") == write_target(crp(wanted), "extended")


@pytest.mark.parametrize(
    "line",
    [
        "?x -> type.object.type = ns:film.film",
        "?x != [Meg Ryan]",
        "?x no -> type.object.type = ns:film.film",
    ],
    ids=["class", "another entity", "negated"],
)
def test_what_a_question_has_to_say_is_kept(line: str) -> None:
    said = write_target(crp(f"{FILMS}\n{line}"), "extended")
    assert said != write_target(crp(FILMS), "extended")


def test_each_form_says_what_it_can() -> None:
    counted = crp("Kenya -> location.location.contains\ncount")
    assert write_target(counted, "compact") == "Kenya -> location.location.contains\ncount"
    assert write_target(counted, "extended") == (
        "Main Path:\n Kenya -[location , location , contains]-> ?x\nFurther Restrictions:\n  count"
    )
    assert getattr(write_target(counted, "routerkgqa"), "reason", "").startswith("RouterKGQA's")
